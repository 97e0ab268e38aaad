package config

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
)

// wantAddress says which values redis.addrs accepts.
const wantAddress = "host:port or redis[s]://[user@]host[:port][/db]"

// redisURL takes what a URL of a Redis server says, which comes from the place. No error shows
// the URL, as there may be a password in it.
func (l *loader) redisURL(place, value string) {
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") || !isHost(u.Hostname()) || u.RawQuery != "" || u.Fragment != "" {
		l.fail("%s: want %s, have %s", place, wantAddress, hidden)
		return
	}
	if _, ok := u.User.Password(); ok {
		l.fail("%s: %w", place, errors.New("want no password in an address: set SIDING_REDIS_PASSWORD"))
		return
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	l.take("redis.addrs", place, net.JoinHostPort(u.Hostname(), port))
	l.take("redis.username", place, u.User.Username())
	l.take("redis.db", place, strings.Trim(u.Path, "/"))
	if u.Scheme == "rediss" {
		l.take("redis.tls", place, "true")
	}
	l.url = true
}

// isHost reports whether name may be that of a server. A name with a colon, which is no address, or with
// a comma, may be part of a password whose end was forgotten. net/url accepts both.
func isHost(name string) bool {
	return name != "" && (!strings.ContainsAny(name, ":,") || net.ParseIP(name) != nil)
}

// isNumber reports whether a text is made of digits.
func isNumber(text string) bool { return strings.Trim(text, "0123456789") == "" }

// take sets a part of a URL that comes from the place. An empty one changes nothing.
func (l *loader) take(key, place, value string) {
	if value == "" {
		return
	}
	s := l.settings[slices.IndexFunc(l.settings, func(s Setting) bool { return s.Key == key })]
	if key != "redis.addrs" { // which the URL is an item of
		l.start(s, place)
		place += ": " + key
		s.shown = isNumber // what is none may be a password
	}
	l.put(s, place, value)
}
