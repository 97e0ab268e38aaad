package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// The program shows neither a password that Redis refuses nor one that Redis accepts.
func TestSecretsStayOutOfTheLog(t *testing.T) {
	t.Parallel()
	const right, wrong = "open-sesame", "close-barley"
	server := redistest.Start(t, "--requirepass", right)
	environ := func(password string) []string {
		return []string{
			"SIDING_REDIS_PASSWORD=" + password, "SIDING_HTTP_PASSWORD=" + password,
			"SIDING_LEDGER_DSN=postgres://me:" + password + "@" + vacant(t) + "/x",
		}
	}
	// settings names a ledger of its own, which goes before the environment's.
	args := settings(t, "--redis", server.Addr, "--log-level", "debug")
	refused := startWith(t, environ(wrong), args...)
	expect.Equal(t, "wrong password: exit status", refused.wait(t, 10*time.Second), exitFault)
	wantTexts(t, refused.stderr.String(), "worker: redis "+server.Addr+": ", "WRONGPASS")

	accepted := startWith(t, environ(right), args...)
	address(t, &accepted.stderr)
	accepted.end(t, 20*time.Second)

	noLedger := startWith(t, environ(right), "--redis", server.Addr, "--http", "off", "--log-level", "debug")
	expect.Equal(t, "no ledger: exit status", noLedger.wait(t, 20*time.Second), exitFault)
	for _, w := range []*inProcess{refused, accepted, noLedger} {
		for _, secret := range []string{right, wrong} {
			if have := w.stdout.String() + w.stderr.String(); strings.Contains(have, secret) {
				t.Errorf("want no password in %s", have)
			}
		}
	}
}
