package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// A bubble is an aggregation on a Redis in memory.
type bubble struct {
	*aggregation
	*memory

	log *logbook
	end func() // cancels run and waits for it
}

func newBubble(t *testing.T) *bubble {
	t.Helper()
	return &bubble{memory: newMemory(t), log: &logbook{}}
}

func (b *bubble) start(t *testing.T, cfg Config, queues ...string) {
	t.Helper()
	cfg.Redis, cfg.Logger = b.memory, b.log.logger()
	cfg = cfg.withDefaults()
	b.aggregation = newAggregation(&cfg, queues)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	b.end = func() {
		cancel()
		<-done
	}
	t.Cleanup(b.end)
	go func() {
		defer close(done)
		b.run(ctx)
	}()
}

// startAggregation starts one of the queue "default".
func startAggregation(t *testing.T, cfg Config) *bubble {
	t.Helper()
	b := newBubble(t)
	b.start(t, cfg, "default")
	return b
}

// eachSecond has groups looked at each second.
func eachSecond(f asynq.GroupAggregatorFunc) Config {
	return Config{GroupGracePeriod: time.Second, GroupAggregator: f}
}

func (b *bubble) put(t *testing.T, group string, n int, opts ...asynq.Option) {
	t.Helper()
	for i := range n {
		task := asynq.NewTask("mail", fmt.Append(nil, "payload ", i))
		expect.OK(t, expect.Err(asynq.NewClientFromRedisClient(b.memory).EnqueueContext(t.Context(), task, append(opts, asynq.Group(group))...)))
	}
}

func (b *bubble) pending(t *testing.T) int64 {
	t.Helper()
	return b.LLen(t.Context(), taskredis.PendingKey("default")).Val()
}

// Groups are looked at every 7 s, or more often if the grace period is shorter.
func TestAggregationInterval(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		cfg  Config
		want time.Duration
	}{
		{Config{GroupMaxSize: 2}, 7 * time.Second},
		{Config{GroupGracePeriod: 2 * time.Second}, 2 * time.Second},
		{Config{GroupGracePeriod: 4 * time.Second}, 4 * time.Second},
		{Config{}, 63 * time.Second}, // the grace period is a minute
		{Config{GroupGracePeriod: time.Hour, GroupMaxDelay: 10 * time.Second}, 14 * time.Second},
	} {
		t.Run(fmt.Sprint(tc.want), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var took atomic.Int64
				tc.cfg.GroupAggregator = asynq.GroupAggregatorFunc(func(_ string, tasks []*asynq.Task) *asynq.Task {
					took.Store(int64(time.Since(began)))
					return asynq.NewTask(fmt.Sprint(len(tasks)), nil)
				})
				b := startAggregation(t, tc.cfg)
				b.put(t, "g", 2)
				time.Sleep(2 * time.Minute)
				have, after := b.pending(t), time.Duration(took.Load())
				expect.That(t, after == tc.want && have == 1, "want one task after %v, have %d after %v", tc.want, have, after)
				b.end()
			})
		})
	}
}

// A server whose user has no aggregator leaves groups alone, and reclaims as all do.
func TestAggregationOfNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startAggregation(t, Config{})
		b.put(t, "g", 3)
		time.Sleep(2 * time.Minute)
		set, err := b.groups.Take(t.Context(), "default", "g", b.rule)
		expect.Need(t, set != nil && err == nil, "want the group taken, have %v, %v", set, err)
		time.Sleep(10 * time.Minute)
		n := b.ZCard(t.Context(), "asynq:{default}:g:g").Val()
		expect.That(t, n == 3 && b.pending(t) == 0 && b.log.String() == "", "want three tasks in their group, have %d and:\n%v", n, b.log)
	})
}

// Three rounds may wait for the user's function. At the end of the server the groups in hand are done, and no others.
func TestAggregationsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Int64
		release := make(chan struct{})
		b := startAggregation(t, eachSecond(func(string, []*asynq.Task) *asynq.Task {
			now.Add(1)
			defer now.Add(-1)
			<-release
			return asynq.NewTask("joined", nil)
		}))
		for i := range 6 {
			b.put(t, fmt.Sprint("g", i), 1)
		}
		time.Sleep(30 * time.Second)
		expect.That(t, now.Load() == 3 && b.log.count("earlier aggregations take long") == 1 && b.log.count("") == 1, "want three at once and one line, have %d and:\n%v", now.Load(), b.log)
		ended := make(chan struct{})
		go func() {
			b.end()
			close(ended)
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("want the end to wait for the groups in hand")
		default:
		}
		close(release)
		<-ended
		have := b.pending(t)
		expect.That(t, have == 3, "want the three groups in hand done, have %d", have)
		left := b.SCard(t.Context(), "asynq:{default}:groups").Val()
		expect.That(t, left == 3, "want three groups left, have %d", left)
	})
}

// After the time of a set its tasks are another server's, and a late aggregated task is not enqueued.
func TestAggregationThatTakesTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var times []time.Duration
		began := time.Now()
		b := startAggregation(t, eachSecond(func(string, []*asynq.Task) *asynq.Task {
			mu.Lock()
			times = append(times, time.Since(began))
			first := len(times) == 1
			mu.Unlock()
			if first {
				time.Sleep(4*time.Minute + time.Second/2)
			}
			return asynq.NewTask("joined", nil)
		}))
		b.put(t, "g", 3)
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		// Taken after a second, it is stale after 2 min 1 s. Reclaims are at each full minute.
		want := []time.Duration{time.Second, 3*time.Minute + time.Second}
		expect.That(t, len(times) == 2 && times[0] == want[0] && times[1] <= want[1] && times[1] >= want[1]-time.Second, "want the group aggregated after %v, have %v", want, times)
		have := b.pending(t)
		expect.That(t, have == 1 && b.log.count("may not be enqueued") == 1 && b.log.count("") == 1, "want one task and one line, have %d and:\n%v", have, b.log)
	})
}
