package dashboard

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
)

// protect refuses requests that another site makes a browser send, or whose path a browser has
// changed. It sets the headers that every reply has.
func (cfg Config) protect(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection() // of requests that change something
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		switch err := origins.Check(r); {
		case !cfg.AnyHost && !isLocal(r.Host):
			http.Error(w, "want localhost or an IP address as the host", http.StatusMisdirectedRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusForbidden)
		case isFolded(r.URL):
			http.Error(w, "want a path of names that a URL can carry; for others use asynq's command line", http.StatusBadRequest)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// guard answers 401 to requests that do not carry the login, if there is one.
func (cfg Config) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cfg.Password != "" && !cfg.loggedIn(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="Siding", charset="UTF-8"`)
			http.Error(w, "want a login", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loggedIn reports whether a request carries the login. Both parts are always compared.
func (cfg Config) loggedIn(r *http.Request) bool {
	user, password, ok := r.BasicAuth()
	return ok && same(user, cfg.Username)&same(password, cfg.Password) == 1
}

// by names who sends a request: the login, or the address if there is no login.
func (cfg Config) by(r *http.Request) string {
	if cfg.Password != "" {
		return cfg.Username
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "a visitor from " + host
}

// same returns 1 for equal texts, else 0. It compares their hashes, which have one length. So the
// time it takes says nothing about the texts.
func same(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}

// isLocal reports whether a request's host is one that no other site can point
// at us: an address, or localhost.
func isLocal(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	_, err := netip.ParseAddr(name)
	return err == nil || name == "localhost"
}

// Loopback reports whether address (host:port) can be reached from this
// machine alone.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip, _ := netip.ParseAddr(host) // a name makes the zero address, which is no loopback
	return err == nil && (host == "localhost" || ip.IsLoopback())
}
