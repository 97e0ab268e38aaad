package dashboard

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
)

// A login is a user name and a password, as their hashes.
type login struct {
	user, password [sha256.Size]byte
}

func newLogin(user, password string) *login {
	return &login{sha256.Sum256([]byte(user)), sha256.Sum256([]byte(password))}
}

// given reports whether a request carries the login. It always compares both hashes, which have
// one length. So the time it takes says nothing about the login.
func (l *login) given(r *http.Request) bool {
	user, password, ok := r.BasicAuth()
	asked := newLogin(user, password)
	same := subtle.ConstantTimeCompare(asked.user[:], l.user[:]) & subtle.ConstantTimeCompare(asked.password[:], l.password[:])
	return ok && same == 1
}

// guard answers 401 to requests that do not carry the login.
func (l *login) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !l.given(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="Siding", charset="UTF-8"`)
			http.Error(w, "want a login", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
