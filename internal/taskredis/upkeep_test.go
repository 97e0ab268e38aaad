package taskredis_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A desk has two queues that are looked after, and a Redis clock.
type desk struct {
	*testing.T
	*taskredis.Upkeep

	rdb  *redis.Client
	now  time.Time // Redis' clock when the test began
	q, r string    // queues
	lock string
}

func newDesk(t *testing.T, rdb *redis.Client) *desk {
	t.Helper()
	name := fmt.Sprint(strings.ReplaceAll(t.Name(), "/", ":"), ":", time.Now().UnixNano())
	d := &desk{T: t, rdb: rdb, q: name + ":q", r: name + ":r", lock: "lock:" + name}
	d.Upkeep = &taskredis.Upkeep{Redis: rdb, Session: "one", Queues: []string{d.q, d.r}, TTL: 15 * time.Second, Crashes: 3}
	d.now = value(d, rdb.Time(t.Context()))
	return d
}

// atDesk runs a test on a Redis in memory and on a real one, which all tests share.
func atDesk(t *testing.T, test func(d *desk)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		test(newDesk(t, rdb))
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		test(newDesk(t, redistest.Shared(t).Client(t)))
	})
}

// value returns what Redis answers.
func value[T any](d *desk, cmd interface{ Result() (T, error) }) T {
	d.Helper()
	v, err := cmd.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		d.Fatal(err)
	}
	return v
}

// in returns a time in Unix seconds.
func (d *desk) in(after time.Duration) float64 { return float64(d.now.Add(after).UnixMilli()) / 1000 }

// task writes the hash of a task of q. fields are pairs.
func (d *desk) task(id, state string, fields ...any) {
	d.Helper()
	m := taskredis.Message{Type: "kind", ID: id, Queue: d.q, Retry: 1, Payload: []byte("payload of " + id)}
	value(d, d.rdb.HSet(d.Context(), taskredis.TaskKey(d.q, id), append([]any{"msg", m.Encode(), "state", state}, fields...)...))
}

func (d *desk) add(key, member string, score float64) {
	d.Helper()
	value(d, d.rdb.ZAdd(d.Context(), key, redis.Z{Member: member, Score: score}))
}

// waits puts a task in line for lock, until then.
func (d *desk) waits(id string, ticket int, until float64) {
	d.Helper()
	d.task(id, "retry", "siding_lock", d.lock, "siding_ticket", ticket, "siding_until", text(until))
	d.add(taskredis.RetryKey(d.q), id, until)
	d.add(taskredis.LineKey(d.q, d.lock), id, float64(ticket))
	d.add(taskredis.LinesKey(d.lock), d.q, float64(ticket))
	d.add(taskredis.ReadyKey(d.q), d.lock, 1e6*d.in(time.Hour))
}

// active makes a task an active one with a lease.
func (d *desk) active(id string, lease float64, fields ...any) {
	d.Helper()
	d.task(id, "active", fields...)
	value(d, d.rdb.LPush(d.Context(), taskredis.ActiveKey(d.q), id))
	d.add(taskredis.LeaseKey(d.q), id, lease)
}

func text(score float64) string { return strconv.FormatFloat(score, 'f', -1, 64) }

func (d *desk) state(id string) string {
	d.Helper()
	return value(d, d.rdb.HGet(d.Context(), taskredis.TaskKey(d.q, id), "state"))
}

func (d *desk) score(key, member string) float64 {
	d.Helper()
	return value(d, d.rdb.ZScore(d.Context(), key, member))
}

// looks looks until nothing is left to do, and returns the last answer, with all that was found.
func (d *desk) looks(l taskredis.Look) taskredis.Looked {
	d.Helper()
	var all taskredis.Looked
	if l.Queues == nil {
		l.Queues = []string{d.q}
	}
	for range 1000 {
		is, err := d.Look(d.Context(), l)
		if err != nil || !is.Elected {
			d.Fatal(is, err)
		}
		is.Found, is.Troubles = append(all.Found, is.Found...), append(all.Troubles, is.Troubles...)
		if all = is; len(is.Again) == 0 {
			return all
		}
		l.Queues = is.Again
	}
	d.Fatal("want an end of looking, have none")
	return all
}

func about(d *desk, what string, have, want float64) {
	d.Helper()
	if have < want-1 || have > want+10 {
		d.Errorf("%s: want about %.3f, have %.3f", what, want, have)
	}
}

func TestUpkeepElectsOne(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		two := &taskredis.Upkeep{Redis: d.rdb, Session: "two", Queues: []string{d.r, d.q}}
		other := &taskredis.Upkeep{Redis: d.rdb, Session: "three", Queues: []string{d.r}}
		elected := func(u *taskredis.Upkeep, want bool) {
			d.Helper()
			is, err := u.Look(d.Context(), taskredis.Look{})
			if err != nil || is.Elected != want {
				d.Errorf("%s: want elected to be %t, have %t, %v", u.Session, want, is.Elected, err)
			}
		}
		elected(d.Upkeep, true)
		elected(two, false)
		elected(d.Upkeep, true)
		elected(other, true)
		if left := value(d, d.rdb.PTTL(d.Context(), d.Key())); left <= 0 || left > taskredis.ElectedFor {
			d.Errorf("want it elected for %v, have %v", taskredis.ElectedFor, left)
		}
		if err := two.Resign(d.Context()); err != nil { // changes nothing
			d.Error(err)
		}
		elected(two, false)
		value(d, d.rdb.Del(d.Context(), d.Key()))
		elected(two, true)
		elected(d.Upkeep, false)
		d.task("late", "scheduled")
		d.add(taskredis.ScheduledKey(d.q), "late", 1)
		if is, err := d.Look(d.Context(), taskredis.Look{Queues: []string{d.q}}); err != nil || is.Elected || d.state("late") != "scheduled" {
			d.Errorf("want nothing done by a server that is not elected, have %v, %v", is, err)
		}
		value(d, d.rdb.Del(d.Context(), other.Key()))
		value(d, d.rdb.HSet(d.Context(), other.Key(), "another", "type"))
		elected(other, true)
	})
}

// A server that ends lets the next one be elected at once.
func TestUpkeepResigns(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		d.looks(taskredis.Look{})
		if err := d.Resign(d.Context()); err != nil {
			d.Fatal(err)
		}
		if left := value(d, d.rdb.PTTL(d.Context(), d.Key())); left > time.Millisecond {
			d.Errorf("want it elected for a ms at most, have %v", left)
		}
	})
}

func TestUpkeepForwardsWhatIsDue(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		for id, c := range map[string]struct {
			key, state string
			at         time.Duration
			fields     []any
			want       string
		}{
			"scheduled":       {taskredis.ScheduledKey(d.q), "scheduled", -time.Second, nil, "pending"},
			"scheduled-later": {taskredis.ScheduledKey(d.q), "scheduled", 20 * time.Second, nil, "scheduled"},
			"group":           {taskredis.ScheduledKey(d.q), "scheduled", -time.Second, []any{"group", "g1"}, "aggregating"},
			"failed":          {taskredis.RetryKey(d.q), "retry", -time.Second, nil, "pending"},
			"failed-group":    {taskredis.RetryKey(d.q), "retry", -time.Second, []any{"group", "g1"}, "aggregating"},
			"failed-later":    {taskredis.RetryKey(d.q), "retry", 30 * time.Second, nil, "retry"},
			"failed-in-place": {taskredis.RetryKey(d.q), "retry", -time.Second, []any{"siding_lock", d.lock, "siding_ticket", 5, "siding_until", 77}, "pending"},
			"failed-long-ago": {taskredis.RetryKey(d.q), "retry", -240 * time.Hour, []any{"siding_lock", d.lock, "siding_until", text(d.in(-240 * time.Hour))}, "pending"},
			"without-a-lock":  {taskredis.RetryKey(d.q), "retry", -time.Second, []any{"siding_lock", "", "siding_ticket", 7, "siding_until", d.now.Unix() - 1}, "pending"},
			"in-two-states":   {taskredis.RetryKey(d.q), "active", -time.Second, []any{"siding_lock", d.lock, "siding_ticket", 7, "siding_until", d.now.Unix() - 1}, "pending"},
		} {
			d.task(id, c.state, c.fields...)
			d.add(c.key, id, float64(d.now.Add(c.at).Unix()))
			defer func() { expect.Equal(d, id, d.state(id), c.want) }()
		}
		d.add(taskredis.RetryKey(d.q), "deleted", 5)
		is := d.looks(taskredis.Look{})
		if len(is.Troubles) > 0 || len(is.Found) == 0 || is.Found[0] != d.q {
			d.Errorf("want the queue found, and no trouble, have %v and %q", is.Found, is.Troubles)
		}
		expect.Equal(d, "next", is.Next, 1e6*d.now.Add(20*time.Second).Unix())
		expect.Equal(d, "scheduled", value(d, d.rdb.ZCard(d.Context(), taskredis.ScheduledKey(d.q))), 1)
		expect.Equal(d, "retry", value(d, d.rdb.ZCard(d.Context(), taskredis.RetryKey(d.q))), 1)
		expect.Equal(d, "pending", value(d, d.rdb.LLen(d.Context(), taskredis.PendingKey(d.q))), 6)
		about(d, "score in the group", d.score(taskredis.GroupKey(d.q, "g1"), "group"), float64(d.now.Unix()))
		expect.Equal(d, "notified", value(d, d.rdb.LLen(d.Context(), taskredis.NotifyKey(d.q))), 1)
		since, err := strconv.ParseInt(value(d, d.rdb.HGet(d.Context(), taskredis.TaskKey(d.q, "failed"), "pending_since")), 10, 64)
		if err != nil {
			d.Error(err)
		}
		about(d, "pending since", float64(since)/1e9, d.in(0))
	})
}

// asynq's Inspector sees the same of a task that upkeep has forwarded as of one that asynq has.
func TestUpkeepForwardsForInspector(t *testing.T) {
	t.Parallel()
	d := newDesk(t, redistest.Shared(t).Client(t))
	client := asynq.NewClientFromRedisClient(d.rdb)
	for _, id := range []string{"plain", "grouped"} {
		_, err := client.EnqueueContext(t.Context(), asynq.NewTask("kind", []byte("{}")), asynq.TaskID(id), asynq.Queue(d.q), asynq.ProcessIn(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		d.add(taskredis.ScheduledKey(d.q), id, 5)
	}
	value(d, d.rdb.HSet(t.Context(), taskredis.TaskKey(d.q, "grouped"), "group", "g")) // asynq's client leaves that out
	d.looks(taskredis.Look{})
	inspector := asynq.NewInspectorFromRedisClient(d.rdb)
	for id, want := range map[string]asynq.TaskState{"plain": asynq.TaskStatePending, "grouped": asynq.TaskStateAggregating} {
		if info, err := inspector.GetTaskInfo(d.q, id); err != nil || info.State != want {
			t.Errorf("%s: want %v, have %+v, %v", id, want, info, err)
		}
	}
	info, err := inspector.GetQueueInfo(d.q)
	if err != nil || info.Pending != 1 || info.Aggregating != 1 || info.Groups != 1 || info.Scheduled != 0 || info.Latency > time.Minute {
		t.Errorf("want one pending and one aggregating task, have %+v, %v", info, err)
	}
}

func TestUpkeepJudgesWaitingTasks(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		ctx := d.Context()
		past, hours := float64(d.now.Unix()-5), d.in(3*time.Hour)
		deadline := func(id string, at float64) {
			value(d, d.rdb.HSet(ctx, taskredis.TaskKey(d.q, id), "siding_deadline", text(at)))
		}
		d.waits("goes on", 10, past)
		d.waits("has a deadline soon", 11, past)
		soon := float64(d.now.Unix() + 100)
		deadline("has a deadline soon", soon)
		d.waits("is over", 12, past)
		deadline("is over", past)
		d.waits("waits still", 13, float64(d.now.Unix()+50))

		is := d.looks(taskredis.Look{})
		for id, want := range map[string]float64{"goes on": hours, "has a deadline soon": soon, "waits still": float64(d.now.Unix() + 50)} {
			about(d, id, d.score(taskredis.RetryKey(d.q), id), want)
			expect.Equal(d, id+": until", value(d, d.rdb.HGet(ctx, taskredis.TaskKey(d.q, id), "siding_until")), text(d.score(taskredis.RetryKey(d.q), id)))
			expect.Equal(d, id, d.state(id), "retry")
		}
		expect.Equal(d, "is over", d.state("is over"), "pending")
		expect.Equal(d, "next", is.Next, 1e6*(d.now.Unix()+50))
		line := value(d, d.rdb.ZRange(ctx, taskredis.LineKey(d.q, d.lock), 0, -1))
		expect.Equal(d, "line", strings.Join(line, ", "), "goes on, has a deadline soon, waits still")
		expect.Equal(d, "ready", d.score(taskredis.ReadyKey(d.q), d.lock), 1e6*d.in(time.Hour)) // nothing was lost
	})
}

// Whatever of a waiting task's place is lost, it is there again.
func TestUpkeepPutsWaitingTasksBack(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(d *desk){
		"line":             func(d *desk) { value(d, d.rdb.Del(d.Context(), taskredis.LineKey(d.q, d.lock))) },
		"ready set":        func(d *desk) { value(d, d.rdb.Del(d.Context(), taskredis.ReadyKey(d.q))) },
		"lines":            func(d *desk) { value(d, d.rdb.Del(d.Context(), taskredis.LinesKey(d.lock))) },
		"type of the line": func(d *desk) { value(d, d.rdb.Set(d.Context(), taskredis.LineKey(d.q, d.lock), "x", 0)) },
		"type of ready":    func(d *desk) { value(d, d.rdb.Set(d.Context(), taskredis.ReadyKey(d.q), "x", 0)) },
		"type of lines":    func(d *desk) { value(d, d.rdb.Set(d.Context(), taskredis.LinesKey(d.lock), "x", 0)) },
		"all": func(d *desk) {
			value(d, d.rdb.Del(d.Context(), taskredis.LinesKey(d.lock), taskredis.ReadyKey(d.q), taskredis.LineKey(d.q, d.lock)))
		},
	} {
		for how, repair := range map[string]func(d *desk){
			"by going through all": func(d *desk) { expect.Equal(d, "mended", d.mends().Waiting > 0, true) },
			"when it is due":       func(d *desk) { d.looks(taskredis.Look{}) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				atDesk(t, func(d *desk) {
					d.waits("first", 1_700_000_000_000_001, 5)
					d.waits("second", 1_700_000_000_000_002, 5)
					d.waits("third", 1_700_000_000_000_003, 5)
					lose(d)
					repair(d)
					line := value(d, d.rdb.ZRange(d.Context(), taskredis.LineKey(d.q, d.lock), 0, -1))
					expect.Equal(d, "line", strings.Join(line, ", "), "first, second, third")
					expect.Equal(d, "lines", d.score(taskredis.LinesKey(d.lock), d.q), 1_700_000_000_000_001)
					about(d, "ready", d.score(taskredis.ReadyKey(d.q), d.lock)/1e6, d.in(0))
				})
			})
		}
	}
}

// mends goes through all queues once.
func (d *desk) mends() (all taskredis.Mended) {
	d.Helper()
	var at taskredis.Place
	for range 1000 {
		m, err := d.Mend(d.Context(), &at)
		if err != nil {
			d.Fatal(err)
		}
		all.Waiting, all.Active, all.Troubles = all.Waiting+m.Waiting, all.Active+m.Active, append(all.Troubles, m.Troubles...)
		if m.Done {
			return all
		}
	}
	d.Fatal("want an end of mending, have none")
	return all
}

func TestUpkeepFindsNothingToMend(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		for i := range 450 {
			d.waits(fmt.Sprint(i), 100+i, 5)
		}
		d.active("running", d.in(20*time.Second))
		d.task("failed", "retry", "siding_lock", d.lock, "siding_ticket", 4, "siding_until", 6)
		d.add(taskredis.RetryKey(d.q), "failed", 7)
		m := d.mends()
		expect.Equal(d, "waiting", m.Waiting, 0)
		expect.Equal(d, "active", m.Active, 0)
		expect.Equal(d, "troubles", len(m.Troubles), 0)
		expect.Equal(d, "ready", d.score(taskredis.ReadyKey(d.q), d.lock), 1e6*d.in(time.Hour))
		value(d, d.rdb.Del(d.Context(), taskredis.LineKey(d.q, d.lock)))
		expect.Equal(d, "waiting", d.mends().Waiting, 450)
	})
}

func TestUpkeepGivesLeases(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		value(d, d.rdb.Set(d.Context(), d.lock, "attempt", 10*time.Second))
		for id, fields := range map[string][]any{
			"plain": nil, "unguarded": {"siding_attempt", "a", "siding_lock", ""},
			"guarded": {"siding_attempt", "attempt", "siding_lock", d.lock}, "crashed": {"siding_attempt", "before", "siding_lock", d.lock},
			"leased": nil,
		} {
			d.active(id, 5, fields...)
		}
		value(d, d.rdb.ZRem(d.Context(), taskredis.LeaseKey(d.q), "plain", "unguarded", "guarded", "crashed"))
		expect.Equal(d, "given", d.mends().Active, 4)
		for id, want := range map[string]float64{
			"plain": d.in(30 * time.Second), "unguarded": d.in(30 * time.Second), "guarded": d.in(10 * time.Second), "crashed": d.in(0), "leased": 5,
		} {
			about(d, id, d.score(taskredis.LeaseKey(d.q), id), want)
		}
	})
}

// Of thousands of active tasks each round looks at a part.
func TestUpkeepGivesLeasesToMany(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		var ids []any
		for i := range 1200 {
			ids = append(ids, fmt.Sprint(i))
		}
		value(d, d.rdb.LPush(d.Context(), taskredis.ActiveKey(d.q), ids...))
		var at taskredis.Place
		given := 0
		for range 3 {
			m, err := d.Mend(d.Context(), &at)
			if err != nil || !m.Done {
				d.Fatal(m, err)
			}
			given += m.Active
		}
		expect.Equal(d, "given", given, 1200)
		expect.Equal(d, "leases", value(d, d.rdb.ZCard(d.Context(), taskredis.LeaseKey(d.q))), 1200)
	})
}

// A clock that steps back by days leaves times that lie too far ahead.
func TestUpkeepCutsWhatIsTooFarAhead(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		d.waits("waits", 1, d.in(72*time.Hour))
		d.add(taskredis.ReadyKey(d.q), "lock:far", 1e6*d.in(time.Minute))
		d.add(taskredis.ReadyKey(d.q), "lock:near", 1e6*d.in(10*time.Second))
		d.active("far", d.in(time.Minute))
		d.active("near", d.in(25*time.Second))
		for id, ttl := range map[string]time.Duration{"short": 5 * time.Second, "usual": 15 * time.Second, "long": time.Hour} {
			value(d, d.rdb.Set(d.Context(), "lock:"+id, id, ttl+15*time.Second))
			d.active(id, d.in(ttl+15*time.Second), "siding_attempt", id, "siding_lock", "lock:"+id, "siding_ttl", ttl.Milliseconds())
		}
		d.active("other", d.in(50*time.Second), "siding_attempt", "other", "siding_lock", "lock:limited") // it does not know its permit
		value(d, d.rdb.Set(d.Context(), "lock:limited", "siding-limited", 40*time.Second))
		d.looks(taskredis.Look{})
		expect.Equal(d, "far", d.score(taskredis.ReadyKey(d.q), "lock:far"), 1e6*d.in(time.Minute))
		is := d.looks(taskredis.Look{Cut: true})
		expect.Equal(d, "troubles", len(is.Troubles), 0)
		for what, want := range map[string]float64{"lock:far": d.in(0), d.lock: d.in(0), "lock:near": d.in(10 * time.Second)} {
			about(d, what, d.score(taskredis.ReadyKey(d.q), what)/1e6, want)
		}
		about(d, "far", d.score(taskredis.LeaseKey(d.q), "far"), d.in(0))
		about(d, "near", d.score(taskredis.LeaseKey(d.q), "near"), d.in(25*time.Second))
		for id, want := range map[string]struct{ lease, lock float64 }{"short": {5, 5}, "usual": {15, 15}, "long": {0, 3600}} {
			about(d, "lease of "+id, d.score(taskredis.LeaseKey(d.q), id)-d.in(0), want.lease)
			about(d, "lock of "+id, value(d, d.rdb.PTTL(d.Context(), "lock:"+id)).Seconds(), want.lock)
		}
		expect.Equal(d, "found", slices.Contains(is.Found, d.q), true)
		d.mends()
		about(d, "waits", d.score(taskredis.RetryKey(d.q), "waits"), d.in(3*time.Hour))
		expect.Equal(d, "until", value(d, d.rdb.HGet(d.Context(), taskredis.TaskKey(d.q, "waits"), "siding_until")), text(d.score(taskredis.RetryKey(d.q), "waits")))
	})
}

// A queue with very much to do does not hold up the others, and all gets done.
func TestUpkeepIsFairToQueues(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		for i := range 550 {
			id := fmt.Sprint("scheduled", i)
			d.task(id, "scheduled")
			d.add(taskredis.ScheduledKey(d.q), id, 5)
			d.task("failed"+id, "retry")
			d.add(taskredis.RetryKey(d.q), "failed"+id, 5)
		}
		value(d, d.rdb.HSet(d.Context(), taskredis.TaskKey(d.r, "other"), "state", "scheduled"))
		d.add(taskredis.ScheduledKey(d.r), "other", 5)
		is, err := d.Look(d.Context(), taskredis.Look{Queues: []string{d.q, d.r}})
		if err != nil || !slices.Equal(is.Again, []string{d.r, d.q}) {
			d.Fatalf("want r again, and then q, have %v, %v", is.Again, err)
		}
		expect.Equal(d, "moved in a call", value(d, d.rdb.LLen(d.Context(), taskredis.PendingKey(d.q))), 100)
		is, err = d.Look(d.Context(), taskredis.Look{Queues: is.Again})
		if err != nil {
			d.Fatal(err)
		}
		expect.Equal(d, "pending in r", value(d, d.rdb.LLen(d.Context(), taskredis.PendingKey(d.r))), 1)
		d.looks(taskredis.Look{Queues: is.Again})
		expect.Equal(d, "pending", value(d, d.rdb.LLen(d.Context(), taskredis.PendingKey(d.q))), 1100)
	})
}

// What cannot be read is set aside and told of; all else goes on.
func TestUpkeepSetsAsideWhatItCannotRead(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		ctx := d.Context()
		value(d, d.rdb.Set(ctx, taskredis.TaskKey(d.q, "bad"), "no hash", 0))
		d.add(taskredis.RetryKey(d.q), "bad", 5)
		d.add(taskredis.LeaseKey(d.q), "bad", 5)
		d.waits("has no number", 1, 5)
		value(d, d.rdb.HSet(ctx, taskredis.TaskKey(d.q, "has no number"), "siding_ticket", "ten")) // it waits nowhere
		d.task("good", "retry")
		d.add(taskredis.RetryKey(d.q), "good", 6)
		value(d, d.rdb.Set(ctx, taskredis.ScheduledKey(d.r), "no set", 0))

		is := d.looks(taskredis.Look{Queues: []string{d.r, d.q}})
		expect.Equal(d, "good", d.state("good"), "pending")
		expect.Equal(d, "has no number", d.state("has no number"), "pending")
		all := strings.Join(is.Troubles, "\n")
		for _, want := range []string{"t:bad", "r}:scheduled"} {
			expect.Equal(d, "troubles name "+want+" in "+all, strings.Contains(all, want), true)
		}
		about(d, "bad", d.score(taskredis.RetryKey(d.q), "bad"), d.in(3*time.Hour))
		d.add(taskredis.RetryKey(d.q), "bad", 4) // comes first
		d.waits("lost its line", 1, 7)
		value(d, d.rdb.Del(ctx, taskredis.LineKey(d.q, d.lock)))
		value(d, d.rdb.Set(ctx, taskredis.ActiveKey(d.r), "no list", 0))
		value(d, d.rdb.Set(ctx, taskredis.RetryKey(d.r), "no set", 0))
		m := d.mends()
		expect.Equal(d, "mended", m.Waiting, 1)
		if len(m.Troubles) != 3 {
			d.Errorf("want 3 troubles, have %q", m.Troubles)
		}
		l, err := d.Leases(ctx, d.q, 0)
		if err != nil || len(l.Crashed) > 0 || l.Left != 1 || len(l.Troubles) != 1 {
			d.Errorf("want the bad lease left, and told of, have %+v, %v", l, err)
		}
	})
}

func TestUpkeepDeletesExpiredTasks(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		for i := range 450 {
			id := fmt.Sprint(i)
			d.task(id, "completed")
			d.add(taskredis.CompletedKey(d.q), id, float64(i+1))
		}
		d.task("fresh", "completed")
		d.add(taskredis.CompletedKey(d.q), "fresh", d.in(time.Minute))
		d.looks(taskredis.Look{})
		expect.Equal(d, "completed", value(d, d.rdb.ZCard(d.Context(), taskredis.CompletedKey(d.q))), 451)
		if _, err := d.Look(d.Context(), taskredis.Look{Queues: []string{d.q}, Clean: 100}); err != nil {
			d.Fatal(err)
		}
		expect.Equal(d, "completed", value(d, d.rdb.ZCard(d.Context(), taskredis.CompletedKey(d.q))), 351)
		d.looks(taskredis.Look{Clean: 1000})
		expect.Equal(d, "completed", value(d, d.rdb.ZCard(d.Context(), taskredis.CompletedKey(d.q))), 1)
		expect.Equal(d, "tasks", len(value(d, d.rdb.Keys(d.Context(), "asynq:{"+d.q+"}:t:*"))), 1)
	})
}

func TestUpkeepSaysWhenToLook(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		expect.Equal(d, "next of nothing", d.looks(taskredis.Look{}).Next, -1)
		d.add(taskredis.ReadyKey(d.q), d.lock, 1e6*d.in(30*time.Second))
		expect.Equal(d, "next of a lock", d.looks(taskredis.Look{}).Next, d.now.Add(30*time.Second).UnixMilli()*1000)
		d.active("a", d.in(20*time.Second))
		is := d.looks(taskredis.Look{})
		if after := is.Next - d.now.Add(20*time.Second).UnixMilli()*1000; after < 2000 || after > 2001 { // once its lock has gone, too
			d.Errorf("next of a lease: want it in 20 s, have it %d µs later", after)
		}
		expect.Equal(d, "found and ended", len(is.Found)+len(is.Ended), 0)
		d.add(taskredis.ReadyKey(d.q), d.lock, 1e6*d.in(0)-1)
		d.add(taskredis.LeaseKey(d.q), "a", d.in(-time.Second))
		d.task("b", "scheduled")
		d.add(taskredis.ScheduledKey(d.q), "b", float64(d.now.Unix()+10))
		is = d.looks(taskredis.Look{})
		expect.Equal(d, "found", strings.Join(is.Found, " "), d.q)
		expect.Equal(d, "ended", strings.Join(is.Ended, " "), d.q)
		expect.Equal(d, "next", is.Next, 1e6*(d.now.Unix()+10))
		// Nobody may take from a paused queue.
		value(d, d.rdb.Set(d.Context(), taskredis.PausedKey(d.q), "1", 0))
		expect.Equal(d, "found", len(d.looks(taskredis.Look{}).Found), 0)
	})
}

func TestUpkeepPeeks(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		paused := d.q + ":paused"
		peek := func(want ...taskredis.Peeked) {
			d.Helper()
			have, err := d.Peek(d.Context(), []string{d.q, d.r, paused})
			if err != nil {
				d.Fatal(err)
			}
			if want == nil && len(have) > 0 || want != nil && !slices.Equal([]taskredis.Peeked{have[d.q], have[d.r], have[paused]}, want) {
				d.Errorf("want %v, have %v", want, have)
			}
		}
		peek()
		value(d, d.rdb.LPush(d.Context(), taskredis.PendingKey(d.q), "a", "b"))
		value(d, d.rdb.LPush(d.Context(), taskredis.PendingKey(paused), "c"))
		value(d, d.rdb.Set(d.Context(), taskredis.PausedKey(paused), "1", 0))
		peek(taskredis.Woken, taskredis.Empty, taskredis.Paused)
		peek(taskredis.Busy, taskredis.Empty, taskredis.Paused)
		expect.Equal(d, "notified", value(d, d.rdb.LLen(d.Context(), taskredis.NotifyKey(d.q))), 1)
		value(d, d.rdb.Del(d.Context(), taskredis.NotifyKey(d.q))) // a server was idle
		peek(taskredis.Woken, taskredis.Empty, taskredis.Paused)
		expect.Equal(d, "notified", value(d, d.rdb.LLen(d.Context(), taskredis.NotifyKey(paused))), 0)
	})
}

func TestUpkeepFindsCrashes(t *testing.T) {
	t.Parallel()
	type crash struct {
		lease   time.Duration // from now
		fields  []any
		holds   string // what the lock has; "" if it is gone
		crashed bool
		found   bool // by a step
	}
	guarded := []any{"siding_attempt", "a", "siding_lock", "the lock"}
	asks := []any{"siding_attempt", "a", "siding_lock", "", "siding_resource", "r"}
	for name, c := range map[string]crash{
		"of asynq":                    {lease: -31 * time.Second, crashed: true},
		"of asynq, lately":            {lease: -20 * time.Second},
		"unguarded":                   {lease: -31 * time.Second, fields: []any{"siding_attempt", "a", "siding_lock", ""}, crashed: true},
		"unguarded, lately":           {lease: -20 * time.Second, fields: []any{"siding_attempt", "a", "siding_lock", ""}},
		"running":                     {lease: 5 * time.Second, fields: guarded},
		"guarded":                     {lease: -time.Second, fields: guarded, found: true},
		"before it asked":             {lease: -time.Second, fields: asks, found: true},
		"before it asked, too often":  {lease: -31 * time.Second, fields: append(asks, "siding_crashes", 3), crashed: true},
		"too often, lately":           {lease: -20 * time.Second, fields: append(asks, "siding_crashes", 3)},
		"guarded, somebody else's":    {lease: -time.Second, fields: guarded, holds: "b", found: true},
		"guarded, trusted":            {lease: -time.Hour, fields: guarded, holds: "a"},
		"guarded, twice":              {lease: -time.Second, fields: append(guarded, "siding_crashes", 2), found: true},
		"guarded, too often":          {lease: -time.Second, fields: append(guarded, "siding_crashes", 3), crashed: true},
		"guarded, too often, trusted": {lease: -time.Second, fields: append(guarded, "siding_crashes", 3), holds: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atDesk(t, func(d *desk) {
				if c.holds != "" {
					value(d, d.rdb.Set(d.Context(), d.lock, c.holds, time.Minute))
				}
				fields := slices.Clone(c.fields)
				if i := slices.Index(fields, any("the lock")); i >= 0 {
					fields[i] = d.lock
				}
				d.active("t", d.in(c.lease), fields...)
				l, err := d.Leases(d.Context(), d.q, 0)
				if err != nil || len(l.Crashed) > 0 != c.crashed || l.Found != c.found || l.More || len(l.Troubles) > 0 {
					d.Errorf("want crashed: %t, found: %t, have %+v, %v", c.crashed, c.found, l, err)
				}
				expect.Equal(d, "left", l.Left == 1, !c.crashed && c.lease < 0)
				expect.Equal(d, "notified", value(d, d.rdb.LLen(d.Context(), taskredis.NotifyKey(d.q))) == 1, c.found)
				expect.Equal(d, "state", d.state("t"), "active")
			})
		})
	}
}

// A script that fails between two writes leaves a task in two places, or in none but the active list.
func TestUpkeepSortsOutHalfDoneTasks(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		d.active("retried", 5)
		d.task("retried", "retry")
		d.add(taskredis.RetryKey(d.q), "retried", d.in(time.Hour))
		d.active("requeued", 5)
		d.task("requeued", "pending")
		value(d, d.rdb.LPush(d.Context(), taskredis.PendingKey(d.q), "requeued"))
		d.active("taken", 5)
		d.task("taken", "pending")
		d.active("deleted", 5)
		value(d, d.rdb.Del(d.Context(), taskredis.TaskKey(d.q, "deleted")))
		l, err := d.Leases(d.Context(), d.q, 0)
		if err != nil || len(l.Crashed) != 1 || l.Crashed[0].ID != "taken" || len(l.Troubles) > 0 {
			d.Fatalf("want the task that was taken, have %+v, %v", l, err)
		}
		expect.Equal(d, "active", strings.Join(value(d, d.rdb.LRange(d.Context(), taskredis.ActiveKey(d.q), 0, -1)), " "), "taken")
		expect.Equal(d, "lease", strings.Join(value(d, d.rdb.ZRange(d.Context(), taskredis.LeaseKey(d.q), 0, -1)), " "), "taken")
		if ended, err := d.End(d.Context(), l.Crashed[0], &taskredis.Outcome{Kind: taskredis.Retry, Message: []byte("m"), Counts: true}); err != nil || !ended {
			d.Error(ended, err)
		}
		expect.Equal(d, "state", d.state("taken"), "retry")
	})
}

// Many crashes are found page by page.
func TestUpkeepFindsManyCrashes(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		const each = 100
		for i := range each {
			d.active(fmt.Sprint(i), 5)
			d.active(fmt.Sprint("late ", i), d.in(-time.Second)) // a slow machine has half a minute until it has crashed
			d.active(fmt.Sprint("trusted ", i), 6, "siding_attempt", d.lock, "siding_lock", d.lock)
		}
		value(d, d.rdb.Set(d.Context(), d.lock, d.lock, 0))
		ended, skip, calls := 0, 0, 0
		for more := true; more; calls++ {
			l, err := d.Leases(d.Context(), d.q, skip)
			if err != nil || len(l.Crashed) > 10 {
				d.Fatal(len(l.Crashed), err)
			}
			for _, c := range l.Crashed {
				if done, err := d.End(d.Context(), c, &taskredis.Outcome{Kind: taskredis.Archive}); err != nil || !done {
					d.Fatal(done, err)
				}
				ended++
			}
			more = l.More
			skip += l.Left
		}
		expect.Equal(d, "ended", ended, each)
		expect.Equal(d, "left", skip, 2*each)
		expect.Equal(d, "active", value(d, d.rdb.LLen(d.Context(), taskredis.ActiveKey(d.q))), 2*each)
		if calls > 14 {
			d.Errorf("want about 12 calls, have %d", calls)
		}
	})
}

// A call finds a few crashes, and says that there are more.
func TestUpkeepFindsAFewCrashesAtOnce(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		for i := range 15 {
			d.active(fmt.Sprint(i), 5)
		}
		for _, want := range []int{10, 5} {
			l, err := d.Leases(d.Context(), d.q, 0)
			if err != nil || len(l.Crashed) != want || l.More != (want == 10) {
				d.Fatalf("want %d crashes, have %+v, %v", want, l, err)
			}
			for _, c := range l.Crashed {
				if ended, err := d.End(d.Context(), c, &taskredis.Outcome{Kind: taskredis.Archive}); err != nil || !ended {
					d.Fatal(ended, err)
				}
			}
		}
	})
}

func TestUpkeepEndsCrashes(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		d.active("retried", 5, "siding_attempt", "a", "siding_ticket", 5, "siding_text", "x")
		d.active("ignored", 5)
		d.active("archived", 5)
		l, err := d.Leases(d.Context(), d.q, 0)
		if err != nil || len(l.Crashed) != 3 {
			d.Fatal(l, err)
		}
		for _, c := range l.Crashed {
			kind := taskredis.Retry
			if c.ID == "archived" {
				kind = taskredis.Archive
			}
			before, err := d.Message(d.Context(), c)
			if err != nil {
				d.Fatal(err)
			}
			m, err := taskredis.DecodeMessage(before)
			if err != nil {
				d.Fatal(err)
			}
			m.ErrorMsg = "it crashed"
			if ended, err := d.End(d.Context(), c, &taskredis.Outcome{Kind: kind, Message: m.Encode(), Counts: c.ID == "retried"}); !ended || err != nil {
				d.Errorf("%s: want it ended, have %t, %v", c.ID, ended, err)
			}
			if ended, err := d.End(d.Context(), c, &taskredis.Outcome{Kind: kind, Message: m.Encode(), Counts: true}); ended || err != nil {
				d.Errorf("%s: want it ended once, have %t, %v", c.ID, ended, err)
			}
		}
		expect.Equal(d, "active and leased", value(d, d.rdb.Exists(d.Context(), taskredis.ActiveKey(d.q), taskredis.LeaseKey(d.q))), 0)
		expect.Equal(d, "fields", fmt.Sprint(value(d, d.rdb.HMGet(d.Context(), taskredis.TaskKey(d.q, "retried"), "siding_attempt", "siding_ticket", "siding_text"))), "[<nil> <nil> <nil>]")
		if strings.HasSuffix(d.Name(), "miniredis") {
			return // Inspector asks for MEMORY USAGE
		}
		value(d, d.rdb.SAdd(d.Context(), "asynq:queues", d.q))
		inspector := asynq.NewInspectorFromRedisClient(d.rdb)
		for id, want := range map[string]asynq.TaskState{"retried": asynq.TaskStateRetry, "ignored": asynq.TaskStateRetry, "archived": asynq.TaskStateArchived} {
			if info, err := inspector.GetTaskInfo(d.q, id); err != nil || info.State != want || info.LastErr != "it crashed" {
				d.Errorf("%s: want it %v, have %+v, %v", id, want, info, err)
			}
		}
		info, err := inspector.GetQueueInfo(d.q)
		if err != nil || info.Active != 0 || info.Retry != 2 || info.Archived != 1 || info.Processed != 2 || info.Failed != 2 || info.ProcessedTotal != 2 || info.FailedTotal != 2 {
			d.Errorf("want two failures, have %+v, %v", info, err)
		}
		if left := value(d, d.rdb.TTL(d.Context(), "asynq:{"+d.q+"}:failed:"+time.Now().UTC().Format(time.DateOnly))); left < 89*24*time.Hour || left > 91*24*time.Hour {
			d.Errorf("want statistics kept for 90 days, have %v", left)
		}
	})
}

// An attempt that goes on, or that another has followed, is left alone.
func TestUpkeepLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d *desk){
		"renewed": func(d *desk) { d.add(taskredis.LeaseKey(d.q), "t", d.in(30*time.Second)) },
		"another attempt": func(d *desk) {
			value(d, d.rdb.HSet(d.Context(), taskredis.TaskKey(d.q, "t"), "siding_attempt", "b"))
		},
		"retried":      func(d *desk) { d.task("t", "retry") },
		"lease gone":   func(d *desk) { value(d, d.rdb.ZRem(d.Context(), taskredis.LeaseKey(d.q), "t")) },
		"lock renewed": func(d *desk) { value(d, d.rdb.Set(d.Context(), d.lock, "a", time.Minute)) },
		"deleted":      func(d *desk) { value(d, d.rdb.Del(d.Context(), taskredis.TaskKey(d.q, "t"))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atDesk(t, func(d *desk) {
				d.active("t", 5, "siding_attempt", "a", "siding_lock", d.lock, "siding_crashes", 3)
				l, err := d.Leases(d.Context(), d.q, 0)
				if err != nil || len(l.Crashed) != 1 {
					d.Fatal(l, err)
				}
				change(d)
				before := value(d, d.rdb.HGetAll(d.Context(), taskredis.TaskKey(d.q, "t")))
				if ended, err := d.End(d.Context(), l.Crashed[0], &taskredis.Outcome{Kind: taskredis.Retry, Message: []byte("m"), Counts: true}); ended || err != nil {
					d.Errorf("want it left alone, have %t, %v", ended, err)
				}
				expect.Equal(d, "the task", fmt.Sprint(value(d, d.rdb.HGetAll(d.Context(), taskredis.TaskKey(d.q, "t")))), fmt.Sprint(before))
				expect.Equal(d, "active", value(d, d.rdb.LLen(d.Context(), taskredis.ActiveKey(d.q))), 1)
			})
		})
	}
}

// The archive keeps what asynq's keeps: 90 days, and fewer than 10,000 tasks.
func TestUpkeepTrimsTheArchive(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		archive := func(n int) {
			d.Helper()
			d.active("t", 5)
			l, err := d.Leases(d.Context(), d.q, 0)
			if err != nil || len(l.Crashed) != 1 {
				d.Fatal(l, err)
			}
			if ended, err := d.End(d.Context(), l.Crashed[0], &taskredis.Outcome{Kind: taskredis.Archive}); !ended || err != nil {
				d.Fatal(ended, err)
			}
			expect.Equal(d, "archived", value(d, d.rdb.ZCard(d.Context(), taskredis.ArchivedKey(d.q))), int64(n))
		}
		d.add(taskredis.ArchivedKey(d.q), "old", d.in(-91*24*time.Hour))
		d.task("old", "archived")
		d.add(taskredis.ArchivedKey(d.q), "kept", d.in(-89*24*time.Hour))
		archive(2)
		expect.Equal(d, "old", d.state("old"), "")
		var many []redis.Z
		for i := range 9999 {
			many = append(many, redis.Z{Member: i, Score: float64(d.now.Unix() - 100000 + int64(i))})
		}
		value(d, d.rdb.ZAdd(d.Context(), taskredis.ArchivedKey(d.q), many...))
		archive(9999)
		expect.Equal(d, "kept", d.score(taskredis.ArchivedKey(d.q), "kept"), 0)
		about(d, "t", d.score(taskredis.ArchivedKey(d.q), "t"), d.in(0))
	})
}

// While Redis has no memory left, tasks go on to be forwarded and ended, as that takes none.
func TestUpkeepWorksWithoutMemory(t *testing.T) {
	t.Parallel()
	d := newDesk(t, redistest.Start(t).Client(t))
	d.task("late", "scheduled")
	d.add(taskredis.ScheduledKey(d.q), "late", 5)
	d.active("crashed", 5)
	value(d, d.rdb.ConfigSet(t.Context(), "maxmemory", "1"))
	if err := d.rdb.Set(t.Context(), "x", "y", 0).Err(); err == nil {
		t.Fatal("want no memory left, have some")
	}
	d.looks(taskredis.Look{})
	expect.Equal(d, "late", d.state("late"), "pending")
	l, err := d.Leases(t.Context(), d.q, 0)
	if err != nil || len(l.Crashed) != 1 {
		t.Fatal(l, err)
	}
	if ended, err := d.End(t.Context(), l.Crashed[0], &taskredis.Outcome{Kind: taskredis.Retry, Message: []byte("m"), Counts: true}); !ended || err != nil {
		t.Error(ended, err)
	}
}
