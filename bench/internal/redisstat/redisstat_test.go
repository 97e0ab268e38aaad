package redisstat_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// start returns a client of a server of the test's own.
func start(t *testing.T, sent *redisstat.Sent) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr, Dialer: sent.Dial})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestUsage: a script with three commands in it is one command sent and four run.
func TestUsage(t *testing.T) {
	t.Parallel()
	var sent redisstat.Sent
	client := start(t, &sent)
	ctx := t.Context()
	before, err := redisstat.ReadUsage(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	first := sent.Count()
	for range 10 {
		if err := client.Eval(ctx, "for i = 1, 3 do redis.call('INCR', KEYS[1]) end return 1", []string{"k"}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if have := sent.Count() - first; have != 10 {
		t.Errorf("want 10 commands sent, have %d", have)
	}
	after, err := redisstat.ReadUsage(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	used := after.Since(before)
	if used.Run() != 40 || used.Scripts() != 10 {
		t.Errorf("want 40 commands run by 10 scripts, have %d by %d", used.Run(), used.Scripts())
	}
	if used.CPU < 0 || after.CPU == 0 {
		t.Errorf("want some CPU time, have %v of %v", used.CPU, after.CPU)
	}
	if n, err := redisstat.Memory(ctx, client); err != nil || n < 100_000 {
		t.Errorf("want the memory of a Redis, have %d, %v", n, err)
	}
	if took, err := redisstat.RoundTrip(ctx, client, 5); err != nil || len(took) != 5 || took[0] <= 0 {
		t.Errorf("want 5 round trips, have %v, %v", took, err)
	}
}

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
