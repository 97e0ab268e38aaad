package asynqdiff

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

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
	{"drops a header", "headers", func(_ redis.UniversalClient, _ *asynq.Config, h asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			delete(t.Headers(), "trace")
			return h.ProcessTask(ctx, t)
		})
	}},
	{"leaves a key behind", "a handler returns nil", func(client redis.UniversalClient, _ *asynq.Config, h asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			return errors.Join(h.ProcessTask(ctx, t), client.Set(ctx, "left:"+id, "behind", 0).Err())
		})
	}},
	{"runs too many at once", "as many tasks at once as it may", func(_ redis.UniversalClient, c *asynq.Config, h asynq.Handler) asynq.Handler {
		c.Concurrency++
		return h
	}},
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
