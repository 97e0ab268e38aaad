package queue_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// serveUnguarded starts a plain asynq server that runs jobs without their locks. The returned function
// stops it.
func (b *bundle) serveUnguarded(t *testing.T, queueName string, fn func(context.Context, job) error) (stop func()) {
	t.Helper()
	client := queue.Redis(b.opts)
	t.Cleanup(func() { _ = client.Close() })
	server := asynq.NewServerFromRedisClient(client, asynq.Config{
		Queues: map[string]int{queueName: 1}, Concurrency: 10,
		TaskCheckInterval: 10 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond,
		ShutdownTimeout: patience, LogLevel: asynq.FatalLevel,
	})
	must(t, server.Start(handlerOf(fn)))
	t.Cleanup(server.Shutdown)
	return server.Shutdown
}

// serving returns how many servers of the bundle's queue say that they are guarded, and how many
// do not.
func (b *bundle) serving(t *testing.T) (guarded, unguarded int) {
	t.Helper()
	servers, err := taskredis.Servers(t.Context(), b.rdb)
	must(t, err)
	for _, s := range servers {
		switch {
		case len(s.Queues) != 1 || s.Queues[b.queue] == 0:
		case s.Guarded:
			guarded++
		default:
			unguarded++
		}
	}
	return guarded, unguarded
}

// unguardedFindings returns what CheckRedis says of unguarded servers of the bundle's queue.
func (b *bundle) unguardedFindings(t *testing.T) []queue.Finding {
	t.Helper()
	found, err := queue.CheckRedis(t.Context(), b.rdb)
	must(t, err)
	var ours []queue.Finding
	for _, f := range found {
		if f.Trait == "unguarded server" && strings.Contains(f.Have, b.queue) {
			ours = append(ours, f)
		}
	}
	return ours
}

// CheckRedis names the servers that take no locks and serve queues of guarded servers. It does not
// name servers that use the Redis for something else.
func TestCheckRedisUnguarded(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]func(*testing.T) *bundle{
		"one Redis": func(t *testing.T) *bundle {
			t.Helper()
			s := redistest.Start(t, "--appendonly", "yes")
			return setupOn(t, redis.UniversalOptions{Addrs: []string{s.Addr}})
		},
		"cluster": func(t *testing.T) *bundle {
			t.Helper()
			return setupOn(t, redis.UniversalOptions{Addrs: redistest.StartCluster(t, 3).Addrs})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			nothing := func(context.Context, job) error { return nil }
			stop := b.serveUnguarded(t, b.queue, nothing)
			b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{b.queue + ".other": 1}}}, nothing)
			poll.Eventually(t, "the plain server", func() bool { _, unguarded := b.serving(t); return unguarded == 1 })
			if have := b.unguardedFindings(t); len(have) > 0 {
				t.Errorf("want a Redis with plain asynq left alone, have %v", have)
			}
			b.serve(t, queue.ServerConfig{}, nothing)
			poll.Eventually(t, "the guarded server", func() bool { guarded, _ := b.serving(t); return guarded == 1 })
			have := b.unguardedFindings(t)
			if len(have) != 1 || !strings.HasSuffix(have[0].Have, "), queues: "+b.queue) || have[0].Server != "" || have[0].Advice == "" {
				t.Errorf("want the plain server, its queue, and advice, have %+v", have)
			}
			stop()
			if have := b.unguardedFindings(t); len(have) > 0 {
				t.Errorf("want nothing once it has gone, have %v", have)
			}
		})
	}
}
