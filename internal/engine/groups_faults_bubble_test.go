package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

// While Redis cannot be reached, a group that was taken is read as soon as that works. One whose task is enqueued
// is deleted as soon as that works, and not aggregated again.
func TestAggregationInsists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		b := startAggregation(t, eachSecond(func(string, []*asynq.Task) *asynq.Task {
			calls.Add(1)
			return asynq.NewTask("joined", nil)
		}))
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

// failing fails scripts that have a key, and reading, so often.
type failing struct {
	key              string
	scripts, reading atomic.Int64
}

func (f *failing) see(cmds []redis.Cmder, send func(...redis.Cmder) error) error {
	name := cmds[0].Name()
	if name == "hget" && f.reading.Add(-1) >= 0 ||
		strings.HasPrefix(name, "eval") && slices.Contains(cmds[0].Args(), any(f.key)) && f.scripts.Add(-1) >= 0 {
		return errors.New("no answer")
	}
	return send(cmds...)
}

// The master of one queue, and then also that of another one after its groups were listed, passes nothing on. Neither holds up the
// groups of the others for long.
func TestAggregationWithoutOneMaster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		for _, queue := range []string{"b", "c"} {
			for i := range 10 {
				b.put(t, fmt.Sprint(queue, i), 1, asynq.Queue(queue))
			}
		}
		left := b.stale(t, "c")
		b.AddHook(hanging{})
		var took sync.Map
		b.start(t, eachSecond(func(group string, _ []*asynq.Task) *asynq.Task {
			took.Store(group, true)
			return asynq.NewTask("joined", nil)
		}), "a", "b", "c")
		time.Sleep(8 * time.Second)
		_, ok := took.Load("c9")
		expect.That(t, ok && b.Exists(t.Context(), left).Val() == 0, "want the groups of the queue c aggregated and reclaimed within 8 s")
		expect.That(t, b.log.count("cannot be aggregated") == 1 && b.log.count("cannot be reclaimed") == 1, "want a line for each, have:\n%v", b.log)
	})
}

// stale leaves a set as a server does that has died, whose only task is gone, and returns its key.
func (b *bubble) stale(t *testing.T, queue string) string {
	t.Helper()
	set := "asynq:{" + queue + "}:g:left:set"
	b.ZAdd(t.Context(), set, redis.Z{Score: 1, Member: "gone"})
	b.ZAdd(t.Context(), "asynq:{"+queue+"}:aggregation_sets", redis.Z{Score: 1, Member: set})
	return set
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

// Whatever breaks while a group is in hand, the others go on, and its tasks are aggregated later.
func TestAggregationThatFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		user func() *asynq.Task
		line string
	}{
		"panic":    {func() *asynq.Task { panics("no printer"); return nil }, "no printer"},
		"goexit":   {func() *asynq.Task { runtime.Goexit(); return nil }, "runtime.Goexit"},
		"no task":  {func() *asynq.Task { return nil }, "cannot be nil"},
		"bad task": {func() *asynq.Task { return asynq.NewTask("t", nil, asynq.TaskID(" ")) }, "may not be enqueued"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				b := startAggregation(t, eachSecond(func(group string, _ []*asynq.Task) *asynq.Task {
					if group == "bad" && calls.Add(1) == 1 {
						return tc.user()
					}
					return asynq.NewTask("joined", nil)
				}))
				b.put(t, "bad", 1)
				b.put(t, "good", 1)
				time.Sleep(110 * time.Second)
				expect.That(t, b.pending(t) == 1 && calls.Load() == 1, "want the good one, and the other kept for its time, have %d and %d calls", b.pending(t), calls.Load())
				time.Sleep(2 * time.Minute)
				left := b.Keys(t.Context(), "asynq:{default}:[ag]*").Val()
				expect.That(t, b.pending(t) == 2 && len(left) == 0, "want both, and nothing left of the groups, have %d and %q", b.pending(t), left)
				expect.That(t, b.log.count(tc.line) == 1 && b.log.count("level=ERROR") == 1 && b.log.count("group=bad") == 1 && b.log.count("queue=default") == 1 && b.log.count("") == 1 && b.log.count("payload") == 0,
					"want one line with the group and %q, have:\n%v", tc.line, b.log)
			})
		})
	}
}

// Broken data of one group, or of one queue, does not hold up the others, and is in the log once.
func TestAggregationOfBrokenData(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, ctx := newBubble(t), t.Context()
		b.put(t, "good", 1)
		b.put(t, "unreadable", 1)
		left := b.stale(t, "default")
		for _, id := range b.ZRange(ctx, "asynq:{default}:g:unreadable", 0, -1).Val() {
			b.HSet(ctx, taskredis.TaskKey("default", id), "msg", "\xff")
		}
		wrong := []string{"asynq:{wrong}:groups", "asynq:{wrong}:aggregation_sets", "asynq:{default}:g:wrong"}
		for _, key := range wrong {
			b.Set(ctx, key, "another type", 0)
		}
		b.SAdd(ctx, "asynq:{default}:groups", "wrong")
		var groups sync.Map
		b.start(t, eachSecond(func(group string, _ []*asynq.Task) *asynq.Task {
			groups.Store(group, true)
			return asynq.NewTask("joined", nil)
		}), "wrong", "default")
		time.Sleep(2 * time.Minute)
		_, good := groups.Load("good")
		archived := b.ZCard(ctx, taskredis.ArchivedKey("default")).Val()
		expect.That(t, good && b.pending(t) == 1 && archived == 1, "want the good one alone, and the unreadable one archived, have %d and %d", b.pending(t), archived)
		expect.That(t, b.Exists(ctx, left).Val() == 0, "want the stale set reclaimed")
		shown, err := asynq.NewInspectorFromRedisClient(b.memory).ListArchivedTasks("default")
		expect.That(t, err == nil && len(shown) == 0, "want no archived task shown, as asynq cannot read it, have %v, %v", shown, err)
		expect.That(t, b.log.count("groups of tasks cannot be aggregated") == 1 && b.log.count("cannot be reclaimed") == 1 && b.log.count("are archived") == 1 && b.log.count("") == 3, "want three lines, have:\n%v", b.log)
		b.Del(ctx, wrong...)
		time.Sleep(2 * time.Minute)
		expect.That(t, b.log.count("are aggregated again") == 1 && b.log.count("are reclaimed again") == 1, "want a line for each end, have:\n%v", b.log)
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
