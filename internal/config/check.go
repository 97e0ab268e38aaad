package config

import (
	"fmt"
	"slices"
	"strings"
)

// check refuses values that do not go together.
func (l *loader) check() {
	c, r := l.config, l.config.Redis
	l.refuse(r.Cluster && r.MasterName != "", "want redis.cluster or redis.master_name, have both", "redis.cluster")
	l.refuse(len(r.Addrs) > 1 && !r.Cluster && r.MasterName == "",
		fmt.Sprintf("want one address, or redis.cluster, or redis.master_name, have %d addresses", len(r.Addrs)), "redis.addrs")
	l.refuse(len(r.Addrs) > 1 && l.url, fmt.Sprintf("want one URL, or host:port of each, have %d addresses", len(r.Addrs)), "redis.addrs")
	l.refuse(r.Cluster && r.DB != 0, fmt.Sprintf("want redis.db 0 with redis.cluster, have %d", r.DB), "redis.db")
	l.refuse(r.MasterName == "" && (r.SentinelUsername != "" || r.SentinelPassword != "" || r.SentinelPasswordFile != ""),
		"want redis.master_name with it, have none", "redis.sentinel_username", "redis.sentinel_password", "redis.sentinel_password_file")
	l.refuse(r.Password != "" && r.PasswordFile != "", "want redis.password or redis.password_file, have both", "redis.password_file")
	l.refuse(r.SentinelPassword != "" && r.SentinelPasswordFile != "",
		"want redis.sentinel_password or redis.sentinel_password_file, have both", "redis.sentinel_password_file")
	l.refuse(!r.TLS && (r.TLSServerName != "" || r.TLSCAFile != "" || r.TLSCertFile != "" || r.TLSKeyFile != ""),
		"want redis.tls: true with it, have false", "redis.tls_server_name", "redis.tls_ca_file", "redis.tls_cert_file", "redis.tls_key_file")
	l.refuse((r.TLSCertFile == "") != (r.TLSKeyFile == ""),
		"want redis.tls_cert_file and redis.tls_key_file, have only one", "redis.tls_cert_file", "redis.tls_key_file")
	l.refuse(c.HTTP.Password != "" && c.HTTP.PasswordFile != "", "want http.password or http.password_file, have both", "http.password_file")
	l.refuse(c.HardDeadline <= c.Queue.Asynq.ShutdownTimeout,
		fmt.Sprintf("want shutdown.hard_deadline above shutdown.timeout (%s), have %s", short(c.Queue.Asynq.ShutdownTimeout), short(c.HardDeadline)),
		"shutdown.hard_deadline", "shutdown.timeout")
	// An error of the packages begins with the package and its field: "lock: renew every: want".
	if err := c.Server(nil, nil).Validate(); err != nil {
		what, locks := strings.CutPrefix(err.Error(), "lock: ")
		what = strings.TrimPrefix(what, "queue: ")
		key, want, _ := strings.Cut(what, ": ")
		l.refuse(!locks, want, key, "shards")
		l.refuse(locks, what, "lock."+strings.ReplaceAll(key, " ", "_"), "lock.renew_every", "lock.safety_margin", "lock.ttl")
	}
}

// refuse fails if values are wrong together. The error has the place of the first key to which
// somebody gave a value. The others have their defaults.
func (l *loader) refuse(wrong bool, want string, keys ...string) {
	if !wrong {
		return
	}
	given := slices.IndexFunc(keys, func(key string) bool { return l.config.places[key] != "" })
	l.fail("%s: %s", l.config.Place(keys[max(given, 0)]), want)
}
