package config

import (
	"net"
	"net/url"
	"slices"
	"strings"
)

// wantAddress says which values redis.addrs accepts.
const wantAddress = "host:port or redis[s]://[user@]host[:port][/db]"

// redisURL takes the settings in a URL of a Redis server, which comes from the place. No error
// shows the URL, as it may contain a password.
func (l *loader) redisURL(place, value string) {
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") || !isHost(u.Hostname()) || u.RawQuery != "" || u.Fragment != "" {
		l.fail("%s: want %s, have %s", place, wantAddress, hidden)
		return
	}
	if _, ok := u.User.Password(); ok {
		l.fail("%s: want no password in an address: set SIDING_REDIS_PASSWORD", place)
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

// take sets a part of a URL that comes from the place. An empty one changes nothing.
func (l *loader) take(key, place, value string) {
	if value == "" {
		return
	}
	s := l.settings[slices.IndexFunc(l.settings, func(s Setting) bool { return s.Key == key })]
	if key != "redis.addrs" { // the URL is an item of that list
		l.start(s, place)
		place += ": " + key
		s.shown = isNumber // another text may be a password
	}
	l.put(s, place, value)
}
