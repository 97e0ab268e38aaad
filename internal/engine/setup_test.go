package engine

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/proc"
)

// A logbook keeps what was logged.
type logbook struct{ proc.Output }

func (l *logbook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// count returns how many lines have a text.
func (l *logbook) count(text string) int {
	n := 0
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// A memory is a Redis in memory for tests in bubbles, and a network to it that fails.
type memory struct {
	*redis.Client

	mini  *miniredis.Miniredis
	away  atomic.Bool // nobody can connect
	hole  atomic.Bool // all packets are lost
	dials atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
}

func newMemory(t *testing.T) *memory {
	t.Helper()
	m := &memory{mini: miniredis.NewMiniRedis()}
	m.Client = redis.NewClient(&redis.Options{
		Addr:                  "127.0.0.1:1", // a name would be looked up, outside of the bubble
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return m.dial() },
	})
	t.Cleanup(func() {
		_ = m.Close()
		m.mini.Close()
	})
	return m
}

func (m *memory) dial() (net.Conn, error) {
	m.dials.Add(1)
	if m.away.Load() {
		return nil, errors.New("nobody is there")
	}
	conn, err := m.mini.Dial()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns = append(m.conns, conn)
	return &lossy{Conn: conn, lose: &m.hole}, nil
}

// cut closes all connections.
func (m *memory) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, conn := range m.conns {
		_ = conn.Close()
	}
	m.conns = nil
}

// A lossy connection takes what is written, and passes nothing on, while it loses packets.
type lossy struct {
	net.Conn

	lose *atomic.Bool
}

func (l *lossy) Write(p []byte) (int, error) {
	if l.lose.Load() {
		return len(p), nil
	}
	return l.Conn.Write(p)
}

func (l *lossy) Read(p []byte) (int, error) {
	for {
		n, err := l.Conn.Read(p)
		if err != nil || !l.lose.Load() {
			return n, err
		}
	}
}
