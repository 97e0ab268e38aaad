package config_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// put writes a file and returns its path.
func put(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	expect.OK(t, os.WriteFile(path, text, 0o600))
	return path
}

// certificate makes a self-signed certificate and its key, as PEM.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private := expect.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true}
	der := expect.Value(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))(t)
	keyDER := expect.Value(x509.MarshalECPrivateKey(private))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	r := config.Default().Redis
	r.Username = "me"
	r.PasswordFile = put(t, "password", []byte("correct horse\n"))
	r.DB = 3
	r.MasterName, r.SentinelUsername, r.SentinelPassword = "main", "watcher", "secret"
	r.TLS, r.TLSServerName = true, "redis.example"
	r.TLSCAFile, r.TLSCertFile, r.TLSKeyFile = put(t, "ca.pem", cert), put(t, "cert.pem", cert), put(t, "key.pem", key)
	have := expect.Value(config.Config{Redis: r}.RedisOptions())(t)
	expect.That(t, have.Username == "me" && have.Password == "correct horse" && have.DB == 3 && len(have.Addrs) == 1, "want user, password and database, have %q, %d bytes, %d", have.Username, len(have.Password), have.DB)
	expect.That(t, have.ContextTimeoutEnabled && have.DialTimeout > 0 && have.ReadTimeout > 0 && have.WriteTimeout > 0, "want every call bounded, have %t, %v, %v, %v", have.ContextTimeoutEnabled, have.DialTimeout, have.ReadTimeout, have.WriteTimeout)
	expect.That(t, have.MasterName == "main" && have.SentinelUsername == "watcher" && have.SentinelPassword == "secret", "want the Sentinels' settings handed on")
	if c := have.TLSConfig; c == nil || c.ServerName != "redis.example" || c.RootCAs == nil || len(c.Certificates) != 1 || c.InsecureSkipVerify {
		t.Errorf("want TLS as configured, have %+v", c)
	}
}

// A file that a setting names, and that is of no use, is named together with the place of its name.
func TestFilesOfSettings(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	good, mate, empty := put(t, "cert.pem", cert), put(t, "key.pem", key), put(t, "empty", []byte("\n"))
	long := put(t, "long", bytes.Repeat([]byte("x"), 1<<20+1)) // as a device would be
	missing := filepath.Join(t.TempDir(), "missing")
	gone := missing + ": no such file or directory"
	file := write(t, "redis:\n  password_file: "+missing+"\n")
	type vars = map[string]string
	secured := func(more vars) vars {
		more["SIDING_REDIS_TLS"] = "true"
		return more
	}
	tests := []struct {
		name, file string
		vars       vars
		flags      []config.Override
		want       string
	}{
		{name: "password of a flag", flags: []config.Override{{Flag: "redis-password-file", Value: missing}}, want: "--redis-password-file: open " + gone},
		{name: "password of a variable", vars: vars{"SIDING_REDIS_PASSWORD_FILE": missing}, want: "SIDING_REDIS_PASSWORD_FILE: open " + gone},
		{name: "password of a file", file: file, want: file + ":2: redis.password_file: open " + gone},
		{name: "empty password", vars: vars{"SIDING_REDIS_PASSWORD_FILE": empty}, want: "SIDING_REDIS_PASSWORD_FILE: " + empty + ": want a password, have nothing"},
		{name: "endless password", vars: vars{"SIDING_REDIS_PASSWORD_FILE": long}, want: "SIDING_REDIS_PASSWORD_FILE: " + long + ": want at most 1048576 bytes"},
		{name: "sentinel", vars: vars{"SIDING_REDIS_MASTER_NAME": "m", "SIDING_REDIS_SENTINEL_PASSWORD_FILE": missing}, want: "SIDING_REDIS_SENTINEL_PASSWORD_FILE: open " + gone},
		{name: "authorities", vars: secured(vars{"SIDING_REDIS_TLS_CA_FILE": missing}), want: "SIDING_REDIS_TLS_CA_FILE: open " + gone},
		{name: "empty authorities", vars: secured(vars{"SIDING_REDIS_TLS_CA_FILE": empty}), want: "SIDING_REDIS_TLS_CA_FILE: " + empty + ": want PEM certificates, have none"},
		{name: "certificate", vars: secured(vars{"SIDING_REDIS_TLS_CERT_FILE": missing, "SIDING_REDIS_TLS_KEY_FILE": mate}), want: "SIDING_REDIS_TLS_CERT_FILE: open " + gone},
		{name: "key", vars: secured(vars{"SIDING_REDIS_TLS_CERT_FILE": good, "SIDING_REDIS_TLS_KEY_FILE": missing}), want: "SIDING_REDIS_TLS_KEY_FILE: open " + gone},
		{name: "certificate for a key", vars: secured(vars{"SIDING_REDIS_TLS_CERT_FILE": good, "SIDING_REDIS_TLS_KEY_FILE": good}), want: "SIDING_REDIS_TLS_CERT_FILE: " + good + " with " + good + ": tls: "},
		{name: "dashboard", vars: vars{"SIDING_HTTP_PASSWORD_FILE": missing}, want: "SIDING_HTTP_PASSWORD_FILE: open " + gone},
		{name: "empty dashboard", vars: vars{"SIDING_HTTP_PASSWORD_FILE": empty}, want: "SIDING_HTTP_PASSWORD_FILE: " + empty + ": want a password, have nothing"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg, err := load(test.file, test.vars, test.flags...)
			expect.OK(t, err)
			_, err = cfg.RedisOptions()
			_, login := cfg.LoginPassword()
			if err = errors.Join(err, login); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("\nwant %s\nhave %v", test.want, err)
			}
		})
	}
}

func TestLoginPassword(t *testing.T) {
	t.Parallel()
	for want, h := range map[config.Secret]config.HTTP{
		"correct horse":  {PasswordFile: put(t, "password", []byte("correct horse\n"))},
		"battery staple": {Password: "battery staple"},
	} {
		if have, err := (config.Config{HTTP: h}).LoginPassword(); err != nil || have != want {
			t.Errorf("want the password, have %d bytes, %v", len(have), err)
		}
	}
}

// An error of a call says which setting to look at.
func TestFailed(t *testing.T) {
	t.Parallel()
	one := config.Redis{Addrs: []string{"one:1"}}
	watched := config.Redis{Addrs: []string{"one:1"}, MasterName: "main"}
	known := watched
	known.Password = "a"
	both := known
	both.SentinelPassword = "b"
	const (
		noAuth    = "NOAUTH Authentication required."
		wrongPass = "WRONGPASS invalid username-password pair or user is disabled."
		sentinels = "redis: all sentinels specified in configuration are unreachable: "
		redis     = "SIDING_REDIS_PASSWORD or redis.password_file"
		sentinel  = "SIDING_REDIS_SENTINEL_PASSWORD or redis.sentinel_password_file"
	)
	for _, test := range []struct {
		name       string
		redis      config.Redis
		text, want string // want is what follows the text
	}{
		{"another fault", one, "ERR unknown", ""},
		{"no such database", config.Redis{Addrs: []string{"one:1"}, DB: 99}, "ERR DB index is out of range", " (redis.db: want a database that this Redis has, by default 0 to 15, have 99)"},
		{"cluster that is none", config.Redis{Addrs: one.Addrs, Cluster: true}, "ERR This instance has cluster support disabled", " (redis.cluster: want false for a Redis that is no Cluster, have true)"},
		{"one of a cluster", one, "MOVED 866 two:1", " (redis.cluster: want true for a Cluster, have false)"},
		{"one of a cluster, asked by a worker", one, "queue: redis refuses: tasks of the queue default: MOVED 866 two:1", " (redis.cluster: want true for a Cluster, have false)"},
		{"cluster that moves", config.Redis{Addrs: one.Addrs, Cluster: true}, "MOVED 866 two:1", ""},
		{"no sentinel", watched, sentinels + "ERR unknown command 'sentinel', with args beginning with: 'get-master-addr-by-name' 'main' ", " (redis.master_name: want none for a Redis that is no Sentinel, have main)"},
		{"no sentinel of old", watched, sentinels + "ERR unknown command `SENTINEL`", " (redis.master_name: want none for a Redis that is no Sentinel, have main)"},
		{"no TLS there", config.Redis{Addrs: one.Addrs, TLS: true}, "context deadline exceeded", " (redis.tls: want false for a Redis without TLS, have true)"},
		{"no TLS, and an end", config.Redis{Addrs: one.Addrs, TLS: true}, "EOF", " (redis.tls: want false for a Redis without TLS, have true)"},
		{"no TLS, and an answer", config.Redis{Addrs: one.Addrs, TLS: true}, "tls: first record does not look like a TLS handshake", " (redis.tls: want false for a Redis without TLS, have true)"},
		{"a sentinel without TLS", config.Redis{Addrs: one.Addrs, TLS: true, MasterName: "main"}, sentinels + "context deadline exceeded", " (redis.tls: want false for a Redis without TLS, have true)"},
		{"a certificate that is wrong", config.Redis{Addrs: one.Addrs, TLS: true}, "tls: failed to verify certificate", ""},
		{"TLS there", one, "EOF", " (redis.tls: want true for a Redis with TLS, have false)"},
		{"a sentinel with TLS", watched, sentinels + "EOF", " (redis.tls: want true for a Redis with TLS, have false)"},
		{"no answer", one, "context deadline exceeded", ""},
		{"no password", one, noAuth, " (set " + redis + ")"},
		{"wrong password", one, wrongPass, " (check redis.username, and " + redis + ")"},
		{"master without password", watched, noAuth, " (set " + redis + "; for the Sentinels " + sentinel + ")"},
		{"sentinels without password", known, noAuth, " (for the Sentinels, set " + sentinel + ")"},
		{"sentinels that say so", watched, sentinels + noAuth, " (for the Sentinels, set " + sentinel + ")"},
		{"wrong password of the sentinels", both, sentinels + wrongPass, " (for the Sentinels, check redis.sentinel_username, and " + sentinel + ")"},
		{"one of two wrong passwords", both, wrongPass, " (check redis.username, and " + redis + "; for the Sentinels redis.sentinel_username, and " + sentinel + ")"},
	} {
		have := test.redis.Failed("worker", errors.New(test.text)).Error()
		if want := "redis one:1: " + test.text + test.want; have != want {
			t.Errorf("%s:\nwant %s\nhave %s", test.name, want, have)
		}
	}
}

// So do those that servers give to a client of another kind.
func TestFailedByTheKindOfServer(t *testing.T) {
	t.Parallel()
	plain, secured := redistest.Shared(t).Addr, redistest.StartTLS(t, redistest.NewCertificate(t)).Addr
	for _, test := range []struct {
		name, addr string
		edit       func(*config.Redis)
		want       string
	}{
		{"cluster", plain, func(r *config.Redis) { r.Cluster = true }, "(redis.cluster: want false for a Redis that is no Cluster, have true)"},
		{"sentinel", plain, func(r *config.Redis) { r.MasterName = "main" }, "(redis.master_name: want none for a Redis that is no Sentinel, have main)"},
		{"TLS", plain, func(r *config.Redis) { r.TLS = true }, "(redis.tls: want false for a Redis without TLS, have true)"},
		{"TLS of a sentinel", plain, func(r *config.Redis) { r.TLS, r.MasterName = true, "main" }, "(redis.tls: want false for a Redis without TLS, have true)"},
		{"no TLS", secured, func(*config.Redis) {}, "(redis.tls: want true for a Redis with TLS, have false)"},
		{"no TLS of a cluster", secured, func(r *config.Redis) { r.Cluster = true }, "(redis.tls: want true for a Redis with TLS, have false)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := config.Default().Redis
			r.Addrs, r.DialTimeout = []string{test.addr}, 200*time.Millisecond
			test.edit(&r)
			opts, err := config.Config{Redis: r}.RedisOptions()
			expect.OK(t, err)
			opts.MaxRetries, opts.DialerRetries = -1, 1
			client := queue.Redis(opts)
			defer func() { _ = client.Close() }()
			if err = client.Ping(t.Context()).Err(); err == nil {
				t.Fatal("want an error")
			}
			if have := r.Failed("worker", err).Error(); !strings.HasSuffix(have, test.want) {
				t.Errorf("want %s, have %s", test.want, have)
			}
		})
	}
}
