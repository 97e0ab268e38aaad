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
	l.refuse(r.Cluster && r.DB != 0, fmt.Sprintf("want 0 with redis.cluster, have %d", r.DB), "redis.db")
	l.refuse(r.MasterName == "" && (r.SentinelUsername != "" || r.SentinelPassword != "" || r.SentinelPasswordFile != ""),
		"want redis.master_name with it, have none", "redis.sentinel_username", "redis.sentinel_password", "redis.sentinel_password_file")
	l.refuse(r.Password != "" && r.PasswordFile != "", "want SIDING_REDIS_PASSWORD or redis.password_file, have both", "redis.password_file")
	l.refuse(r.SentinelPassword != "" && r.SentinelPasswordFile != "",
		"want SIDING_REDIS_SENTINEL_PASSWORD or redis.sentinel_password_file, have both", "redis.sentinel_password_file")
	l.refuse(!r.TLS && (r.TLSServerName != "" || r.TLSCAFile != "" || r.TLSCertFile != "" || r.TLSKeyFile != ""),
		"want redis.tls: true with it, have false", "redis.tls_server_name", "redis.tls_ca_file", "redis.tls_cert_file", "redis.tls_key_file")
	l.refuse((r.TLSCertFile == "") != (r.TLSKeyFile == ""),
		"want redis.tls_cert_file and redis.tls_key_file, have only one", "redis.tls_cert_file", "redis.tls_key_file")
	l.refuse(c.HTTP.Password != "" && c.HTTP.PasswordFile != "", "want SIDING_HTTP_PASSWORD or http.password_file, have both", "http.password_file")
	timeout, deadline := short(c.Queue.Asynq.ShutdownTimeout), short(c.HardDeadline)
	above := fmt.Sprintf("want more than shutdown.timeout (%s), have %s", timeout, deadline)
	if l.blamed("shutdown.hard_deadline", "shutdown.timeout") == "shutdown.timeout" {
		above = fmt.Sprintf("want less than shutdown.hard_deadline (%s), have %s", deadline, timeout)
	}
	l.refuse(c.HardDeadline <= c.Queue.Asynq.ShutdownTimeout, above, "shutdown.hard_deadline", "shutdown.timeout")
	// An error of the packages begins with the package and its field: "lock: renew every: want".
	if err := c.Server(nil, nil).Validate(); err != nil {
		what, locks := strings.CutPrefix(err.Error(), "lock: ")
		key, want, _ := strings.Cut(strings.TrimPrefix(what, "queue: "), ": ")
		keys := []string{key, "shards"}
		want = strings.Replace(want, "none with strict priority,", "none with strict_priority,", 1)
		if locks {
			want = ofLocks.Replace(want)
			key = "lock." + strings.ReplaceAll(key, " ", "_")
			keys = []string{key, "lock.renew_every", "lock.safety_margin", "lock.ttl"}
			if l.blamed(keys...) != key { // a default does not go together with the value of another setting
				want = key + ": " + want
			}
		}
		l.refuse(true, want, keys...)
	}
}

// ofLocks names fields of package lock as the settings are called.
var ofLocks = strings.NewReplacer("ttl", "lock.ttl", "safety margin", "lock.safety_margin")

// refuse fails if values are wrong together. The error has the place of the first key to which
// somebody gave a value. The others have their defaults.
func (l *loader) refuse(wrong bool, want string, keys ...string) {
	if !wrong {
		return
	}
	l.fail("%s: %s", l.config.Place(l.blamed(keys...)), want)
}

// blamed returns the first key to which somebody gave a value, and the first one of all if nobody did.
func (l *loader) blamed(keys ...string) string {
	given := slices.IndexFunc(keys, func(key string) bool { return l.config.places[key] != "" })
	return keys[max(given, 0)]
}
