package redisstat_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// TestSentInPieces: commands are counted however the bytes are cut, line ends in
// their strings included.
func TestSentInPieces(t *testing.T) {
	t.Parallel()
	commands := "*1\r\n$4\r\nPING\r\n" + "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\n*1\r\n$4\r\nPING\r\n" + "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n"
	for size := 1; size <= len(commands); size++ {
		var sent redisstat.Sent
		conn := dial(t, &sent)
		for rest := commands; rest != ""; {
			n := min(size, len(rest))
			expect.OK(t, expect.Err(io.Copy(conn, strings.NewReader(rest[:n]))))
			rest = rest[n:]
		}
		if have := sent.Count(); have != 3 {
			t.Errorf("pieces of %d bytes: want 3 commands, have %d", size, have)
		}
	}
}

// dial connects with somebody who reads and does not answer.
func dial(t *testing.T, sent *redisstat.Sent) net.Conn {
	t.Helper()
	var config net.ListenConfig
	l := expect.Value(config.Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn := expect.Value(sent.Dial(ctx, "tcp", l.Addr().String()))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
