package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A worker with the files of its settings works over TLS; with the wrong ones it
// says so and ends.
func TestServeOverTLS(t *testing.T) {
	t.Parallel()
	ours, others := redistest.NewAuthority(t), redistest.NewAuthority(t)
	server := redistest.StartTLS(t, ours)
	cert, key := ours.Issue(t)
	args := settings(t, "--redis", server.Addr, "--redis-tls", "--redis-tls-server-name", redistest.ServerName,
		"--redis-tls-cert-file", cert, "--redis-tls-key-file", key)

	w := start(t, append(args, "--redis-tls-ca-file", ours.File)...)
	address(t, &w.stderr)
	rdb := server.Client(t)
	enqueue(t, rdb, "default", "7001", "7001")
	expect.Eventually(t, "all tasks completed", func() bool { return count(t, rdb, "default").Completed == 2 })
	w.stop()
	if have := w.wait(t, 20*time.Second); have != exitOK {
		t.Errorf("want exit status 0, have %d", have)
	}

	w = start(t, append(args, "--redis-tls-ca-file", others.File)...)
	if have := w.wait(t, 10*time.Second); have != exitFault {
		t.Errorf("a server that others vouch for: want exit status %d, have %d", exitFault, have)
	}
	if have := w.stderr.String(); !strings.Contains(have, "worker: redis "+server.Addr+": ") || !strings.Contains(have, "certificate signed by unknown authority") {
		t.Errorf("want the reason, have %s", have)
	}
}
