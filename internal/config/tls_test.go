package config_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// Over TLS the settings let in whom they should, on both sides.
func TestTLS(t *testing.T) {
	t.Parallel()
	ours, others := redistest.NewCertificate(t), redistest.NewCertificate(t)
	strict := redistest.StartTLS(t, ours)
	lenient := redistest.StartTLS(t, ours, "--tls-auth-clients", "no")
	plain := redistest.Shared(t)

	right := config.Default().Redis
	right.Addrs = []string{strict.Addr}
	right.TLS, right.TLSServerName, right.TLSCAFile = true, redistest.ServerName, ours.File
	right.TLSCertFile, right.TLSKeyFile = ours.File, ours.KeyFile
	right.DialTimeout = 20 * time.Second // the race detector takes long to read the system's authorities
	with := func(edit func(*config.Redis)) config.Redis {
		r := right
		edit(&r)
		return r
	}

	unknown := func(err error) bool { _, ok := errors.AsType[x509.UnknownAuthorityError](err); return ok }
	misnamed := func(err error) bool { _, ok := errors.AsType[x509.HostnameError](err); return ok }
	// A plain Redis takes the handshake for the beginning of a command, and waits
	// for the rest.
	silent := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
	// The server ends the handshake, by an alert or, if that is too late, by the
	// connection's end.
	refused := func(err error) bool { _, ok := errors.AsType[*net.OpError](err); return ok }
	tests := []struct {
		name  string
		redis config.Redis
		want  func(error) bool // nil: no error
	}{
		{"all is right", right, nil},
		{"no certificate of ours, and none wanted", with(func(r *config.Redis) {
			r.Addrs, r.TLSCertFile, r.TLSKeyFile = []string{lenient.Addr}, "", ""
		}), nil},
		{"an authority that did not sign the server's", with(func(r *config.Redis) { r.TLSCAFile = others.File }), unknown},
		{"the system's authorities", with(func(r *config.Redis) { r.TLSCAFile = "" }), unknown},
		{"a name that is not the server's", with(func(r *config.Redis) { r.TLSServerName = "redis.example" }), misnamed},
		{"the address for a name", with(func(r *config.Redis) { r.TLSServerName = "" }), misnamed},
		{"no certificate of ours", with(func(r *config.Redis) { r.TLSCertFile, r.TLSKeyFile = "", "" }), refused},
		{"a certificate that the server does not trust", with(func(r *config.Redis) { r.TLSCertFile, r.TLSKeyFile = others.File, others.KeyFile }), refused},
		{"a server without TLS", with(func(r *config.Redis) { r.Addrs, r.DialTimeout = []string{plain.Addr}, 200*time.Millisecond }), silent},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			opts, err := config.Config{Redis: test.redis}.RedisOptions()
			expect.OK(t, err)
			opts.MaxRetries, opts.DialerRetries = -1, 1
			client := queue.Redis(opts)
			defer func() { _ = client.Close() }()
			err = client.Ping(t.Context()).Err()
			if test.want == nil && err != nil || test.want != nil && !test.want(err) {
				t.Errorf("want %t for an error of the right kind, have %T %v", test.want != nil, err, err)
			}
		})
	}
}
