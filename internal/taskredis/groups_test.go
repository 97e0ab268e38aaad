package taskredis_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// onEach runs a test on Redis and on the embedded Redis.
func onEach(t *testing.T, test func(b *bench)) {
	t.Helper()
	for name, start := range map[string]func(*testing.T) *redis.Client{"redis": realRedis, "embedded": embeddedRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bench{Client: start(t), t: t, ctx: t.Context()}
			b.groups = taskredis.NewGroups(b)
			test(b)
		})
	}
}

func realRedis(t *testing.T) *redis.Client {
	t.Helper()
	return redistest.Shared(t).Client(t)
}

func embeddedRedis(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A bench has queues with groups of tasks, and shows what is in them.
type bench struct {
	*redis.Client

	t      *testing.T
	ctx    context.Context //nolint:containedctx // the test's
	groups taskredis.Groups
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// queue returns the name of a queue that nobody else has.
func (b *bench) queue() string { return "groups-" + uuid.NewString() }

// now returns the second of Redis' clock.
func (b *bench) now() int64 {
	b.t.Helper()
	now, err := b.Time(b.ctx).Result()
	b.must(err)
	return now.Unix()
}

// put puts a task into a group as asynq's client does.
func (b *bench) put(queue, group, id string, came int64) {
	b.t.Helper()
	m := &taskredis.Message{Type: "mail", ID: id, Queue: queue, GroupKey: group, Payload: []byte("to " + id)}
	_, err := b.TxPipelined(b.ctx, func(p redis.Pipeliner) error {
		p.HSet(b.ctx, taskredis.TaskKey(queue, id), "msg", m.Encode(), "state", "aggregating", "group", group)
		p.ZAdd(b.ctx, key(queue, "g:"+group), redis.Z{Score: float64(came), Member: id})
		p.SAdd(b.ctx, key(queue, "groups"), group)
		return nil
	})
	b.must(err)
}

func key(queue, rest string) string { return "asynq:{" + queue + "}:" + rest }

// take takes a group that must be ready, and reads it.
func (b *bench) take(queue, group string, rule taskredis.GroupRule) *taskredis.AggregationSet {
	b.t.Helper()
	set, err := b.groups.Take(b.ctx, queue, group, rule)
	b.must(err)
	if set == nil {
		b.t.Fatalf("want group %s ready", group)
	}
	for range 2 { // also a second time
		b.must(b.groups.Read(b.ctx, set))
	}
	return set
}

// stale ends the time of all sets of a queue.
func (b *bench) stale(queue string) {
	b.t.Helper()
	for _, set := range b.ZRange(b.ctx, key(queue, "aggregation_sets"), 0, -1).Val() {
		b.must(b.ZAddXX(b.ctx, key(queue, "aggregation_sets"), redis.Z{Score: float64(b.now()), Member: set}).Err())
	}
}

// dump returns all that Redis has of a queue. Names of the queue and of sets are left out of it.
func (b *bench) dump(queue string) map[string]any {
	b.t.Helper()
	keys, err := b.Keys(b.ctx, "asynq:{"+queue+"}:*").Result()
	b.must(err)
	all := make(map[string]any)
	plain := func(text string) string {
		text = strings.ReplaceAll(text, queue, "Q")
		if i := strings.LastIndex(text, ":"); i >= 0 && uuid.Validate(text[i+1:]) == nil {
			text = text[:i] + ":SET"
		}
		return text
	}
	for _, k := range keys {
		switch b.Type(b.ctx, k).Val() {
		case "zset":
			members := map[string]float64{}
			for _, z := range b.ZRangeWithScores(b.ctx, k, 0, -1).Val() {
				members[plain(z.Member.(string))] = z.Score //nolint:forcetypeassert,errcheck // it is
			}
			all[plain(k)] = members
		case "set":
			all[plain(k)] = slices.Sorted(slices.Values(b.SMembers(b.ctx, k).Val()))
		case "hash":
			fields := b.HGetAll(b.ctx, k).Val()
			delete(fields, "msg") // has the queue's name, and its length
			all[plain(k)] = fields
		default:
			all[plain(k)] = b.Get(b.ctx, k).Val()
		}
	}
	return all
}

func ids(set *taskredis.AggregationSet) []string {
	var ids []string
	for _, task := range set.Tasks {
		ids = append(ids, task.ID)
	}
	return ids
}

func wantEqual(t *testing.T, what string, want, have any) {
	t.Helper()
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s (-want +have):\n%s", what, diff)
	}
}

// everything is the rule of a group that is ready once a second has passed.
var everything = taskredis.GroupRule{Grace: time.Second}

// For the same groups and rules, ours takes the tasks that asynq's script takes, and leaves in Redis what that leaves.
func TestGroupsAreThoseOfAsynq(t *testing.T) {
	t.Parallel()
	scripts, err := asynqScripts()
	if err != nil {
		t.Fatal(err)
	}
	onEach(t, func(b *bench) {
		t := b.t
		taken, kept, partly := 0, 0, 0
		for range 120 {
			rule := taskredis.GroupRule{
				Grace: time.Duration(1000+rand.N(4000)) * time.Millisecond, MaxDelay: time.Duration(rand.N(8)) * time.Second, MaxSize: rand.N(5),
			}
			theirs, ours := b.queue(), b.queue()
			now := b.now()
			n := rand.N(7)
			for i := range n {
				came := now - rand.Int64N(9)
				b.put(theirs, "g", fmt.Sprint("t", i), came)
				b.put(ours, "g", fmt.Sprint("t", i), came)
			}
			set := key(theirs, "g:g:"+uuid.NewString())
			done, err := scripts["check"].Run(b.ctx, b, []string{key(theirs, "g:g"), set, key(theirs, "aggregation_sets"), key(theirs, "groups")},
				rule.MaxSize, int64(rule.MaxDelay.Seconds()), int64(rule.Grace.Seconds()), now+120, now, "g").Int()
			b.must(err)
			theirIDs := b.ZRange(b.ctx, set, 0, -1).Val()
			have, err := b.groups.Take(b.ctx, ours, "g", rule)
			b.must(err)
			if b.now() != now {
				continue // the clocks of the two may differ
			}
			ourIDs := []string{}
			if have != nil {
				ourIDs = have.IDs
			}
			wantEqual(t, fmt.Sprintf("taken by %+v", rule), theirIDs, ourIDs)
			want := b.dump(theirs)
			if done == 1 && n == len(theirIDs) {
				want["asynq:{Q}:groups"] = []string{"g"} // asynq would forget it
			}
			wantEqual(t, fmt.Sprintf("in Redis after the take by %+v", rule), want, b.dump(ours))
			if done == 0 {
				kept++
				continue
			}
			taken++
			if len(theirIDs) < n {
				partly++
			}
			b.must(scripts["delete"].Run(b.ctx, b, []string{set, key(theirs, "aggregation_sets")}, taskredis.TaskKey(theirs, "")).Err())
			b.must(b.groups.Delete(b.ctx, have))
			wantEqual(t, "in Redis after the deletion", b.dump(theirs), b.dump(ours))
		}
		if taken < 10 || kept < 10 || partly < 5 {
			t.Errorf("want groups of all kinds, have %d taken, %d of them partly, and %d kept", taken, partly, kept)
		}
	})
}

// Tasks of a server that has died go back to their group as asynq puts them back. But asynq does not look at the
// group again.
func TestReclaimIsThatOfAsynq(t *testing.T) {
	t.Parallel()
	scripts, err := asynqScripts()
	if err != nil {
		t.Fatal(err)
	}
	onEach(t, func(b *bench) {
		t := b.t
		theirs, ours := b.queue(), b.queue()
		for _, queue := range []string{theirs, ours} {
			for i := range 5 {
				b.put(queue, "mail:to:ada", fmt.Sprint("t", i), int64(100+i))
				b.put(queue, "fresh", fmt.Sprint("f", i), int64(100+i))
			}
			b.take(queue, "mail:to:ada", taskredis.GroupRule{MaxSize: 2})
			b.take(queue, "mail:to:ada", everything)
			b.stale(queue)
			b.take(queue, "fresh", everything)
			b.put(queue, "mail:to:ada", "newer", 300)
			b.must(b.SRem(b.ctx, key(queue, "groups"), "mail:to:ada").Err()) // as an asynq server that took it
		}
		b.must(scripts["reclaim"].Run(b.ctx, b, []string{key(theirs, "aggregation_sets")}, b.now()).Err())
		b.must(b.groups.Reclaim(b.ctx, ours))
		want, have := b.dump(theirs), b.dump(ours)
		wantEqual(t, "groups in asynq", []string{"fresh"}, want["asynq:{Q}:groups"].([]string)) //nolint:forcetypeassert,errcheck // it is
		want["asynq:{Q}:groups"] = []string{"fresh", "mail:to:ada"}
		delete(want, "asynq:{Q}:aggregation_sets") // the one of fresh, whose second may differ
		delete(have, "asynq:{Q}:aggregation_sets")
		wantEqual(t, "in Redis", want, have)
		wantEqual(t, "aggregated again", []string{"t0", "t1", "t2", "t3", "t4", "newer"}, ids(b.take(ours, "mail:to:ada", everything)))
	})
}

// If asynq's server reclaims what ours has taken, the group is looked at again, too.
func TestAsynqReclaimsOurSets(t *testing.T) {
	t.Parallel()
	scripts, err := asynqScripts()
	if err != nil {
		t.Fatal(err)
	}
	onEach(t, func(b *bench) {
		t := b.t
		queue := b.queue()
		b.put(queue, "g", "t1", 100)
		b.take(queue, "g", everything)
		b.stale(queue)
		b.must(scripts["reclaim"].Run(b.ctx, b, []string{key(queue, "aggregation_sets")}, b.now()).Err())
		groups, err := b.groups.List(b.ctx, queue)
		b.must(err)
		wantEqual(t, "groups", []string{"g"}, groups)
		wantEqual(t, "tasks", []string{"t1"}, ids(b.take(queue, "g", everything)))
	})
}

// go-redis sends a call again if its answer is lost. The second one answers as the first did.
func TestTakeThatIsSentTwice(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		t := b.t
		queue := b.queue()
		for i := range 5 {
			b.put(queue, "g", fmt.Sprint("t", i), int64(100+i))
		}
		b.AddHook(twice{})
		wantEqual(t, "first", []string{"t0", "t1", "t2"}, ids(b.take(queue, "g", taskredis.GroupRule{MaxSize: 3})))
		set := b.take(queue, "g", everything)
		wantEqual(t, "second", []string{"t3", "t4"}, ids(set))
		if n := b.ZCard(b.ctx, key(queue, "aggregation_sets")).Val(); n != 2 {
			t.Errorf("want 2 sets, have %d", n)
		}
		b.must(b.groups.Delete(b.ctx, set))
		if n := b.ZCard(b.ctx, key(queue, "aggregation_sets")).Val(); n != 1 {
			t.Errorf("want 1 set, have %d", n)
		}
	})
}

// twice sends each script twice.
type twice struct{}

func (twice) DialHook(next redis.DialHook) redis.DialHook                               { return next }
func (twice) ProcessPipelineHook(h redis.ProcessPipelineHook) redis.ProcessPipelineHook { return h }
func (twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			_ = next(ctx, cmd)
			cmd.SetErr(nil)
		}
		return next(ctx, cmd)
	}
}

// A set whose time is over is nobody's any more: its former server deletes no tasks that are in the group again.
func TestDeleteOfAReclaimedSet(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		t := b.t
		queue := b.queue()
		b.put(queue, "g", "t1", 100)
		b.put(queue, "g", "bad", 100)
		b.must(b.HSet(b.ctx, taskredis.TaskKey(queue, "bad"), "msg", "\xff\xff").Err())
		set := b.take(queue, "g", everything)
		b.stale(queue)
		b.must(b.groups.Reclaim(b.ctx, queue))
		before := b.dump(queue)
		b.must(b.groups.Delete(b.ctx, set))
		wantEqual(t, "in Redis", before, b.dump(queue))
	})
}

// Until the deadline that this process goes by, nobody reclaims the set.
func TestDeadlineOfASet(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		t := b.t
		queue := b.queue()
		b.put(queue, "g", "t1", 100)
		set := b.take(queue, "g", everything)
		due := time.Unix(int64(b.ZScore(b.ctx, key(queue, "aggregation_sets"), b.ZRange(b.ctx, key(queue, "aggregation_sets"), 0, 0).Val()[0]).Val()), 0)
		if early := due.Sub(set.Deadline); early < 0 || early > 2*time.Second {
			t.Errorf("want the deadline up to 2 s before %v, have %v", due, set.Deadline)
		}
		before := b.dump(queue)
		b.must(b.groups.Reclaim(b.ctx, queue))
		wantEqual(t, "in Redis", before, b.dump(queue))
	})
}

// A task that nobody can read is set aside, and one whose hash is gone is passed over.
func TestUnreadableTasks(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		t := b.t
		queue := b.queue()
		for _, id := range []string{"a", "bad", "c", "gone", "odd", "z"} {
			b.put(queue, "g", id, 100)
		}
		b.must(b.HSet(b.ctx, taskredis.TaskKey(queue, "bad"), "msg", "\xff\xff").Err())
		b.must(b.Del(b.ctx, taskredis.TaskKey(queue, "gone"), taskredis.TaskKey(queue, "odd")).Err())
		b.must(b.Set(b.ctx, taskredis.TaskKey(queue, "odd"), "no hash", 0).Err())
		set := b.take(queue, "g", everything)
		wantEqual(t, "tasks", []string{"a", "c", "z"}, ids(set))
		wantEqual(t, "unreadable", []string{"bad", "odd"}, set.Unreadable)
		b.must(b.groups.Delete(b.ctx, set))
		have := b.dump(queue)
		if archived, ok := have["asynq:{Q}:archived"].(map[string]float64); !ok || archived["bad"] < float64(b.now()-60) {
			t.Errorf("want bad archived now, have %v", have)
		}
		delete(have, "asynq:{Q}:archived")
		wantEqual(t, "in Redis", map[string]any{
			"asynq:{Q}:t:bad": map[string]string{"state": "archived", "group": "g"},
			"asynq:{Q}:t:odd": "no hash",
		}, have)
	})
}

// A set that cannot be reclaimed is left for later, and the next call reclaims the others.
func TestReclaimGoesOnAfterABrokenSet(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		t := b.t
		queue := b.queue()
		sets := key(queue, "aggregation_sets")
		b.must(b.Set(b.ctx, key(queue, "g:one:set"), "no set", 0).Err())
		b.must(b.Set(b.ctx, key(queue, "g:two"), "no group", 0).Err())
		b.must(b.ZAdd(b.ctx, key(queue, "g:two:set"), redis.Z{Score: 1, Member: "t"}).Err())
		b.must(b.ZAdd(b.ctx, sets, redis.Z{Score: 1, Member: key(queue, "g:one:set")}, redis.Z{Score: 2, Member: key(queue, "g:two:set")},
			redis.Z{Score: 2, Member: "odd"}).Err())
		b.put(queue, "g", "t1", 100)
		b.take(queue, "g", everything)
		b.must(b.ZAdd(b.ctx, sets, redis.Z{Score: 3, Member: b.ZRange(b.ctx, sets, -1, -1).Val()[0]}).Err())
		for range 2 {
			if err := b.groups.Reclaim(b.ctx, queue); err == nil || !strings.Contains(err.Error(), queue) {
				t.Errorf("want an error that names the queue, have %v", err)
			}
		}
		b.must(b.groups.Reclaim(b.ctx, queue))
		wantEqual(t, "tasks", []string{"t1"}, ids(b.take(queue, "g", everything)))
		wantEqual(t, "tasks of the set that waits", []string{"t"}, b.ZRange(b.ctx, key(queue, "g:two:set"), 0, -1).Val())
	})
}

// Large groups are read in several calls, in their order.
func TestLargeGroup(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		t := b.t
		queue := b.queue()
		var want []string
		for i := range 2345 {
			want = append(want, fmt.Sprintf("t%04d", i))
			b.put(queue, "g", want[i], int64(100+i/100))
		}
		set := b.take(queue, "g", everything)
		wantEqual(t, "tasks", want, ids(set))
		b.must(b.groups.Delete(b.ctx, set))
		wantEqual(t, "in Redis", map[string]any{}, b.dump(queue))
	})
}

// A limit of less than a second is one: in asynq it is none.
func TestShortLimits(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		t := b.t
		queue := b.queue()
		b.put(queue, "g", "old", b.now()-5)
		b.put(queue, "g", "new", b.now())
		for _, none := range []time.Duration{0, -time.Minute} {
			if set, err := b.groups.Take(b.ctx, queue, "g", taskredis.GroupRule{Grace: time.Hour, MaxDelay: none, MaxSize: -3}); set != nil || err != nil {
				t.Errorf("%v: want nothing taken, have %v, %v", none, set, err)
			}
		}
		wantEqual(t, "tasks", []string{"old", "new"}, ids(b.take(queue, "g", taskredis.GroupRule{Grace: time.Hour, MaxDelay: time.Millisecond})))
	})
}

func TestGroupsErrors(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		t := b.t
		queue := b.queue()
		b.put(queue, "mail", "t1", 100)
		set := b.take(queue, "mail", everything)
		for _, k := range []string{"groups", "g:wrong", "aggregation_sets"} {
			b.must(b.Del(b.ctx, key(queue, k)).Err())
			b.must(b.Set(b.ctx, key(queue, k), "wrong", 0).Err())
		}
		_, list := b.groups.List(b.ctx, queue)
		_, take := b.groups.Take(b.ctx, queue, "wrong", everything)
		for what, err := range map[string]error{
			"list": list, "take": take, "delete": b.groups.Delete(b.ctx, set), "reclaim": b.groups.Reclaim(b.ctx, queue),
		} {
			if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), queue) {
				t.Errorf("%s: want an error that names the queue and what is wrong, have %v", what, err)
			}
		}
	})
}

// asynqScripts returns three scripts of asynq as a server of it sends them.
var asynqScripts = sync.OnceValues(func() (map[string]*redis.Script, error) {
	mini := miniredis.NewMiniRedis()
	if err := mini.Start(); err != nil {
		return nil, err
	}
	defer mini.Close()
	client := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	defer client.Close()
	seen := &recorder{marks: map[string]string{"check": "maxDelayTime", "reclaim": "staleSetKeys", "delete": `redis.call("DEL", KEYS[1])` + "\n" + `redis.call("ZREM", KEYS[2], KEYS[1])`}}
	client.AddHook(seen)
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("mail", nil), asynq.Group("g")); err != nil {
		return nil, err
	}
	server := asynq.NewServerFromRedisClient(client, asynq.Config{
		GroupAggregator:  asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task { return asynq.NewTask("mails", nil) }),
		GroupGracePeriod: time.Second, LogLevel: asynq.FatalLevel,
	})
	if err := server.Start(asynq.NewServeMux()); err != nil {
		return nil, err
	}
	defer server.Shutdown()
	err := expect.Until(context.Background(), seen.complete)
	return seen.scripts(), err
})

// A recorder keeps the scripts that have certain texts in them.
type recorder struct {
	twice

	marks map[string]string

	mu    sync.Mutex
	found map[string]*redis.Script
}

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" {
			r.keep(fmt.Sprint(cmd.Args()[1]))
		}
		return next(ctx, cmd)
	}
}

func (r *recorder) keep(source string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, mark := range r.marks {
		if strings.Contains(source, mark) {
			if r.found == nil {
				r.found = make(map[string]*redis.Script)
			}
			r.found[name] = redis.NewScript(source)
		}
	}
}

func (r *recorder) scripts() map[string]*redis.Script {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.found)
}

func (r *recorder) complete() error {
	if found := r.scripts(); len(found) < len(r.marks) {
		return fmt.Errorf("want the scripts %v, have %d", r.marks, len(found))
	}
	return nil
}
