package taskredis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// A grouping has groups of tasks, and shows what is in them.
type grouping struct {
	*bench

	groups Groups
}

func onGroups(t *testing.T, test func(t *grouping)) {
	t.Helper()
	onRedis(t, func(t *bench) { test(&grouping{t, NewGroups(t.rdb)}) })
}

// second returns the second of Redis' clock.
func (t *grouping) second() int64 { return value(t, t.rdb.Time(t.Context())).Unix() }

// put puts a task into a group as asynq's client does.
func (t *grouping) put(queue, group, id string, came int64) {
	t.Helper()
	m := &Message{Type: "mail", ID: id, Queue: queue, GroupKey: group, Payload: []byte("to " + id)}
	expect.OK(t, expect.Err(t.rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.HSet(t.Context(), TaskKey(queue, id), "msg", m.Encode(), "state", "aggregating", "group", group)
		p.ZAdd(t.Context(), GroupKey(queue, group), redis.Z{Score: float64(came), Member: id})
		p.SAdd(t.Context(), GroupsKey(queue), group)
		return nil
	})))
}

// take takes a group that must be ready, and reads it.
func (t *grouping) take(queue, group string, rule GroupRule) *AggregationSet {
	t.Helper()
	set := expect.Value(t.groups.Take(t.Context(), queue, group, rule))(t)
	expect.Need(t, set != nil, "want group %s ready", group)
	for range 2 { // also a second time
		t.must(t.groups.Read(t.Context(), set))
	}
	return set
}

// stale ends the time of all sets of a queue.
func (t *grouping) stale(queue string) {
	t.Helper()
	for _, set := range t.rdb.ZRange(t.Context(), aggregationSetsKey(queue), 0, -1).Val() {
		t.must(t.rdb.ZAddXX(t.Context(), aggregationSetsKey(queue), redis.Z{Score: float64(t.second()), Member: set}).Err())
	}
}

func ids(set *AggregationSet) []string {
	var ids []string
	for _, task := range set.Tasks {
		ids = append(ids, task.ID)
	}
	return ids
}

// everything is the rule of a group that is ready once a second has passed.
var everything = GroupRule{Grace: time.Second}

// A group is ready in the very second in which one of asynq's conditions is met. Package asynqdiff compares what comes of it.
func TestWhenAGroupIsReady(t *testing.T) {
	t.Parallel()
	const s = time.Second
	onGroups(t, func(t *grouping) {
		for _, c := range []struct {
			rule  GroupRule
			came  []int64 // how many seconds ago its tasks did, the oldest first
			taken int
		}{
			{GroupRule{Grace: 2 * s}, []int64{9, 2}, 2},
			{GroupRule{Grace: 2 * s}, []int64{9, 1}, 0},
			{GroupRule{Grace: time.Hour, MaxDelay: 5 * s}, []int64{5, 0}, 2},
			{GroupRule{Grace: time.Hour, MaxDelay: 5 * s}, []int64{4, 0}, 0},
			{GroupRule{Grace: time.Hour, MaxSize: 2}, []int64{1, 0}, 2},
			{GroupRule{Grace: time.Hour, MaxSize: 2}, []int64{9}, 0},
			{GroupRule{Grace: time.Hour, MaxDelay: 5 * s, MaxSize: 2}, []int64{9, 8, 0}, 2},
			{GroupRule{Grace: 2 * s, MaxSize: 3}, []int64{9, 2}, 2},
			{GroupRule{Grace: time.Hour, MaxSize: -1}, []int64{5, 0}, 0},
			{GroupRule{Grace: time.Hour, MaxDelay: -time.Minute}, []int64{5, 0}, 0},
			{GroupRule{Grace: time.Hour, MaxDelay: time.Millisecond}, []int64{5, 0}, 2}, // a second: in asynq it is no limit
		} {
			var queue string
			var have, want []string
			var set *AggregationSet
			for now := int64(0); now != t.second(); { // again, if the next second has begun meanwhile
				now, queue, want, have = t.second(), "groups-"+uuid.NewString(), nil, nil
				for i, ago := range c.came {
					want = append(want, fmt.Sprint("t", i))
					t.put(queue, "g", want[i], now-ago)
				}
				if set = expect.Value(t.groups.Take(t.Context(), queue, "g", c.rule))(t); set != nil {
					have = set.IDs
				}
			}
			expect.That(t, slices.Equal(have, want[:c.taken]), "%+v, tasks that came %v s ago: want %q taken, have %q", c.rule, c.came, want[:c.taken], have)
			expect.Equal(t, "tasks left in the group", t.rdb.ZCard(t.Context(), GroupKey(queue, "g")).Val(), int64(len(want)-c.taken))
			if set != nil {
				t.must(t.groups.Delete(t.Context(), set))
			}
			listed := expect.Value(t.groups.List(t.Context(), queue))(t)
			expect.That(t, (len(listed) == 1) == (c.taken < len(want)), "%+v: want the group listed as long as it has tasks, have %q", c.rule, listed)
		}
	})
}

// go-redis sends a call again if its answer is lost. The second one answers as the first did.
func TestTakeThatIsSentTwice(t *testing.T) {
	t.Parallel()
	onGroups(t, func(t *grouping) {
		queue := t.queue
		for i := range 5 {
			t.put(queue, "g", fmt.Sprint("t", i), int64(100+i))
		}
		t.rdb.AddHook(doubling(nil))
		first := t.take(queue, "g", GroupRule{MaxSize: 3})
		expect.Same(t, "first", ids(first), []string{"t0", "t1", "t2"})
		expect.Equal(t, "when the third came", value(t, t.rdb.ZScore(t.Context(), first.key(), "t2")), 102)
		set := t.take(queue, "g", everything)
		expect.Same(t, "second", ids(set), []string{"t3", "t4"})
		expect.Equal(t, "sets", t.rdb.ZCard(t.Context(), aggregationSetsKey(queue)).Val(), 2)
		t.must(t.groups.Delete(t.Context(), set))
		expect.Equal(t, "sets after a deletion", t.rdb.ZCard(t.Context(), aggregationSetsKey(queue)).Val(), 1)
	})
}

// A set whose time is over is nobody's any more: its former server deletes no tasks that are in the group again.
func TestDeleteOfAReclaimedSet(t *testing.T) {
	t.Parallel()
	onGroups(t, func(t *grouping) {
		queue := t.queue
		t.put(queue, "g", "t1", 100)
		t.put(queue, "g", "bad", 100)
		t.must(t.rdb.HSet(t.Context(), TaskKey(queue, "bad"), "msg", "\xff\xff").Err())
		set := t.take(queue, "g", everything)
		t.stale(queue)
		t.must(t.groups.Reclaim(t.Context(), queue))
		before := contentsOf(t, t.rdb, queue).String()
		t.must(t.groups.Delete(t.Context(), set))
		expect.Equal(t, "in Redis", contentsOf(t, t.rdb, queue).String(), before)
	})
}

// A group may have thousands of tasks that cannot be read: more than Lua takes as the arguments of a function.
func TestDeleteOfManyUnreadable(t *testing.T) {
	t.Parallel()
	onGroups(t, func(t *grouping) {
		t.put(t.queue, "g", "t1", 100)
		set := t.take(t.queue, "g", everything)
		for i := range 10_000 {
			set.Unreadable = append(set.Unreadable, fmt.Sprint("bad", i))
		}
		t.must(t.groups.Delete(t.Context(), set))
		expect.Equal(t, "sets", t.rdb.ZCard(t.Context(), aggregationSetsKey(t.queue)).Val(), 0)
	})
}

// Until the deadline that this process goes by, nobody reclaims the set.
func TestDeadlineOfASet(t *testing.T) {
	t.Parallel()
	onGroups(t, func(t *grouping) {
		queue := t.queue
		t.put(queue, "g", "t1", 100)
		set := t.take(queue, "g", everything)
		due := time.Unix(int64(t.rdb.ZScore(t.Context(), aggregationSetsKey(queue), t.rdb.ZRange(t.Context(), aggregationSetsKey(queue), 0, 0).Val()[0]).Val()), 0)
		if early := due.Sub(set.Deadline); early < 0 || early > 2*time.Second {
			t.Errorf("want the deadline up to 2 s before %v, have %v", due, set.Deadline)
		}
		before := contentsOf(t, t.rdb, queue).String()
		t.must(t.groups.Reclaim(t.Context(), queue))
		expect.Equal(t, "in Redis", contentsOf(t, t.rdb, queue).String(), before)
	})
}

// A task that nobody can read is set aside, and one whose hash is gone is passed over.
func TestUnreadableTasks(t *testing.T) {
	t.Parallel()
	onGroups(t, func(t *grouping) {
		queue := t.queue
		for _, id := range []string{"a", "bad", "c", "gone", "odd", "z"} {
			t.put(queue, "g", id, 100)
		}
		t.must(t.rdb.HSet(t.Context(), TaskKey(queue, "bad"), "msg", "\xff\xff").Err())
		t.must(t.rdb.Del(t.Context(), TaskKey(queue, "gone"), TaskKey(queue, "odd")).Err())
		t.must(t.rdb.Set(t.Context(), TaskKey(queue, "odd"), "no hash", 0).Err())
		set := t.take(queue, "g", everything)
		expect.Same(t, "tasks", ids(set), []string{"a", "c", "z"})
		expect.Same(t, "unreadable", set.Unreadable, []string{"bad", "odd"})
		t.must(t.groups.Delete(t.Context(), set))
		left := contentsOf(t, t.rdb, queue)
		archived := value(t, t.rdb.ZRangeWithScores(t.Context(), ArchivedKey(queue), 0, -1))
		expect.That(t, len(archived) == 1 && archived[0].Member == "bad" && archived[0].Score >= float64(t.second()-60), "want bad archived now, have %v", archived)
		bad := value(t, t.rdb.HGetAll(t.Context(), TaskKey(queue, "bad")))
		expect.Same(t, "bad", bad, map[string]string{"state": "archived", "group": "g", "msg": "\xff\xff"})
		expect.That(t, len(left) == 3 && left[TaskKey(queue, "odd")].value == "no hash", "want the tasks that cannot be read left, have\n%v", left)
	})
}

// A set that cannot be reclaimed is left for later, and the next call reclaims the others.
func TestReclaimGoesOnAfterABrokenSet(t *testing.T) {
	t.Parallel()
	onGroups(t, func(t *grouping) {
		queue := t.queue
		sets := aggregationSetsKey(queue)
		t.must(t.rdb.Set(t.Context(), GroupKey(queue, "one:set"), "no set", 0).Err())
		t.must(t.rdb.Set(t.Context(), GroupKey(queue, "two"), "no group", 0).Err())
		t.must(t.rdb.ZAdd(t.Context(), GroupKey(queue, "two:set"), redis.Z{Score: 1, Member: "t"}).Err())
		t.must(t.rdb.ZAdd(t.Context(), sets, redis.Z{Score: 1, Member: GroupKey(queue, "one:set")}, redis.Z{Score: 2, Member: GroupKey(queue, "two:set")},
			redis.Z{Score: 2, Member: "odd"}).Err())
		t.put(queue, "mail:to:ada", "t1", 100)
		t.take(queue, "mail:to:ada", everything)
		t.must(t.rdb.SRem(t.Context(), GroupsKey(queue), "mail:to:ada").Err()) // as an asynq server that took it
		t.must(t.rdb.ZAdd(t.Context(), sets, redis.Z{Score: 3, Member: t.rdb.ZRange(t.Context(), sets, -1, -1).Val()[0]}).Err())
		for range 2 {
			err := t.groups.Reclaim(t.Context(), queue)
			expect.That(t, err != nil && strings.Contains(err.Error(), queue), "want an error that names the queue, have %v", err)
		}
		t.must(t.groups.Reclaim(t.Context(), queue))
		expect.Same(t, "groups", expect.Value(t.groups.List(t.Context(), queue))(t), []string{"mail:to:ada"})
		expect.Equal(t, "when it came", value(t, t.rdb.ZScore(t.Context(), GroupKey(queue, "mail:to:ada"), "t1")), 100)
		expect.Same(t, "tasks", ids(t.take(queue, "mail:to:ada", everything)), []string{"t1"})
		expect.Same(t, "tasks of the set that waits", t.rdb.ZRange(t.Context(), GroupKey(queue, "two:set"), 0, -1).Val(), []string{"t"})
	})
}

// Large groups are read in several calls, in their order.
func TestLargeGroup(t *testing.T) {
	t.Parallel()
	onGroups(t, func(t *grouping) {
		queue := t.queue
		var want []string
		for i := range 2345 {
			want = append(want, fmt.Sprintf("t%04d", i))
			t.put(queue, "g", want[i], int64(100+i/100))
		}
		set := t.take(queue, "g", everything)
		expect.Same(t, "tasks", ids(set), want)
		t.must(t.groups.Delete(t.Context(), set))
		left := contentsOf(t, t.rdb, queue)
		expect.That(t, len(left) == 0, "want nothing left, have\n%v", left)
	})
}
