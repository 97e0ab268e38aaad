package dashboard

import (
	"net"
	"net/http"
	"net/netip"
)

// protect refuses requests that another site makes a browser send, and sets the headers
// that every reply has.
func protect(next http.Handler, anyHost bool) http.Handler {
	// Answers 403 to requests that change something and come from elsewhere.
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		if !anyHost && !isLocal(r.Host) {
			http.Error(w, "want localhost or an IP address as the host", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocal reports whether a request's host is one that no other site can point
// at us: an address, or localhost.
func isLocal(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "localhost" {
		return true
	}
	if n := len(host); n > 2 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// Loopback reports whether address (host:port) can be reached from this
// machine alone.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
