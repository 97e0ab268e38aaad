package redisstat_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/bench/internal/redisstat"
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
			if _, err := io.Copy(conn, strings.NewReader(rest[:n])); err != nil {
				t.Fatal(err)
			}
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
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := sent.Dial(ctx, "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
