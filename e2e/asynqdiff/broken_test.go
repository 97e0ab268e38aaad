package asynqdiff

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// A broken subject is asynq's server with a fault, which the comparison has to find.
type broken struct {
	fault string
	finds string // the scenario that finds it
	// breaks changes how asynq's server is called. It may change c, and returns the handler to call instead of h.
	breaks func(client redis.UniversalClient, c *asynq.Config, h asynq.Handler) asynq.Handler
}

func (b broken) String() string { return b.fault }

func (b broken) start(tb testing.TB, opt asynq.RedisConnOpt, c asynq.Config, h asynq.Handler) running {
	tb.Helper()
	client, ok := opt.MakeRedisClient().(redis.UniversalClient)
	expect.Need(tb, ok, "want a client of Redis")
	tb.Cleanup(func() { _ = client.Close() })
	return oracle.start(tb, opt, c, b.breaks(client, &c, h))
}

var brokenSubjects = []broken{
	{"doubles a delay", "an error is retried", func(_ redis.UniversalClient, c *asynq.Config, h asynq.Handler) asynq.Handler {
		delay := c.RetryDelayFunc
		c.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration { return 2 * delay(n, err, t) }
		return h
	}},
	{"takes everything for a failure", "no failure", func(_ redis.UniversalClient, c *asynq.Config, h asynq.Handler) asynq.Handler {
		isFailure := c.IsFailure
		c.IsFailure = func(err error) bool { return isFailure(err) || err != nil }
		return h
	}},
	{"forgets the error handler", "an error is retried", func(_ redis.UniversalClient, c *asynq.Config, h asynq.Handler) asynq.Handler {
		c.ErrorHandler = nil
		return h
	}},
	{"wraps an error in its text", "an error is retried", func(_ redis.UniversalClient, _ *asynq.Config, h asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			if err := h.ProcessTask(ctx, t); err != nil {
				return fmt.Errorf("%v", err) //nolint:errorlint // that is the fault
			}
			return nil
		})
	}},
	{"drops a header", "headers", func(_ redis.UniversalClient, _ *asynq.Config, h asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			delete(t.Headers(), "trace")
			return h.ProcessTask(ctx, t)
		})
	}},
	{"shortens a deadline", "timeouts and deadlines", func(_ redis.UniversalClient, _ *asynq.Config, h asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			ctx, cancel := context.WithTimeout(ctx, 9*time.Minute)
			defer cancel()
			return h.ProcessTask(ctx, t)
		})
	}},
	{"hides the values of the context", "a handler returns nil", func(_ redis.UniversalClient, _ *asynq.Config, h asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
			defer cancel()
			return h.ProcessTask(ctx, t)
		})
	}},
	{"starts a task twice", "a handler returns nil", func(_ redis.UniversalClient, _ *asynq.Config, h asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			_ = h.ProcessTask(ctx, t)
			return h.ProcessTask(ctx, t)
		})
	}},
	{"catches panics", "panics", func(_ redis.UniversalClient, _ *asynq.Config, h asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) (err error) {
			defer func() {
				if value := recover(); value != nil {
					err = fmt.Errorf("panic: %v", value)
				}
			}()
			return h.ProcessTask(ctx, t)
		})
	}},
	{"leaves a field behind", "an error is retried", afterwards("HSET", taskredis.TaskKey, "left", "behind")},
	{"counts twice", "a handler returns nil", afterwards("INCR", func(queue, _ string) string { return "asynq:{" + queue + "}:processed" })},
	{"leaves a key behind", "a handler returns nil", afterwards("SET", func(_, id string) string { return "left:" + id }, "behind")},
	{"serves too many queues", "a queue that no server has", func(_ redis.UniversalClient, c *asynq.Config, h asynq.Handler) asynq.Handler {
		c.Queues, c.StrictPriority = map[string]int{"default": 1, "other": 2}, true // the play may end before a server comes to the last one
		return h
	}},
	{"is not strict", "strict priority", func(_ redis.UniversalClient, c *asynq.Config, h asynq.Handler) asynq.Handler {
		c.StrictPriority = false
		return h
	}},
	{"runs too many at once", "as many tasks at once as it may", func(_ redis.UniversalClient, c *asynq.Config, h asynq.Handler) asynq.Handler {
		c.Concurrency++
		return h
	}},
	{"does not wait at its end", "a shutdown waits for a handler", func(_ redis.UniversalClient, c *asynq.Config, h asynq.Handler) asynq.Handler {
		c.ShutdownTimeout = time.Millisecond
		return h
	}},
}

// afterwards sends a command each time when a handler has returned.
func afterwards(command string, key func(queue, id string) string, args ...any) func(redis.UniversalClient, *asynq.Config, asynq.Handler) asynq.Handler {
	return func(client redis.UniversalClient, _ *asynq.Config, h asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			err := h.ProcessTask(ctx, t)
			queue, _ := asynq.GetQueueName(ctx)
			id, _ := asynq.GetTaskID(ctx)
			if err := client.Do(ctx, append([]any{command, key(queue, id)}, args...)...).Err(); err != nil {
				return err
			}
			return err
		})
	}
}

// TestBrokenSubjects wants the comparison to find what a server does otherwise than asynq.
func TestBrokenSubjects(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, b := range brokenSubjects {
		t.Run(b.fault, func(t *testing.T) {
			t.Parallel()
			all := scenarios()
			i := slices.IndexFunc(all, func(s scenario) bool { return s.name == b.finds })
			expect.Need(t, i >= 0, "no scenario %q", b.finds)
			outcomes := l.play(t, all[i], oracle, b)
			if slices.Equal(outcomes[0], outcomes[1]) {
				t.Errorf("%q does not find it:\n%s", b.finds, text(outcomes[0]))
			}
		})
	}
}

// TestJudge wants a difference named where there is to be none, and the lack of one where there is to be one: else all scenarios would pass.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		differs, diff string
		right         bool
	}{
		{"", "", true}, {"", "a line", false}, {"asynq does it", "", false}, {"asynq does it", "a line", true},
	} {
		problem := judge(scenario{differs: tt.differs}, ours{}, tt.diff)
		expect.That(t, (problem == "") == tt.right, "differs %q, difference %q: want it right %t, have %q", tt.differs, tt.diff, tt.right, problem)
	}
}
