package asynqdiff

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// A subject is a server that runs asynq's tasks.
type subject interface {
	// String names the subject.
	String() string
	// start runs a server on a client that redis makes. The server or the subject closes that client in Shutdown.
	start(tb testing.TB, redis asynq.RedisConnOpt, cfg asynq.Config, h asynq.Handler) running
}

// running is a server that has been started, with asynq's meaning of both.
type running interface {
	Stop()
	Shutdown()
}

// subjects are compared with the oracle, which must be equal to itself, too. A new server gets a file of its own,
// with its implementation of subject, and an entry here.
var subjects = []subject{
	oracle, ours{},
}

// oracle is asynq's own server.
var oracle subject = asynqServer{}

type asynqServer struct{}

func (asynqServer) String() string { return "asynq" }

func (asynqServer) start(tb testing.TB, redis asynq.RedisConnOpt, cfg asynq.Config, h asynq.Handler) running {
	tb.Helper()
	s := asynq.NewServer(redis, cfg)
	expect.OK(tb, s.Start(h))
	return s
}

// A wire has the connections of one server, and can be cut: the end of the server as others see it. It is an
// asynq.RedisConnOpt.
type wire struct {
	addr string
	db   int

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

// MakeRedisClient returns a client on the wire.
func (w *wire) MakeRedisClient() any {
	return redis.NewClient(&redis.Options{Addr: w.addr, DB: w.db, Dialer: w.dial, DialerRetries: 1})
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	w.conns = append(w.conns, conn)
	return conn, nil
}

// cut ends all connections, and there are no new ones.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for _, conn := range w.conns {
		_ = conn.Close()
	}
}
