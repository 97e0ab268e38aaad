package config

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sidingq/siding/queue"
)

// check refuses values that do not go together.
func (l *loader) check() {
	l.checkRedis()
	l.checkTLS()
	c := l.config
	if c.HTTP.Password != "" && c.HTTP.PasswordFile != "" {
		l.refuse("want http.password or http.password_file, have both", "http.password_file")
	}
	if c.Shutdown.HardDeadline <= c.Shutdown.Timeout {
		l.refuse(fmt.Sprintf("want shutdown.hard_deadline above shutdown.timeout (%s), have %s", short(c.Shutdown.Timeout), short(c.Shutdown.HardDeadline)),
			"shutdown.hard_deadline", "shutdown.timeout")
	}
	// The names have been checked one by one.
	queues := queue.ServerConfig{Queues: c.Queues, Shards: c.Shards, StrictPriority: c.StrictPriority}
	if err := queues.Validate(); err != nil {
		key, what, _ := strings.Cut(strings.TrimPrefix(err.Error(), "queue: "), ": ")
		l.refuse(what, key, "shards")
	}
	// As the lock package derives and demands them.
	margin, renew := cmp.Or(c.Lock.Margin, c.Lock.TTL/15), cmp.Or(c.Lock.RenewEvery, c.Lock.TTL/3)
	if margin >= c.Lock.TTL {
		l.refuse(fmt.Sprintf("want lock.margin below lock.ttl (%s), have %s", short(c.Lock.TTL), short(margin)), "lock.margin", "lock.ttl")
	} else if most := (c.Lock.TTL - margin) / 2; renew > most {
		l.refuse(fmt.Sprintf("want lock.renew_every at most half of lock.ttl - lock.margin (%s), have %s", short(most), short(renew)),
			"lock.renew_every", "lock.margin", "lock.ttl")
	}
	if l.err != nil {
		return
	}
	// The libraries have the last word; they say nothing as long as the rules
	// here agree with theirs.
	if err := c.Server(nil, nil).Validate(); err != nil {
		l.fail("config: %w", err)
	}
}

func (l *loader) checkRedis() {
	r := l.config.Redis
	if r.Cluster && r.MasterName != "" {
		l.refuse("want redis.cluster or redis.master_name, have both", "redis.cluster", "redis.master_name")
	}
	if len(r.Addrs) > 1 && !r.Cluster && r.MasterName == "" {
		l.refuse(fmt.Sprintf("want one address, or redis.cluster, or redis.master_name, have %d addresses", len(r.Addrs)), "redis.addrs")
	}
	if len(r.Addrs) > 1 && l.url {
		l.refuse(fmt.Sprintf("want one URL, or host:port of each, have %d addresses", len(r.Addrs)), "redis.addrs")
	}
	if r.Cluster && r.DB != 0 {
		l.refuse(fmt.Sprintf("want redis.db 0 with redis.cluster, have %d", r.DB), "redis.db", "redis.cluster")
	}
	if r.MasterName == "" && (r.SentinelUsername != "" || r.SentinelPassword != "" || r.SentinelPasswordFile != "") {
		l.refuse("want redis.master_name with it, have none", "redis.sentinel_username", "redis.sentinel_password", "redis.sentinel_password_file")
	}
	if r.Password != "" && r.PasswordFile != "" {
		l.refuse("want redis.password or redis.password_file, have both", "redis.password_file")
	}
	if r.SentinelPassword != "" && r.SentinelPasswordFile != "" {
		l.refuse("want redis.sentinel_password or redis.sentinel_password_file, have both", "redis.sentinel_password_file")
	}
}

func (l *loader) checkTLS() {
	r := l.config.Redis
	if !r.TLS && (r.TLSServerName != "" || r.TLSCAFile != "" || r.TLSCertFile != "" || r.TLSKeyFile != "") {
		l.refuse("want redis.tls: true with it, have false", "redis.tls_server_name", "redis.tls_ca_file", "redis.tls_cert_file", "redis.tls_key_file")
	}
	if (r.TLSCertFile == "") != (r.TLSKeyFile == "") {
		l.refuse("want redis.tls_cert_file and redis.tls_key_file, have only one", "redis.tls_cert_file", "redis.tls_key_file")
	}
}

// refuse says what is wrong, at the place of the first of the keys that somebody
// gave a value: the rest have their defaults.
func (l *loader) refuse(what string, keys ...string) {
	for _, key := range keys {
		if place, ok := l.origins[key]; ok {
			l.fail("%s: %s", place, what)
			return
		}
	}
	l.fail("%s: %s", keys[0], what)
}
