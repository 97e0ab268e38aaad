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

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// cutShort shuts a server down whose handler of a task goes on, and returns what is closed when Shutdown has
// returned. The context of the handler has ended by then.
func (b *bundle) cutShort(t *testing.T, s *queue.Server, g *gate) (done chan struct{}) {
	t.Helper()
	done = make(chan struct{})
	go func() {
		defer close(done)
		shutdown(t, s)
	}()
	within(t, patience, "the handler's context to end", g.ended)
	return done
}

// failOnce makes the first run of job n fail.
func (s *stage) failOnce(n int) {
	failed := false
	s.act(n, func() error {
		if !failed {
			failed = true
			return context.Canceled
		}
		return nil
	})
}

// A shutdown in mid-task: the task stays at work and keeps its lock until its handler has returned, and
// Shutdown waits for that. If the handler has finished its work by then, the task is done. Otherwise it comes
// again before those who came after it, also if it has a priority, and uses no retry.
func TestShutdownInMidTask(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fails    bool
		priority int
		order    []int
	}{
		"it succeeds":               {order: []int{0, 1}},
		"it fails":                  {fails: true, order: []int{0, 0, 1}},
		"it fails, with a priority": {fails: true, priority: 3, order: []int{0, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st := newStage(t)
				s := b.serve(t, queue.ServerConfig{}, st.run)
				if tt.fails {
					st.failOnce(0)
				}
				zombie, id := b.begin(t, st, 0, queue.Options{Retries: queue.NoRetries, Priority: tt.priority})
				next := b.enqueueWaiter(t, 1, 1, queue.Options{})
				held := b.value(t)
				done := b.cutShort(t, s, zombie)
				steadily(t, 300*time.Millisecond, "the lock held, the task at work and the shutdown waiting", func() bool {
					return !isClosed(done) && held != "" && b.value(t) == held && b.state(id) == asynq.TaskStateActive
				})
				zombie.open()
				within(t, patience, "the shutdown", done)
				if v := b.value(t); v != "" {
					t.Errorf("lock: want it free, have %q", v)
				}
				if have := b.state(next); have != asynq.TaskStateRetry {
					t.Errorf("the next: want it to wait on, have %v", have)
				}
				if tt.fails {
					b.wantWaiters(t, id, next)
					if info := b.awaitState(t, id, asynq.TaskStateRetry); info.Retried != 0 {
						t.Errorf("want no retry used, have %+v", info)
					}
				}
				b.serve(t, queue.ServerConfig{}, st.run)
				b.awaitGone(t, id, next)
				st.wantOrder(tt.order...)
			})
		})
	}
}

// Shutdown returns at its hard deadline, with a handler that never returns and
// with a Redis that does not answer.
func TestShutdownAtTheHardDeadline(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"handler": false, "redis gone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, server := setupAlone(t)
			st := newStage(t)
			s := b.newServer(t, queue.ServerConfig{Lock: lock.Config{TTL: time.Second}})
			queue.Handle(s, st.run)
			must(t, s.Start(t.Context()))
			holder := b.occupy(t, st)
			t.Cleanup(func() {
				server.Resume()
				_ = queue.ClientOf(s).Close() // which a process that ends does not wait for
			})
			if gone {
				server.Pause()
				within(t, patience, "the holder to give up", holder.ended)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			start := time.Now()
			const want = "queue: shutdown: tasks are still running: context deadline exceeded"
			if err := s.Shutdown(ctx); fmt.Sprint(err) != want {
				t.Errorf("want %q, have %v", want, err)
			}
			if took := time.Since(start); took > promised(4*time.Second) {
				t.Errorf("want it to return after 2 s, have %v", took)
			}
			if err := s.Shutdown(t.Context()); err != nil {
				t.Errorf("a second one: want nil, have %v", err)
			}
		})
	}
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
	for name, set := range map[string]func(cfg *queue.ServerConfig, block func()){
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, server := setupAlone(t)
			st := newStage(t)
			blocked, until := make(chan struct{}), make(chan struct{})
			var cfg queue.ServerConfig
			if set != nil {
				var once sync.Once
				set(&cfg, func() {
					once.Do(func() { close(blocked) })
					<-until
				})
			}
			s := b.newServer(t, cfg)
			queue.Handle(s, st.run)
			must(t, s.Start(t.Context()))
			defer close(until)
			b.awaitGone(t, b.enqueue(t, b.job(0)))
			if set == nil {
				server.Pause()
				defer server.Resume()
			} else {
				_, err := asynq.NewClientFromRedisClient(b.rdb).Enqueue(asynq.NewTask("a", nil), asynq.Queue(b.queue), asynq.Group("g"))
				must(t, errors.Join(err, b.rdb.HSet(t.Context(), "siding:limits:lock:", "a", "no limit").Err()))
				within(t, patience, "the function", blocked)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := s.Shutdown(ctx)
			if took := time.Since(start); took > promised(2*time.Second) {
				t.Errorf("want it to return after half a second, have %v", took)
			}
			const want = "queue: shutdown: no task runs any more, but the server still waits for a function of the program, " +
				"such as a GroupAggregator or Observe, or for Redis: context deadline exceeded"
			if fmt.Sprint(err) != want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("want %q, have %v", want, err)
			}
			if err := s.Locker().Do(t.Context(), b.resource, nil, nothing); !errors.Is(err, lock.ErrClosed) {
				t.Errorf("locker: want it closed, have %v", err)
			}
			if err := queue.ClientOf(s).Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
				t.Errorf("client: want it closed, have %v", err)
			}
		})
	}
}

// A task that a shutdown gives back is first in its line. Its own position does not keep it from its
// lock, whatever its policy.
func TestShutdownWithAPolicy(t *testing.T) {
	t.Parallel()
	for name, p := range actsByPolicy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j := setup(t), newStage(t), &journal{}
			s := b.serve(t, queue.ServerConfig{}, st.run)
			zombie := st.hold(0)
			st.failOnce(0)
			id := b.enqueue(t, b.job(0), queue.Options{Policy: &p})
			within(t, patience, "the holder", zombie.entered)
			done := b.cutShort(t, s, zombie)
			zombie.open()
			within(t, patience, "the shutdown", done)
			b.serve(t, queue.ServerConfig{Observe: j.observe}, st.run)
			begin := time.Now()
			b.awaitEnd(t, id)
			st.wantOrder(0, 0)
			wantSoon(t, begin, "want it run at once")
		})
	}
}
