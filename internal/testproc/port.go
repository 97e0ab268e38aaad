package testproc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreePort is FindPort for tests.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := FindPort(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// FindPort returns a port of 127.0.0.1 that was free a moment ago. It lies below
// those that Linux (from 32768) and others give to outgoing connections and to
// listeners on port 0, so that a server that is down for a moment finds its port
// free; so does the port of a Redis Cluster node's bus, which is the node's plus
// 10000.
func FindPort(ctx context.Context) (int, error) {
	const lowest, count, attempts = 12000, 10000, 100
	for range attempts {
		port := lowest + rand.IntN(count)
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return 0, fmt.Errorf("port %d: %w", port, err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("no free port among %d from %d on, in %d attempts", count, lowest, attempts)
}
