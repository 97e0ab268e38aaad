package config

import (
	"fmt"
	"strings"
)

// check refuses values that do not go together.
func (l *loader) check() {
	c, r := l.config, l.config.Redis
	for _, rule := range []struct {
		broken bool
		want   string
		keys   []string // see refuse
	}{
		{r.Cluster && r.MasterName != "", "want redis.cluster or redis.master_name, have both", []string{"redis.cluster"}},
		{
			len(r.Addrs) > 1 && !r.Cluster && r.MasterName == "",
			fmt.Sprintf("want one address, or redis.cluster, or redis.master_name, have %d addresses", len(r.Addrs)),
			[]string{"redis.addrs"},
		},
		{len(r.Addrs) > 1 && l.url, fmt.Sprintf("want one URL, or host:port of each, have %d addresses", len(r.Addrs)), []string{"redis.addrs"}},
		{r.Cluster && r.DB != 0, fmt.Sprintf("want redis.db 0 with redis.cluster, have %d", r.DB), []string{"redis.db"}},
		{
			r.MasterName == "" && (r.SentinelUsername != "" || r.SentinelPassword != "" || r.SentinelPasswordFile != ""),
			"want redis.master_name with it, have none",
			[]string{"redis.sentinel_username", "redis.sentinel_password", "redis.sentinel_password_file"},
		},
		{r.Password != "" && r.PasswordFile != "", "want redis.password or redis.password_file, have both", []string{"redis.password_file"}},
		{
			r.SentinelPassword != "" && r.SentinelPasswordFile != "",
			"want redis.sentinel_password or redis.sentinel_password_file, have both",
			[]string{"redis.sentinel_password_file"},
		},
		{
			!r.TLS && (r.TLSServerName != "" || r.TLSCAFile != "" || r.TLSCertFile != "" || r.TLSKeyFile != ""),
			"want redis.tls: true with it, have false",
			[]string{"redis.tls_server_name", "redis.tls_ca_file", "redis.tls_cert_file", "redis.tls_key_file"},
		},
		{
			(r.TLSCertFile == "") != (r.TLSKeyFile == ""),
			"want redis.tls_cert_file and redis.tls_key_file, have only one",
			[]string{"redis.tls_cert_file", "redis.tls_key_file"},
		},
		{c.HTTP.Password != "" && c.HTTP.PasswordFile != "", "want http.password or http.password_file, have both", []string{"http.password_file"}},
		{
			c.Shutdown.HardDeadline <= c.Shutdown.Timeout,
			fmt.Sprintf("want shutdown.hard_deadline above shutdown.timeout (%s), have %s", short(c.Shutdown.Timeout), short(c.Shutdown.HardDeadline)),
			[]string{"shutdown.hard_deadline", "shutdown.timeout"},
		},
	} {
		if rule.broken {
			l.refuse(rule.want, rule.keys...)
		}
	}
	// An error of the packages begins with the package and its field: "lock: renew every: want".
	if err := c.Server(nil, nil).Validate(); err != nil {
		what, locks := strings.CutPrefix(err.Error(), "lock: ")
		what = strings.TrimPrefix(what, "queue: ")
		key, want, _ := strings.Cut(what, ": ")
		if !locks {
			l.refuse(want, key, "shards")
			return
		}
		l.refuse(what, "lock."+strings.ReplaceAll(key, " ", "_"), "lock.renew_every", "lock.safety_margin", "lock.ttl")
	}
}

// refuse fails at the place of the first of the keys that somebody gave a value. The others
// have their defaults.
func (l *loader) refuse(want string, keys ...string) {
	for _, key := range keys {
		if place, ok := l.config.places[key]; ok {
			l.fail("%s: %s", place, want)
			return
		}
	}
	l.fail("%s: %s", keys[0], want)
}
