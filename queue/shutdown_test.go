package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/telemetry"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// cutShort shuts a server down whose handler of a task goes on, and returns what is closed when Shutdown has
// returned. The context of the handler has ended by then.
func (b *bundle) cutShort(s *queue.Server, g *gate) (done chan struct{}) {
	b.Helper()
	done = make(chan struct{})
	go func() {
		defer close(done)
		shutdown(b, s)
	}()
	within(b, patience, "the handler's context to end", g.ended)
	return done
}

// givenBack returns job 0, whose first run has failed as the server shut down.
func (b *bundle) givenBack(s *queue.Server, o queue.Options) (id string) {
	b.Helper()
	b.failOnce(0, context.Canceled)
	held, id := b.begin(0, o)
	done := b.cutShort(s, held)
	held.open()
	within(b, patience, "the shutdown", done)
	return id
}

// A shutdown in mid-task: the task stays at work and keeps its lock until its handler has returned, and
// Shutdown waits for that. If the handler has finished its work by then, the task is done. Otherwise it comes
// again before those who came after it, also if it has a priority, and uses no retry.
func TestShutdownInMidTask(t *testing.T) {
	t.Parallel()
	type row struct {
		fails    bool
		priority int
		order    []int
	}
	eachOf(t, onBoth, map[string]row{
		"it succeeds":               {order: []int{0, 1}},
		"it fails":                  {fails: true, order: []int{0, 0, 1}},
		"it fails, with a priority": {fails: true, priority: 3, order: []int{0, 0, 1}},
	}, func(b *bundle, tt row) {
		s := b.serve(queue.ServerConfig{}, b.run)
		if tt.fails {
			b.failOnce(0, context.Canceled)
		}
		zombie, id := b.begin(0, queue.Options{Retries: queue.NoRetries, Priority: tt.priority})
		next := b.enqueueWaiter(1, 1, queue.Options{})
		held := b.value()
		done := b.cutShort(s, zombie)
		steadily(b, 300*time.Millisecond, "the lock held, the task at work and the shutdown waiting", func() bool {
			return !isClosed(done) && held != "" && b.value() == held && b.state(id) == asynq.TaskStateActive
		})
		zombie.open()
		within(b, patience, "the shutdown", done)
		expect.Equal(b, "lock", b.value(), "")
		expect.Equal(b, "the next", b.state(next), asynq.TaskStateRetry)
		if tt.fails {
			b.wantWaiters(id, next)
			expect.Equal(b, "retries used", b.awaitState(id, asynq.TaskStateRetry).Retried, 0)
		}
		b.serve(queue.ServerConfig{}, b.run)
		b.awaitGone(id, next)
		b.wantOrder(tt.order...)
	})
}

// A run whose task a shutdown puts back is no failed one, also of a task without a resource.
func TestShutdownIsNoFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun := make(chan struct{}, 2)
	work := func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	s := b.newServer(queue.ServerConfig{Observe: b.observe})
	queue.Handle(s, func(ctx context.Context, _ job) error { return work(ctx) })
	queue.Handle(s, func(ctx context.Context, _ note) error { return work(ctx) })
	expect.OK(t, s.Start(t.Context()))
	ids := map[queue.EventKind]string{queue.EventReleased: b.enqueue(b.job(1)), queue.EventFinished: b.enqueue(note{})}
	within(t, patience, "a handler", begun)
	within(t, patience, "the other handler", begun)
	shutdown(t, s)
	for kind, id := range ids {
		err := b.await(kind, id, 1).Err
		expect.Equal(t, kind.String(), telemetry.Outcome(err, false), telemetry.Snoozed)
		expect.Is(t, kind.String(), err, context.Canceled)
		expect.Equal(t, "retries used", b.info(id).Retried, 0)
	}
}

// Shutdown returns at its hard deadline, with a handler that never returns and
// with a Redis that does not answer.
func TestShutdownAtTheHardDeadline(t *testing.T) {
	t.Parallel()
	eachOf(t, onAlone, map[string]bool{"handler": false, "redis gone": true}, func(b *bundle, gone bool) {
		s := b.newJobServer(queue.ServerConfig{Lock: lock.Config{TTL: time.Second}})
		expect.OK(b, s.Start(b.Context()))
		holder := b.occupy()
		b.Cleanup(func() {
			b.server.Resume()
			_ = queue.ClientOf(s).Close() // which a process that ends does not wait for
		})
		if gone {
			b.server.Pause()
			within(b, patience, "the holder to give up", holder.ended)
		}
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		const want = "queue: shutdown: tasks are still running: context deadline exceeded"
		expect.Equal(b, "shutdown", fmt.Sprint(s.Shutdown(ctx)), want)
		took := time.Since(start)
		expect.That(b, took <= promised(4*time.Second), "want it to return after 2 s, have %v", took)
		expect.OK(b, s.Shutdown(b.Context())) // a second one
	})
}

// A blocking handler of logs calls a function at a message that begins with a text.
type blocking struct {
	slog.Handler

	at    string
	block func()
}

func (b blocking) Enabled(context.Context, slog.Level) bool { return true }

func (b blocking) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, b.at) {
		b.block()
	}
	return nil
}

// A shutdown whose time is over while no task runs any more says so, and closes all the same: a function of the
// user has not returned, or Redis does not answer.
func TestShutdownWithoutTasksAtTheHardDeadline(t *testing.T) {
	t.Parallel()
	eachOf(t, onAlone, map[string]func(cfg *queue.ServerConfig, block func()){
		"GroupAggregator": func(cfg *queue.ServerConfig, block func()) {
			cfg.Asynq.GroupGracePeriod = time.Second
			cfg.Asynq.GroupAggregator = asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task { block(); return asynq.NewTask("a", nil) })
		},
		"HealthCheckFunc": func(cfg *queue.ServerConfig, block func()) {
			cfg.Asynq.HealthCheckInterval, cfg.Asynq.HealthCheckFunc = glance, func(error) { block() }
		},
		"Observe": func(cfg *queue.ServerConfig, block func()) {
			cfg.Observe = func(e queue.Event) {
				if e.Kind == queue.EventReleased {
					block()
				}
			}
		},
		"Logger": func(cfg *queue.ServerConfig, block func()) {
			cfg.Logger = slog.New(blocking{slog.DiscardHandler, "limits that operators", block})
		},
		"Redis": nil,
	}, func(b *bundle, set func(cfg *queue.ServerConfig, block func())) {
		blocked, until := make(chan struct{}), make(chan struct{})
		var cfg queue.ServerConfig
		if set != nil {
			var once sync.Once
			set(&cfg, func() {
				once.Do(func() { close(blocked) })
				<-until
			})
		}
		s := b.newJobServer(cfg)
		expect.OK(b, s.Start(b.Context()))
		defer close(until)
		b.awaitGone(b.enqueue(b.job(0)))
		if set == nil {
			b.server.Pause()
			defer b.server.Resume()
		} else {
			_, err := asynq.NewClientFromRedisClient(b.rdb).Enqueue(asynq.NewTask("a", nil), asynq.Queue(b.queue), asynq.Group("g"))
			expect.OK(b, errors.Join(err, b.rdb.HSet(b.Context(), "siding:limits:lock:", "a", "no limit").Err()))
			within(b, patience, "the function", blocked)
		}
		ctx, cancel := context.WithTimeout(b.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := s.Shutdown(ctx)
		took := time.Since(start)
		expect.That(b, took <= promised(2*time.Second), "want it to return after half a second, have %v", took)
		const want = "queue: shutdown: no task runs any more, but the server still waits for a function of the program, " +
			"such as a GroupAggregator or Observe, or for Redis: context deadline exceeded"
		expect.That(b, fmt.Sprint(err) == want && errors.Is(err, context.DeadlineExceeded), "want %q, have %v", want, err)
		expect.Is(b, "locker", s.Locker().Do(b.Context(), b.resource, nil, nothing), lock.ErrClosed)
		expect.Is(b, "client", queue.ClientOf(s).Ping(b.Context()).Err(), redis.ErrClosed)
	})
}
