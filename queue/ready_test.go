package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// wantReady waits until the server is ready, or not for a reason with this text in it.
func wantReady(tb testing.TB, s *queue.Server, reason string) {
	tb.Helper()
	expect.Eventually(tb, "ready, or not: "+reason, func() bool {
		err := s.Ready(tb.Context())
		return reason == "" && err == nil || reason != "" && err != nil && strings.Contains(err.Error(), reason)
	})
}

func TestReady(t *testing.T) {
	t.Parallel()
	const noLocks = "no right to locks"
	for name, tt := range map[string]struct {
		spoil, mend []any // commands
		want        string
	}{
		"replica":        {[]any{"replicaof", "127.0.0.1", "1"}, []any{"replicaof", "no", "one"}, "redis refuses: "},
		"full":           {[]any{"config", "set", "maxmemory", "1"}, []any{"config", "set", "maxmemory", "0"}, "OOM"},
		"too few copies": {[]any{"config", "set", "min-replicas-to-write", "1"}, []any{"config", "set", "min-replicas-to-write", "0"}, "NOREPLICAS"},
		"no right to a key": {
			[]any{"acl", "setuser", "default", "resetkeys", "~lock:*", "~{lock:*", "~siding:*"},
			[]any{"acl", "setuser", "default", "~*"},
			"redis refuses: ",
		},
		"no right to a command": {[]any{"acl", "setuser", "default", "-rpoplpush"}, []any{"acl", "setuser", "default", "+rpoplpush"}, "redis refuses: "},
		noLocks:                 {[]any{"acl", "setuser", "default", "resetkeys", "~asynq:*", "~siding:*"}, []any{"acl", "setuser", "default", "~*"}, "no lock can be taken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupAlone(t)
			s := b.serve(queue.ServerConfig{}, func(context.Context, job) error { return nil })
			wantReady(t, s, "")
			b.do(tt.spoil...)
			wantReady(t, s, tt.want)
			next := b.newServer(queue.ServerConfig{Handler: asynq.NotFoundHandler()})
			// One that could take tasks starts; they wait for the locks.
			if err := next.Start(t.Context()); name != noLocks && (err == nil || !strings.Contains(err.Error(), tt.want)) || name == noLocks && err != nil {
				t.Errorf("start: want %q, have %v", tt.want, err)
			}
			shutdown(t, next)
			b.do(tt.mend...)
			wantReady(t, s, "")
		})
	}
}

// do sends Redis a command.
func (b *bundle) do(args ...any) {
	b.Helper()
	if err := b.rdb.Do(b.Context(), args...).Err(); err != nil {
		b.Fatalf("%v: %v", args, err)
	}
}

// To ask whether tasks can be taken takes none, and leaves nothing but a fence behind.
func TestReadyLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	on(t, map[string]func(*testing.T) *bundle{"one server": setupAlone, "cluster": setupCluster}, func(b *bundle) {
		id := b.enqueue(b.job(1))
		before := b.rdb.Keys(b.Context(), "*").Val()
		s := b.newServer(queue.ServerConfig{Shards: map[string]int{b.queue: 2}})
		b.Cleanup(func() { shutdown(b, s) })
		for range 3 {
			expect.OK(b, s.Ready(b.Context()))
		}
		for _, key := range b.rdb.Keys(b.Context(), "*").Val() {
			expect.That(b, slices.Contains(before, key) || strings.HasSuffix(key, ":fence"), "want no new key, have %s", key)
		}
		expect.Equal(b, "pending tasks, such as "+id, b.stats().Pending, 1)
	})
}

var errFull = errors.New("disk is full")

// While something is missing that all tasks need, no task uses a retry, and few are taken. Once
// that is there again, all tasks succeed.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		const tasks = 60
		var runs, asked atomic.Int64
		var full atomic.Bool
		full.Store(true)
		logs := newLogs(b)
		s := b.newServer(queue.ServerConfig{Logger: logs.logger, Available: func(context.Context) error {
			asked.Add(1)
			if full.Load() {
				return errFull
			}
			return nil
		}})
		work := func() error {
			runs.Add(1)
			if full.Load() {
				// Permanent does not archive a task that is not to blame.
				return queue.Unavailable(queue.Permanent(fmt.Errorf("write: %w", errFull)))
			}
			return nil
		}
		queue.Handle(s, func(context.Context, job) error { return work() })
		queue.Handle(s, func(context.Context, note) error { return work() })
		ids := make([]string, tasks)
		for i := range ids {
			opts := queue.Options{Retention: time.Hour, Retries: queue.NoRetries}
			if i%3 == 0 {
				ids[i] = b.enqueue(note{}, opts)
			} else {
				ids[i] = b.enqueue(job{Res: fmt.Sprint(b.resource, i%10)}, opts)
			}
		}
		start(b, s)
		// Several steps go by, in each of which all tasks could have been taken.
		expect.Eventually(b, "three looks", func() bool { return asked.Load() >= 3 })
		// When the first task failed, each of 20 workers had a task under way. The server was about
		// to take a few more.
		have := runs.Load()
		expect.That(b, have > 0 && have <= tasks-10, "want no tasks taken after the first ones, have %d runs", have)
		wantReady(b, s, "disk is full")
		if have := b.stats(); have.Archived+have.Completed > 0 {
			b.Errorf("want no task ended, have %+v", have)
		}
		full.Store(false)
		for _, id := range ids {
			expect.Equal(b, "retries used by "+id, b.awaitState(id, asynq.TaskStateCompleted).Retried, 0)
		}
		wantReady(b, s, "")
		for _, want := range []string{"no tasks are taken", "tasks are taken again"} {
			logs.once(b, want)
		}
	})
}

// Without an Available, tasks are tried again after a second.
func TestUnavailableForOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var runs atomic.Int64
	b.serve(queue.ServerConfig{}, func(context.Context, job) error {
		if runs.Add(1) == 1 {
			return queue.Unavailable(errFull)
		}
		return nil
	})
	id := b.enqueue(b.job(1), queue.Options{Retention: time.Hour, Retries: queue.NoRetries})
	expect.Equal(t, "retries used", b.awaitState(id, asynq.TaskStateCompleted).Retried, 0)
	expect.Equal(t, "runs", runs.Load(), 2)
	expect.That(t, queue.Unavailable(nil) == nil, "want nil of nil")
}

// A server that takes no tasks shuts down as any other.
func TestShutdownWhileUnavailable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	queues := map[string]int{b.queue: 1}
	for n := range 100 {
		queues[fmt.Sprintf("%s.%d", b.queue, n)] = 1
	}
	s := b.serve(queue.ServerConfig{
		Asynq:     asynq.Config{Queues: queues},
		Available: func(context.Context) error { return errFull },
	}, func(context.Context, job) error { return queue.Unavailable(errFull) })
	b.enqueue(b.job(1))
	wantReady(t, s, "no tasks are taken")
	begin := time.Now()
	shutdown(t, s)
	took := time.Since(begin)
	expect.That(t, took <= 50*time.Second, "want one of 100 queues held back, have the shutdown take %v", took)
	have := b.stats()
	expect.That(t, have.Size == 1 && have.Active == 0, "want the task in its place again, have %+v", have)
}
