package config

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// wantAddress says which values redis.addrs accepts.
const wantAddress = "host:port or redis[s]://[user@]host[:port][/db]"

// A redisURL is a URL of a Redis server in a source of settings. No error shows its text, as that may contain a password.
type redisURL struct{ place, text string }

// endSource takes the URLs of a source once its other settings are known, whatever their order. A setting beside a URL that has
// its empty value, as in the file that is shipped, says nothing about what the URL has.
func (l *loader) endSource() {
	for _, u := range l.urls {
		l.url = true
		l.redisURL(u)
	}
	l.urls = nil
	clear(l.given)
}

// redisURL takes the settings in a URL.
func (l *loader) redisURL(at redisURL) {
	u, err := url.Parse(at.text)
	if err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") || !isHost(u.Hostname()) || u.RawQuery != "" || u.Fragment != "" {
		l.fail("%s: want %s, have %s", at.place, wantAddress, hidden)
		return
	}
	if _, ok := u.User.Password(); ok {
		l.fail("%s: want no password in an address: set SIDING_REDIS_PASSWORD", at.place)
		return
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	user, db := u.User.Username(), strings.Trim(u.Path, "/")
	l.either("redis.username", user, l.config.Redis.Username)
	l.either("redis.db", db, strings.TrimLeft(strconv.Itoa(l.config.Redis.DB), "0"))
	l.take("redis.addrs", at.place, net.JoinHostPort(u.Hostname(), port))
	l.take("redis.username", at.place, user)
	l.take("redis.db", at.place, db)
	if u.Scheme == "rediss" {
		l.take("redis.tls", at.place, "true")
	}
}

// either refuses a setting of a source whose URL has another value for it. An empty value is none.
func (l *loader) either(key, inURL, have string) {
	if l.given[key] && inURL != "" && have != "" && have != inURL {
		l.fail("%s: want none beside the one in the URL of redis.addrs, have %s", l.config.Place(key), have)
	}
}

// take sets a part of a URL that comes from the place. An empty one changes nothing.
func (l *loader) take(key, place, value string) {
	if value == "" {
		return
	}
	s := l.settings[slices.IndexFunc(l.settings, func(s Setting) bool { return s.Key == key })]
	if key != "redis.addrs" { // the URL is an item of that list
		l.config.places[key] = place
		place += ": " + key
		s.shown = isNumber // another text may be a password
	}
	l.put(s, place, value)
}
