package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// A file is a configuration that works, or refused with the place of each mistake.
func FuzzFile(f *testing.F) {
	text := expect.Value(os.ReadFile(shipped))(f)
	f.Add(text)
	for _, seed := range []string{
		"", "~", "a: &a [*a]", "queues: &q {a: *q}", "lock:\n  ttl: 6s\n  renew_every: 5s\n", "? {a: b}\n: c", "<<: {concurrency: 3}", "{0\n\n0}", "---\n---\n",
		"redis:\n  addrs: [a:1, b:2]\n  cluster: true\n", "http: {username: 'a:b'}", "ledger: {dsn: 'postgres://a:b@c/d'}", "!!binary aGk=: x", "\xff",
		"limits:\n  \"account:*\": {holders: 5, rates: [100/1s]}\n  a: &a {rates: *a}\n",
		"policies:\n  \"mail:digest\": {on_busy: coalesce, max_wait: 1h}\n  a: &a {max_wait: *a}\n",
	} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "config.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		expect.OK(t, os.WriteFile(path, text, 0o600))
		have, err := load(path, nil)
		if err == nil {
			if err := have.Server(nil, nil).Validate(); err != nil {
				t.Errorf("want a configuration that works, have %v", err)
			}
			return
		}
		for line := range strings.Lines(err.Error()) {
			expect.That(t, strings.HasPrefix(line, path+":") || strings.HasPrefix(line, "config: "+path+":"), "want the place of each mistake, have %q", line)
		}
	})
}

// No error shows a password, wherever in a DSN it ends.
func FuzzSecretDSN(f *testing.F) {
	const secret = "hunter2"
	for _, seed := range []string{"@db/x", "", "/x", "%zz@db", ":5432/x", "#@db", "?password=@", "\n@db", "@[::1", ",:", "db.example/shop"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		if strings.Contains(rest, secret) {
			return
		}
		dsns := []string{"postgres://me:" + secret + rest, "postgres://me@db/x?password=" + secret + rest, "postgres://me@db/x?sslpassword=" + secret + rest}
		for _, head := range []string{"postgres:/me:", "postgres:me:", "postgres//me:", "shop_app:", "x:", "\"postgres://me:", "postgres://shop:7/", "postgres://shop:7?"} {
			dsns = append(dsns, head+secret+"@"+rest)
		}
		for _, dsn := range dsns {
			_, err := load("", nil, config.Override{Flag: "ledger", Value: dsn})
			if err == nil {
				t.Errorf("%q: want a password on the command line refused", dsn)
			} else if strings.Contains(err.Error(), secret) {
				t.Errorf("want no password shown, have %v", err)
			}
		}
	})
}

// A URL with a password is refused without being shown, wherever the password ends.
func FuzzRedisURL(f *testing.F) {
	const secret = "hunter2"
	for _, seed := range []string{"@db", "", "@db:6379/3", "@/3", "%zz@db", "@[::1]:x", "#@db", "?x=@db", ",x@db", ",00:000000"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		if strings.Contains(rest, secret) {
			return
		}
		for _, head := range []string{"redis://me:", "redis://:", ":", "http://me:"} {
			value := head + secret + rest
			_, err := load("", map[string]string{"SIDING_REDIS_ADDRS": value})
			if strings.Contains(value, "@") && err == nil {
				t.Errorf("%q: want a password in an address refused", value)
			} else if err != nil && (strings.Contains(value, "://") || strings.Contains(value, "@")) && strings.Contains(err.Error(), secret) {
				t.Errorf("want no password shown, have %v", err)
			}
		}
	})
}
