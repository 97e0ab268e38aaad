package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A bubble is an aggregation of the queue "default" on a Redis in memory.
type bubble struct {
	*aggregation
	*memory

	log  *logbook
	end  func() // cancels run and waits for it
	done chan struct{}
}

func startAggregation(t *testing.T, cfg Config) *bubble {
	t.Helper()
	b := &bubble{memory: newMemory(t), log: &logbook{}, done: make(chan struct{})}
	cfg.Redis, cfg.Logger = b.memory, b.log.logger()
	cfg = cfg.withDefaults()
	b.aggregation = newAggregation(&cfg, []string{"default"})
	ctx, cancel := context.WithCancel(t.Context())
	b.end = func() {
		cancel()
		<-b.done
	}
	t.Cleanup(b.end)
	go func() {
		defer close(b.done)
		b.run(ctx)
	}()
	return b
}

func (b *bubble) put(t *testing.T, group string, n int) {
	t.Helper()
	for i := range n {
		expect.OK(t, expect.Err(asynq.NewClientFromRedisClient(b.memory).EnqueueContext(t.Context(), asynq.NewTask("mail", fmt.Append(nil, i)), asynq.Group(group))))
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
		b := startAggregation(t, Config{GroupGracePeriod: time.Second, GroupAggregator: asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task {
			now.Add(1)
			defer now.Add(-1)
			<-release
			return asynq.NewTask("joined", nil)
		})})
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
		b := startAggregation(t, Config{GroupGracePeriod: time.Second, GroupAggregator: asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task {
			mu.Lock()
			times = append(times, time.Since(began))
			first := len(times) == 1
			mu.Unlock()
			if first {
				time.Sleep(4*time.Minute + time.Second/2)
			}
			return asynq.NewTask("joined", nil)
		})})
		b.put(t, "g", 3)
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		// Taken after a second, it is stale after 2 min 1 s. Reclaims are at each full minute.
		want := []time.Duration{time.Second, 3*time.Minute + time.Second}
		expect.That(t, len(times) == 2 && times[0] == want[0] && times[1] <= want[1] && times[1] >= want[1]-time.Second, "want the group aggregated after %v, have %v", want, times)
		have := b.pending(t)
		expect.That(t, have == 1 && b.log.count("could not be enqueued") == 1 && b.log.count("") == 1, "want one task and one line, have %d and:\n%v", have, b.log)
	})
}

// While Redis cannot be reached, a group that was taken is read as soon as that works. One whose task is enqueued
// is deleted as soon as that works, and not aggregated again.
func TestAggregationInsists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		b := startAggregation(t, Config{GroupGracePeriod: time.Second, GroupAggregator: asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task {
			calls.Add(1)
			return asynq.NewTask("joined", nil)
		})})
		fault := &failing{key: "asynq:{default}:archived"} // the deletion
		fault.reading.Store(20)
		fault.scripts.Store(60)
		b.AddHook(redistest.Hook(fault.see))
		b.put(t, "g", 3)
		time.Sleep(100 * time.Second) // less than reclaiming takes
		if left := b.Keys(t.Context(), "asynq:{default}:g*").Val(); calls.Load() != 1 || fault.scripts.Load() >= 0 || fault.reading.Load() >= 0 || len(left) != 0 || b.pending(t) != 1 || b.log.String() != "" {
			t.Errorf("want one task and no group, have %d calls, %q left and:\n%v", calls.Load(), left, b.log)
		}
		// It does not hold up the end of the server, though.
		fault.scripts.Store(60)
		b.put(t, "g", 1)
		time.Sleep(3 * time.Second)
		began := time.Now()
		b.end()
		took := time.Since(began)
		expect.That(t, took <= time.Second && b.log.count("aggregated again") == 1, "want the end within a second and a line, have %v and:\n%v", took, b.log)
	})
}

// The master of one queue, and then also that of another one after its groups were listed, passes nothing on. Neither holds up the
// groups of the others for long.
func TestAggregationWithMastersThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, log := newMemory(t), &logbook{}
		var took sync.Map
		cfg := Config{Redis: m, Logger: log.logger(), GroupGracePeriod: time.Second, GroupAggregator: asynq.GroupAggregatorFunc(func(group string, _ []*asynq.Task) *asynq.Task {
			took.Store(group, true)
			return asynq.NewTask("joined", nil)
		})}.withDefaults()
		for _, queue := range []string{"b", "c"} {
			for i := range 10 {
				task := asynq.NewTask("mail", nil)
				expect.OK(t, expect.Err(asynq.NewClientFromRedisClient(m).EnqueueContext(t.Context(), task, asynq.Queue(queue), asynq.Group(fmt.Sprint(queue, i)))))
			}
		}
		m.AddHook(hanging{})
		a := newAggregation(&cfg, []string{"a", "b", "c"})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		go func() { defer close(done); a.run(ctx) }()
		time.Sleep(8 * time.Second)
		_, ok := took.Load("c9")
		expect.That(t, ok, "want the groups of the queue c aggregated within 8 s")
		cancel()
		<-done
	})
}

// A hanging Redis answers no call of the queue a, and of b only the list of its groups.
type hanging struct{}

func (hanging) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hanging) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (hanging) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if call := fmt.Sprint(cmd.Args()...); strings.Contains(call, "{a}") || strings.Contains(call, "{b}") && cmd.Name() != "smembers" {
			<-ctx.Done() // as a client does that tries again and again
			return ctx.Err()
		}
		return next(ctx, cmd)
	}
}

// While Redis is away, the log says so once. All goes on when it is back.
func TestAggregationDuringAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var groups []string
		b := startAggregation(t, Config{GroupGracePeriod: time.Second, GroupAggregator: asynq.GroupAggregatorFunc(func(group string, _ []*asynq.Task) *asynq.Task {
			mu.Lock()
			defer mu.Unlock()
			groups = append(groups, group)
			return asynq.NewTask("joined", nil)
		})})
		b.put(t, "first", 1)
		time.Sleep(5 * time.Second)
		b.put(t, "second", 1)
		b.away.Store(true)
		b.cut()
		time.Sleep(10 * time.Minute)
		expect.That(t, b.log.count("cannot be aggregated") == 1 && b.log.count("cannot be reclaimed") == 1 && b.log.count("") == 2, "want two lines, have:\n%v", b.log)
		b.away.Store(false)
		for b.Ping(t.Context()).Err() != nil { // connections that were cut are still in the pool
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		expect.That(t, slices.Equal(groups, []string{"first", "second"}) && b.log.count("") == 4, "want both groups and two more lines, have %q and:\n%v", groups, b.log)
	})
}

// A change of limits is to reach the queues of the masters that answer.
func TestSetRulesWithMastersThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, cfg := newMemory(t), loopConfig(t, nil)
		m.AddHook(hanging{})
		cfg.Cluster, cfg.Queues = true, map[string]int{"a": 1, "b": 1}
		for i := range 18 {
			cfg.Queues[fmt.Sprint("there", i)] = 1
		}
		s := &Server{cfg: *cfg, calls: &taskredis.Steps{Redis: m}}
		s.loop = newLoop(cfg, script{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all, ok := s.SetRules(ctx, taskredis.Rules{}).(interface{ Unwrap() []error })
		expect.That(t, ok && len(all.Unwrap()) == 2, "want an error of each queue whose master hangs, have %v", all)
	})
}
