package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// join makes a task that says of which tasks it was made, with options of its own.
var join = asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
	parts := make([]string, len(tasks))
	for i, t := range tasks {
		parts[i] = t.Type() + "=" + string(t.Payload()) + fmt.Sprint(t.Headers())
	}
	slices.Sort(parts) // those of one second have no order
	return asynq.NewTaskWithHeaders("joined:"+group, []byte(strings.Join(parts, " ")), map[string]string{"n": fmt.Sprint(len(tasks))},
		asynq.Queue("elsewhere"), asynq.MaxRetry(7), asynq.Timeout(time.Minute), asynq.Retention(time.Hour))
})

// An aggregator is an aggregation of one queue on a Redis server that tests share.
type aggregator struct {
	*aggregation

	t         *testing.T
	redis     *redis.Client
	queue     string
	log       *logbook
	inspector *asynq.Inspector
}

func newAggregator(t *testing.T, user asynq.GroupAggregator) *aggregator {
	t.Helper()
	a := &aggregator{t: t, redis: redistest.Shared(t).Client(t), queue: "engine-" + uuid.NewString(), log: &logbook{}}
	a.inspector = asynq.NewInspectorFromRedisClient(a.redis)
	a.aggregation = newAggregation(&Config{
		Redis: a.redis, Logger: a.log.logger(), GroupAggregator: user, GroupGracePeriod: time.Second,
	}, []string{a.queue})
	return a
}

// put enqueues tasks of a group into a queue.
func (a *aggregator) put(queue, group string, payloads ...string) {
	a.t.Helper()
	client := asynq.NewClientFromRedisClient(a.redis)
	for _, p := range payloads {
		task := asynq.NewTaskWithHeaders("mail", []byte(p), map[string]string{"from": "ada"})
		expect.OK(a.t, expect.Err(client.EnqueueContext(a.t.Context(), task, asynq.Queue(queue), asynq.Group(group))))
	}
}

// pending returns what makes up the pending tasks of a queue.
func (a *aggregator) pending(queue string) []string {
	tasks, err := a.inspector.ListPendingTasks(queue, asynq.PageSize(1000))
	if err != nil {
		return nil // the queue is not there yet
	}
	var all []string
	for _, t := range tasks {
		all = append(all, fmt.Sprintf("%s %q %v %v %v %v", t.Type, t.Payload, t.Headers, t.MaxRetry, t.Timeout, t.Retention))
	}
	slices.Sort(all)
	return all
}

// rounds has rounds made until ok.
func (a *aggregator) rounds(what string, ok func() bool) {
	a.t.Helper()
	expect.Eventually(a.t, what, func() bool {
		if err := a.round(a.t.Context()); err != nil {
			a.t.Error(err)
		}
		return ok()
	})
}

// age ends the time of the sets that were taken.
func (a *aggregator) age() {
	a.t.Helper()
	sets := "asynq:{" + a.queue + "}:aggregation_sets"
	for _, set := range a.redis.ZRange(a.t.Context(), sets, 0, -1).Val() {
		a.redis.ZAdd(a.t.Context(), sets, redis.Z{Score: 1, Member: set})
	}
}

// keys returns the keys that groups have in a queue, without ids.
func (a *aggregator) keys(queue string) []string {
	a.t.Helper()
	kinds := map[string]bool{}
	for _, key := range a.redis.Keys(a.t.Context(), "asynq:{"+queue+"}:*").Val() {
		kind, _, _ := strings.Cut(strings.TrimPrefix(key, "asynq:{"+queue+"}:"), ":")
		kinds[kind] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

// Whatever breaks while a group is in hand, the others go on, and its tasks are aggregated later.
func TestAggregationThatFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		user asynq.GroupAggregatorFunc
		line string
	}{
		"panic":    {func(string, []*asynq.Task) *asynq.Task { panics("no printer"); return nil }, "no printer"},
		"goexit":   {func(string, []*asynq.Task) *asynq.Task { runtime.Goexit(); return nil }, "runtime.Goexit"},
		"no task":  {func(string, []*asynq.Task) *asynq.Task { return nil }, "cannot be nil"},
		"bad task": {func(string, []*asynq.Task) *asynq.Task { return asynq.NewTask("t", nil, asynq.TaskID(" ")) }, "could not be enqueued"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := true
			a := newAggregator(t, asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
				if group == "bad" && broken {
					return tc.user(group, tasks)
				}
				return join(group, tasks)
			}))
			a.put(a.queue, "bad", "the payload")
			a.put(a.queue, "good", "x")
			a.rounds("the good one", func() bool { return len(a.pending(a.queue)) == 1 && a.log.count("level=ERROR") == 1 })
			expect.That(t, a.log.count(tc.line) == 1 && a.log.count("group=bad") == 1 && a.log.count(a.queue) == 1 && a.log.count("the payload") == 0, "want one line with the group and %q, have:\n%v", tc.line, a.log)
			broken = false
			a.reclaim(t.Context())
			if err := a.round(t.Context()); err != nil || len(a.pending(a.queue)) != 1 {
				t.Errorf("want the other kept for its time, have %q, %v", a.pending(a.queue), err)
			}
			a.age()
			a.reclaim(t.Context())
			a.rounds("the bad one", func() bool { return len(a.pending(a.queue)) == 2 })
			have := a.keys(a.queue)
			expect.That(t, slices.Equal(have, []string{"pending", "t"}), "want nothing left of the groups, have %q", have)
			expect.That(t, a.log.count("") == 1, "want one line, have:\n%v", a.log)
		})
	}
}

// Broken data of one group, or of one queue, does not hold up the others, and is in the log once.
func TestAggregationOfBrokenData(t *testing.T) {
	t.Parallel()
	a := newAggregator(t, join)
	wrong := a.queue + "-wrong"
	a.queues = []string{wrong, a.queue}
	for _, key := range []string{"asynq:{" + wrong + "}:groups", "asynq:{" + wrong + "}:aggregation_sets", "asynq:{" + a.queue + "}:g:wrong"} {
		a.redis.Set(t.Context(), key, "wrong", 0)
	}
	a.redis.SAdd(t.Context(), "asynq:{"+a.queue+"}:groups", "wrong")
	a.put(a.queue, "good", "x")
	a.put(a.queue, "unreadable", "x")
	left := "asynq:{" + a.queue + "}:g:left:set"
	a.redis.ZAdd(t.Context(), left, redis.Z{Score: 1, Member: "gone"})
	a.redis.ZAdd(t.Context(), "asynq:{"+a.queue+"}:aggregation_sets", redis.Z{Score: 1, Member: left})
	for _, id := range a.redis.ZRange(t.Context(), "asynq:{"+a.queue+"}:g:unreadable", 0, -1).Val() {
		a.redis.HSet(t.Context(), taskredis.TaskKey(a.queue, id), "msg", "\xff")
	}
	expect.Eventually(t, "the good one, and the unreadable one archived", func() bool {
		a.checking.saw(t.Context(), a.round(t.Context()))
		a.reclaim(t.Context())
		return len(a.pending(a.queue)) == 1 && a.redis.ZCard(t.Context(), taskredis.ArchivedKey(a.queue)).Val() == 1
	})
	a.rounds2(t)
	expect.That(t, a.redis.Exists(t.Context(), left).Val() == 0, "want the stale set reclaimed")
	have := a.pending(a.queue)
	expect.That(t, strings.HasPrefix(have[0], "joined:good "), "want no task of nothing, have %q", have)
	if archived, err := a.inspector.ListArchivedTasks(a.queue); err != nil || len(archived) != 0 { // asynq shows none that it cannot read
		t.Errorf("want no archived task shown, have %v, %v", archived, err)
	}
	expect.That(t, a.log.count("groups of tasks cannot be aggregated") == 1 && a.log.count("cannot be reclaimed") == 1 && a.log.count("are archived") == 1 && a.log.count("") == 3, "want three lines, have:\n%v", a.log)
	a.redis.Del(t.Context(), "asynq:{"+wrong+"}:groups", "asynq:{"+wrong+"}:aggregation_sets", "asynq:{"+a.queue+"}:g:wrong")
	a.rounds2(t)
	expect.That(t, a.log.count("are aggregated again") == 1 && a.log.count("are reclaimed again") == 1, "want a line for each end, have:\n%v", a.log)
}

// A severed is a Redis that does not answer for a queue, as one master of a Cluster.
type severed struct {
	redis.UniversalClient

	queue string
}

func (c severed) SMembers(ctx context.Context, key string) *redis.StringSliceCmd {
	if !strings.Contains(key, "{"+c.queue+"}") {
		return c.UniversalClient.SMembers(ctx, key)
	}
	cmd := redis.NewStringSliceCmd(ctx)
	cmd.SetErr(errSevered)
	return cmd
}

func (c severed) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if !strings.Contains(keys[0], "{"+c.queue+"}") {
		return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(errSevered)
	return cmd
}

// A queue whose master does not answer does not hold up the groups of the others.
func TestAggregationWithoutOneMaster(t *testing.T) {
	t.Parallel()
	a := newAggregator(t, join)
	gone := a.queue + "-gone"
	a.queues, a.groups = []string{gone, a.queue}, taskredis.NewGroups(severed{a.redis, gone})
	a.put(a.queue, "g", "x")
	left := "asynq:{" + a.queue + "}:g:left:set"
	a.redis.ZAdd(t.Context(), left, redis.Z{Score: 1, Member: "gone"})
	a.redis.ZAdd(t.Context(), "asynq:{"+a.queue+"}:aggregation_sets", redis.Z{Score: 1, Member: left})
	expect.Eventually(t, "the group aggregated", func() bool {
		expect.Is(t, "round", a.round(t.Context()), errSevered)
		return len(a.pending(a.queue)) == 1
	})
	a.reclaim(t.Context())
	expect.That(t, a.redis.Exists(t.Context(), left).Val() == 0, "want the stale set reclaimed")
}

// rounds2 makes two rounds and two reclaims as run does.
func (a *aggregator) rounds2(t *testing.T) {
	t.Helper()
	for range 2 {
		a.checking.saw(t.Context(), a.round(t.Context()))
		a.reclaim(t.Context())
	}
}

// failing fails scripts that have a key, and reading, so often.
type failing struct {
	key              string
	scripts, reading atomic.Int64
}

var errSevered = errors.New("severed")

func (f *failing) see(cmds []redis.Cmder, send func(...redis.Cmder) error) error {
	name := cmds[0].Name()
	if name == "hget" && f.reading.Add(-1) >= 0 ||
		strings.HasPrefix(name, "eval") && slices.Contains(cmds[0].Args(), any(f.key)) && f.scripts.Add(-1) >= 0 {
		return errSevered
	}
	return send(cmds...)
}
