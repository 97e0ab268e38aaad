package config

import (
	"net"
	"net/url"
	"regexp"
	"strings"
)

// A Secret is a text that does not show itself when it is printed or logged.
// Convert it to a string to use it.
type Secret string

const hidden = "[hidden]"

// String does not return the text.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString does not return the text.
func (s Secret) GoString() string { return s.String() }

// MarshalText does not return the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

var (
	// passwordIs finds a password in libpq's form (host=db password=secret), which is no URL.
	passwordIs = regexp.MustCompile(`(?i)passw(or)?d\s*=`)
	// passwordAt finds a password that an @ ends, also in a URL that is mistyped. urlStart matches the colon
	// that is before none.
	passwordAt = regexp.MustCompile(`(?s):.*@`)
	urlStart   = regexp.MustCompile(`(?i)^(sqlite:|[a-z][a-z0-9+.-]*://)`)
	// hostAndPort matches a host or an address, with a port or without.
	hostAndPort = regexp.MustCompile(`^([^:\[\]]+|\[[^\[\]]+\])?(:[0-9]+)?$`)
	// plainPort matches the name or address of a server with a port, plainName one without.
	plainPort = regexp.MustCompile(`^([a-zA-Z0-9._-]+|\[[0-9a-fA-F:.]+\]):[0-9]+$`)
	plainName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)
)

// isPlain reports whether a value looks like a server's name or address, with a port or without.
// Clients of other languages write a password behind that: host:6380,password=secret.
func isPlain(value string) bool {
	return plainPort.MatchString(value) || plainName.MatchString(value) || net.ParseIP(value) != nil
}

// isURL reports whether a value is a URL, or a part of one. There may be a password in it.
func isURL(value string) bool { return strings.Contains(value, "://") || strings.Contains(value, "@") }

// isNumber reports whether a text is made of digits.
func isNumber(text string) bool { return strings.Trim(text, "0123456789") == "" }

// hasPassword reports whether a DSN holds a password, or may do so.
func hasPassword(dsn string) bool {
	u, err := url.Parse(dsn)
	if err != nil {
		return true // nothing says where a password in it begins
	}
	if passwordAt.MatchString(urlStart.ReplaceAllString(dsn, "")) {
		return true
	}
	// postgres://user:password:5432/x has no host, but the parser makes a host of the text. It
	// makes two hosts of user:password,x:5432.
	for host := range strings.SplitSeq(u.Host, ",") {
		if !hostAndPort.MatchString(host) {
			return true
		}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || passwordIs.MatchString(dsn) {
		return true
	}
	for key := range query {
		if strings.Contains(strings.ToLower(key), "password") {
			return true
		}
	}
	return false
}
