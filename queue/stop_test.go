package queue_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/queue"
)

// A server that was stopped takes no more tasks. Those that run go on, and Shutdown waits for them.
func TestStop(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	s := b.newServer(t, queue.ServerConfig{Asynq: asynq.Config{ShutdownTimeout: patience}})
	s.Stop() // before a Start it does nothing
	queue.Handle(s, st.run)
	must(t, s.Start(t.Context()))
	holder := b.occupy(t, st)
	waiting := b.park(t, 1)
	s.Stop()
	s.Stop() // nor does it a second time
	late := b.enqueue(t, job{Res: b.resource + ".other", N: 2})
	steadily(t, 1500*time.Millisecond, "no task taken", func() bool { return b.state(late) == asynq.TaskStatePending && len(st.order()) == 1 })
	done := make(chan struct{})
	go func() {
		defer close(done)
		shutdown(t, s)
	}()
	steadily(t, 300*time.Millisecond, "Shutdown waiting for the one that runs", func() bool { return !isClosed(done) })
	holder.open()
	within(t, patience, "the shutdown", done)
	s.Stop() // nor after the end
	st.wantOrder(0)
	b.serve(t, queue.ServerConfig{}, st.run)
	b.awaitGone(t, append(waiting, late)...)
}

// Servers on a client of somebody else's share it, and leave it open.
func TestServersShareAClient(t *testing.T) {
	t.Parallel()
	for name, newServer := range map[string]func(*bundle, queue.ServerConfig) (*queue.Server, error){
		"from a client": func(b *bundle, cfg queue.ServerConfig) (*queue.Server, error) {
			return queue.NewServerFromRedisClient(b.rdb, cfg)
		},
		"from options of a foreign type": func(b *bundle, cfg queue.ServerConfig) (*queue.Server, error) {
			return queue.NewServer(connOf(func() any { return b.rdb }), cfg)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st := newStage(t)
				var servers []*queue.Server
				for range 2 {
					s, err := newServer(b, queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{b.queue: 1}}, Logger: newLogs(t).logger})
					must(t, err)
					queue.Handle(s, st.run)
					must(t, s.Start(t.Context()))
					servers = append(servers, s)
				}
				b.awaitGone(t, b.enqueue(t, b.job(0)))
				shutdown(t, servers[0])
				b.awaitGone(t, b.enqueue(t, b.job(1)))
				shutdown(t, servers[1])
				if err := b.rdb.Ping(t.Context()).Err(); err != nil {
					t.Errorf("want the client open, have %v", err)
				}
				st.wantOrder(0, 1)
			})
		})
	}
}
