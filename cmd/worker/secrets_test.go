package main

import (
	"strings"
	"testing"
	"time"

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
	if have := refused.wait(t, 10*time.Second); have != exitFault {
		t.Errorf("wrong password: want exit status %d, have %d", exitFault, have)
	}
	wantTexts(t, refused.stderr.String(), "worker: redis "+server.Addr+": ", "WRONGPASS")

	accepted := startWith(t, environ(right), args...)
	address(t, &accepted.stderr)
	accepted.stop()
	if have := accepted.wait(t, 20*time.Second); have != exitOK {
		t.Errorf("right password: want exit status 0, have %d", have)
	}

	noLedger := startWith(t, environ(right), "--redis", server.Addr, "--http", "off", "--log-level", "debug")
	if have := noLedger.wait(t, 20*time.Second); have != exitFault {
		t.Errorf("no ledger: want exit status %d, have %d", exitFault, have)
	}
	for _, w := range []*inProcess{refused, accepted, noLedger} {
		for _, secret := range []string{right, wrong} {
			if have := w.stdout.String() + w.stderr.String(); strings.Contains(have, secret) {
				t.Errorf("want no password in %s", have)
			}
		}
	}
}
