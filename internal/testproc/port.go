package testproc

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreePort returns a port of 127.0.0.1 that was free a moment ago. It lies below
// those that Linux (from 32768) and others give to outgoing connections and to
// listeners on port 0, so that a server that is down for a moment finds its port
// free; so does the port of a Redis Cluster node's bus, which is the node's plus
// 10000.
func FreePort(tb testing.TB) int {
	tb.Helper()
	const lowest, count, attempts = 12000, 10000, 100
	for range attempts {
		port := lowest + rand.IntN(count)
		var lc net.ListenConfig
		l, err := lc.Listen(tb.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			tb.Fatalf("port %d: %v", port, err)
		}
		return port
	}
	tb.Fatalf("no free port among %d from %d on, in %d attempts", count, lowest, attempts)
	return 0
}
