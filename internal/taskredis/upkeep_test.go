package taskredis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A desk has two queues that are looked after, and a Redis clock.
type desk struct {
	*bench
	*Upkeep

	now  time.Time // Redis' clock when the test began
	q, r string    // queues
	lock string
}

func newDesk(b *bench) *desk {
	d := &desk{bench: b, q: b.queue + ":q", r: b.queue + ":r", lock: "lock:" + b.queue}
	d.Upkeep = &Upkeep{Redis: b.rdb, Session: "one", Queues: []string{d.q, d.r}, TTL: 15 * time.Second, Crashes: 3}
	d.now = value(d, b.rdb.Time(b.Context()))
	return d
}

func atDesk(t *testing.T, test func(d *desk)) {
	t.Helper()
	onRedis(t, func(t *bench) { test(newDesk(t)) })
}

// in returns a time in Unix seconds.
func (d *desk) in(after time.Duration) float64 { return float64(d.now.Add(after).UnixMilli()) / 1000 }

// task writes the hash of a task of q. fields are pairs.
func (d *desk) task(id, state string, fields ...any) {
	d.Helper()
	m := Message{Type: "kind", ID: id, Queue: d.q, Retry: 1, Payload: []byte("payload of " + id)}
	value(d, d.rdb.HSet(d.Context(), TaskKey(d.q, id), append([]any{"msg", m.Encode(), "state", state}, fields...)...))
}

// waits puts a task in line for lock, until then.
func (d *desk) waits(id string, ticket int, until float64) {
	d.Helper()
	d.task(id, "retry", "siding_lock", d.lock, "siding_ticket", ticket, "siding_until", text(until))
	d.add(RetryKey(d.q), id, until)
	d.add(LineKey(d.q, d.lock), id, float64(ticket))
	d.add(LinesKey(d.lock), d.q, float64(ticket))
	d.add(ReadyKey(d.q), d.lock, 1e6*d.in(time.Hour))
}

// active makes a task an active one with a lease.
func (d *desk) active(id string, lease float64, fields ...any) {
	d.Helper()
	d.task(id, "active", fields...)
	value(d, d.rdb.LPush(d.Context(), ActiveKey(d.q), id))
	d.add(LeaseKey(d.q), id, lease)
}

func text(score float64) string { return strconv.FormatFloat(score, 'f', -1, 64) }

func (d *desk) state(id string) string {
	d.Helper()
	return value(d, d.rdb.HGet(d.Context(), TaskKey(d.q, id), "state"))
}

func (d *desk) score(key, member string) float64 {
	d.Helper()
	return value(d, d.rdb.ZScore(d.Context(), key, member))
}

// looks looks until nothing is left to do, and returns the last answer, with all that was found.
func (d *desk) looks(l Look) Looked {
	d.Helper()
	var all Looked
	if l.Queues == nil {
		l.Queues = []string{d.q}
	}
	for range 1000 {
		is, err := d.Look(d.Context(), l)
		if err != nil || !is.Elected {
			d.Fatal(is, err)
		}
		is.Found, is.Troubles = append(all.Found, is.Found...), append(all.Troubles, is.Troubles...)
		if all = is; len(is.Unfinished) == 0 {
			return all
		}
		l.Queues = is.Unfinished
	}
	d.Fatal("want an end of looking, have none")
	return all
}

func about(d *desk, what string, have, want float64) {
	d.Helper()
	expect.That(d, have >= want-1 && have <= want+10, "%s: want about %.3f, have %.3f", what, want, have)
}

// A task stays the only one of its kind for as long as it waits; and one that has waited for too long does not go back to its group.
func TestUpkeepOfTasksThatWait(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		key := d.queue + ":unique"
		d.waits("unique", 1, d.in(-time.Second))
		value(d, d.rdb.HSet(d.Context(), TaskKey(d.q, "unique"), "unique_key", key))
		value(d, d.rdb.Set(d.Context(), key, "unique", time.Minute))
		d.waits("grouped", 2, d.in(-time.Second))
		value(d, d.rdb.HSet(d.Context(), TaskKey(d.q, "grouped"), "group", "g", "siding_deadline", text(d.in(-time.Second))))
		d.looks(Look{})
		left := value(d, d.rdb.TTL(d.Context(), key))
		expect.That(d, d.state("unique") == "retry" && left > 3*time.Hour, "want it waiting, and unique for 3 hours, have %s and %v", d.state("unique"), left)
		expect.Equal(d, "grouped", d.state("grouped"), "pending")
	})
}

func TestUpkeepElectsOne(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		two := &Upkeep{Redis: d.rdb, Session: "two", Queues: []string{d.r, d.q}}
		other := &Upkeep{Redis: d.rdb, Session: "three", Queues: []string{d.r}}
		elected := func(u *Upkeep, want bool) {
			d.Helper()
			is, err := u.Look(d.Context(), Look{})
			expect.That(d, err == nil && is.Elected == want, "%s: want elected to be %t, have %t, %v", u.Session, want, is.Elected, err)
		}
		elected(d.Upkeep, true)
		elected(two, false)
		elected(d.Upkeep, true)
		elected(other, true)
		left := value(d, d.rdb.PTTL(d.Context(), d.Key()))
		expect.That(d, left > 0 && left <= ElectedFor, "want it elected for %v, have %v", ElectedFor, left)
		if err := two.Resign(d.Context()); err != nil { // changes nothing
			d.Error(err)
		}
		elected(two, false)
		value(d, d.rdb.Del(d.Context(), d.Key()))
		elected(two, true)
		elected(d.Upkeep, false)
		d.task("late", "scheduled")
		d.add(ScheduledKey(d.q), "late", 1)
		if is, err := d.Look(d.Context(), Look{Queues: []string{d.q}}); err != nil || is.Elected || d.state("late") != "scheduled" {
			d.Errorf("want nothing done by a server that is not elected, have %v, %v", is, err)
		}
		value(d, d.rdb.Del(d.Context(), other.Key()))
		value(d, d.rdb.HSet(d.Context(), other.Key(), "another", "type"))
		elected(other, true)
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
			"scheduled":       {ScheduledKey(d.q), "scheduled", -time.Second, nil, "pending"},
			"scheduled-later": {ScheduledKey(d.q), "scheduled", 20 * time.Second, nil, "scheduled"},
			"group":           {ScheduledKey(d.q), "scheduled", -time.Second, []any{"group", "g1"}, "aggregating"},
			"failed":          {RetryKey(d.q), "retry", -time.Second, nil, "pending"},
			"failed-group":    {RetryKey(d.q), "retry", -time.Second, []any{"group", "g1"}, "aggregating"},
			"failed-later":    {RetryKey(d.q), "retry", 30 * time.Second, nil, "retry"},
			"failed-in-place": {RetryKey(d.q), "retry", -time.Second, []any{"siding_lock", d.lock, "siding_ticket", 5, "siding_until", 77}, "pending"},
			"failed-long-ago": {RetryKey(d.q), "retry", -240 * time.Hour, []any{"siding_lock", d.lock, "siding_until", text(d.in(-240 * time.Hour))}, "pending"},
			"without-a-lock":  {RetryKey(d.q), "retry", -time.Second, []any{"siding_lock", "", "siding_ticket", 7, "siding_until", d.now.Unix() - 1}, "pending"},
			"in-two-states":   {RetryKey(d.q), "active", -time.Second, []any{"siding_lock", d.lock, "siding_ticket", 7, "siding_until", d.now.Unix() - 1}, "pending"},
		} {
			d.task(id, c.state, c.fields...)
			d.add(c.key, id, float64(d.now.Add(c.at).Unix()))
			defer func() { expect.Equal(d, id, d.state(id), c.want) }()
		}
		d.add(RetryKey(d.q), "deleted", 5)
		is := d.looks(Look{})
		expect.That(d, len(is.Troubles) == 0 && len(is.Found) != 0 && is.Found[0] == d.q, "want the queue found, and no trouble, have %v and %q", is.Found, is.Troubles)
		expect.Equal(d, "next", is.Next, 1e6*d.now.Add(20*time.Second).Unix())
		expect.Equal(d, "scheduled", value(d, d.rdb.ZCard(d.Context(), ScheduledKey(d.q))), 1)
		expect.Equal(d, "retry", value(d, d.rdb.ZCard(d.Context(), RetryKey(d.q))), 1)
		expect.Equal(d, "pending", value(d, d.rdb.LLen(d.Context(), PendingKey(d.q))), 6)
		about(d, "score in the group", d.score(GroupKey(d.q, "g1"), "group"), float64(d.now.Unix()))
		expect.Equal(d, "groups", fmt.Sprint(value(d, d.rdb.SMembers(d.Context(), GroupsKey(d.q)))), "[g1]")
		expect.Equal(d, "notified", value(d, d.rdb.LLen(d.Context(), NotifyKey(d.q))), 1)
		since, err := strconv.ParseInt(value(d, d.rdb.HGet(d.Context(), TaskKey(d.q, "failed"), "pending_since")), 10, 64)
		expect.Is(d, "error", err, nil)
		about(d, "pending since", float64(since)/1e9, d.in(0))
	})
}

func TestUpkeepJudgesWaitingTasks(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		ctx := d.Context()
		past, hours := float64(d.now.Unix()-5), d.in(3*time.Hour)
		deadline := func(id string, at float64) {
			value(d, d.rdb.HSet(ctx, TaskKey(d.q, id), "siding_deadline", text(at)))
		}
		d.waits("goes on", 10, past)
		d.waits("has a deadline soon", 11, past)
		soon := float64(d.now.Unix() + 100)
		deadline("has a deadline soon", soon)
		d.waits("is over", 12, past)
		deadline("is over", past)
		d.waits("waits still", 13, float64(d.now.Unix()+50))

		is := d.looks(Look{})
		for id, want := range map[string]float64{"goes on": hours, "has a deadline soon": soon, "waits still": float64(d.now.Unix() + 50)} {
			about(d, id, d.score(RetryKey(d.q), id), want)
			expect.Equal(d, id+": until", value(d, d.rdb.HGet(ctx, TaskKey(d.q, id), "siding_until")), text(d.score(RetryKey(d.q), id)))
			expect.Equal(d, id, d.state(id), "retry")
		}
		expect.Equal(d, "is over", d.state("is over"), "pending")
		expect.Equal(d, "next", is.Next, 1e6*(d.now.Unix()+50))
		line := value(d, d.rdb.ZRange(ctx, LineKey(d.q, d.lock), 0, -1))
		expect.Equal(d, "line", strings.Join(line, ", "), "goes on, has a deadline soon, waits still")
		expect.Equal(d, "ready", d.score(ReadyKey(d.q), d.lock), 1e6*d.in(time.Hour)) // nothing was lost
	})
}

// Whatever of a waiting task's place is lost, it is there again.
func TestUpkeepPutsWaitingTasksBack(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(d *desk){
		"line":             func(d *desk) { value(d, d.rdb.Del(d.Context(), LineKey(d.q, d.lock))) },
		"ready set":        func(d *desk) { value(d, d.rdb.Del(d.Context(), ReadyKey(d.q))) },
		"lines":            func(d *desk) { value(d, d.rdb.Del(d.Context(), LinesKey(d.lock))) },
		"type of the line": func(d *desk) { value(d, d.rdb.Set(d.Context(), LineKey(d.q, d.lock), "x", 0)) },
		"type of ready":    func(d *desk) { value(d, d.rdb.Set(d.Context(), ReadyKey(d.q), "x", 0)) },
		"type of lines":    func(d *desk) { value(d, d.rdb.Set(d.Context(), LinesKey(d.lock), "x", 0)) },
		"all": func(d *desk) {
			value(d, d.rdb.Del(d.Context(), LinesKey(d.lock), ReadyKey(d.q), LineKey(d.q, d.lock)))
		},
	} {
		for how, repair := range map[string]func(d *desk){
			"by going through all": func(d *desk) { expect.Equal(d, "mended", d.mends().Waiting > 0, true) },
			"when it is due":       func(d *desk) { d.looks(Look{}) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				atDesk(t, func(d *desk) {
					d.waits("first", 1_700_000_000_000_001, 5)
					d.waits("second", 1_700_000_000_000_002, 5)
					d.waits("third", 1_700_000_000_000_003, 5)
					lose(d)
					repair(d)
					line := value(d, d.rdb.ZRange(d.Context(), LineKey(d.q, d.lock), 0, -1))
					expect.Equal(d, "line", strings.Join(line, ", "), "first, second, third")
					expect.Equal(d, "lines", d.score(LinesKey(d.lock), d.q), 1_700_000_000_000_001)
					about(d, "ready", d.score(ReadyKey(d.q), d.lock)/1e6, d.in(0))
				})
			})
		}
	}
}

// mends goes through all queues once.
func (d *desk) mends() (all Mended) {
	d.Helper()
	var at MendCursor
	for range 1000 {
		m := expect.Value(d.Mend(d.Context(), &at))(d)
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
		d.add(RetryKey(d.q), "failed", 7)
		m := d.mends()
		expect.Equal(d, "waiting", m.Waiting, 0)
		expect.Equal(d, "active", m.Active, 0)
		expect.Equal(d, "troubles", len(m.Troubles), 0)
		expect.Equal(d, "ready", d.score(ReadyKey(d.q), d.lock), 1e6*d.in(time.Hour))
		value(d, d.rdb.Del(d.Context(), LineKey(d.q, d.lock)))
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
		value(d, d.rdb.ZRem(d.Context(), LeaseKey(d.q), "plain", "unguarded", "guarded", "crashed"))
		expect.Equal(d, "given", d.mends().Active, 4)
		for id, want := range map[string]float64{
			"plain": d.in(30 * time.Second), "unguarded": d.in(30 * time.Second), "guarded": d.in(10 * time.Second), "crashed": d.in(0), "leased": 5,
		} {
			about(d, id, d.score(LeaseKey(d.q), id), want)
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
		value(d, d.rdb.LPush(d.Context(), ActiveKey(d.q), ids...))
		var at MendCursor
		given := 0
		for range 3 {
			m, err := d.Mend(d.Context(), &at)
			if err != nil || !m.Done {
				d.Fatal(m, err)
			}
			given += m.Active
		}
		expect.Equal(d, "given", given, 1200)
		expect.Equal(d, "leases", value(d, d.rdb.ZCard(d.Context(), LeaseKey(d.q))), 1200)
	})
}

// A clock that steps back by days leaves times that lie too far ahead.
func TestUpkeepCutsWhatIsTooFarAhead(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		d.waits("waits", 1, d.in(72*time.Hour))
		d.add(ReadyKey(d.q), "lock:far", 1e6*d.in(time.Minute))
		d.add(ReadyKey(d.q), "lock:near", 1e6*d.in(10*time.Second))
		d.active("far", d.in(time.Minute))
		d.active("near", d.in(25*time.Second))
		for id, ttl := range map[string]time.Duration{"short": 5 * time.Second, "usual": 15 * time.Second, "long": time.Hour} {
			value(d, d.rdb.Set(d.Context(), "lock:"+id, id, ttl+15*time.Second))
			d.active(id, d.in(ttl+15*time.Second), "siding_attempt", id, "siding_lock", "lock:"+id, "siding_ttl", ttl.Milliseconds())
		}
		d.active("other", d.in(50*time.Second), "siding_attempt", "other", "siding_lock", "lock:limited") // it does not know its permit
		value(d, d.rdb.Set(d.Context(), "lock:limited", "siding-limited", 40*time.Second))
		d.looks(Look{})
		expect.Equal(d, "far", d.score(ReadyKey(d.q), "lock:far"), 1e6*d.in(time.Minute))
		is := d.looks(Look{Cut: true})
		expect.Equal(d, "troubles", len(is.Troubles), 0)
		for what, want := range map[string]float64{"lock:far": d.in(0), d.lock: d.in(0), "lock:near": d.in(10 * time.Second)} {
			about(d, what, d.score(ReadyKey(d.q), what)/1e6, want)
		}
		about(d, "far", d.score(LeaseKey(d.q), "far"), d.in(0))
		about(d, "near", d.score(LeaseKey(d.q), "near"), d.in(25*time.Second))
		for id, want := range map[string]struct{ lease, lock float64 }{"short": {5, 5}, "usual": {15, 15}, "long": {0, 3600}} {
			about(d, "lease of "+id, d.score(LeaseKey(d.q), id)-d.in(0), want.lease)
			about(d, "lock of "+id, value(d, d.rdb.PTTL(d.Context(), "lock:"+id)).Seconds(), want.lock)
		}
		expect.Equal(d, "found", slices.Contains(is.Found, d.q), true)
		d.mends()
		about(d, "waits", d.score(RetryKey(d.q), "waits"), d.in(3*time.Hour))
		expect.Equal(d, "until", value(d, d.rdb.HGet(d.Context(), TaskKey(d.q, "waits"), "siding_until")), text(d.score(RetryKey(d.q), "waits")))
	})
}

// A queue with very much to do does not hold up the others, and all gets done.
func TestUpkeepIsFairToQueues(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		for i := range 550 {
			id := fmt.Sprint("scheduled", i)
			d.task(id, "scheduled")
			d.add(ScheduledKey(d.q), id, 5)
			d.task("failed"+id, "retry")
			d.add(RetryKey(d.q), "failed"+id, 5)
		}
		value(d, d.rdb.HSet(d.Context(), TaskKey(d.r, "other"), "state", "scheduled"))
		d.add(ScheduledKey(d.r), "other", 5)
		is, err := d.Look(d.Context(), Look{Queues: []string{d.q, d.r}})
		expect.Need(d, err == nil && slices.Equal(is.Unfinished, []string{d.r, d.q}), "want r again, and then q, have %v, %v", is.Unfinished, err)
		expect.Equal(d, "moved in a call", value(d, d.rdb.LLen(d.Context(), PendingKey(d.q))), 100)
		is, err = d.Look(d.Context(), Look{Queues: is.Unfinished})
		expect.OK(d, err)
		expect.Equal(d, "pending in r", value(d, d.rdb.LLen(d.Context(), PendingKey(d.r))), 1)
		d.looks(Look{Queues: is.Unfinished})
		expect.Equal(d, "pending", value(d, d.rdb.LLen(d.Context(), PendingKey(d.q))), 1100)
		// Nor does one that has much to clean up.
		for i := range 150 {
			d.add(CompletedKey(d.q), fmt.Sprint(i), 5)
		}
		expect.OK(d, expect.Err(d.Look(d.Context(), Look{Queues: []string{d.q}, Clean: 30})))
		expect.Equal(d, "completed", value(d, d.rdb.ZCard(d.Context(), CompletedKey(d.q))), 120)
	})
}

// What cannot be read is set aside and told of; all else goes on.
func TestUpkeepSetsAsideWhatItCannotRead(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		ctx := d.Context()
		value(d, d.rdb.Set(ctx, TaskKey(d.q, "bad"), "no hash", 0))
		d.add(RetryKey(d.q), "bad", 5)
		d.add(LeaseKey(d.q), "bad", 5)
		d.waits("has no number", 1, 5)
		value(d, d.rdb.HSet(ctx, TaskKey(d.q, "has no number"), "siding_ticket", "ten")) // it waits nowhere
		d.task("good", "retry")
		d.add(RetryKey(d.q), "good", 6)
		value(d, d.rdb.Set(ctx, ScheduledKey(d.r), "no set", 0))

		is := d.looks(Look{Queues: []string{d.r, d.q}})
		expect.Equal(d, "good", d.state("good"), "pending")
		expect.Equal(d, "has no number", d.state("has no number"), "pending")
		all := strings.Join(is.Troubles, "\n")
		for _, want := range []string{"t:bad", "r}:scheduled"} {
			expect.Equal(d, "troubles name "+want+" in "+all, strings.Contains(all, want), true)
		}
		about(d, "bad", d.score(RetryKey(d.q), "bad"), d.in(3*time.Hour))
		d.add(RetryKey(d.q), "bad", 4) // comes first
		d.waits("lost its line", 1, 7)
		value(d, d.rdb.Del(ctx, LineKey(d.q, d.lock)))
		value(d, d.rdb.Set(ctx, ActiveKey(d.r), "no list", 0))
		value(d, d.rdb.Set(ctx, RetryKey(d.r), "no set", 0))
		m := d.mends()
		expect.Equal(d, "mended", m.Waiting, 1)
		expect.That(d, len(m.Troubles) == 3, "want 3 troubles, have %q", m.Troubles)
		l, err := d.Leases(ctx, d.q, 0)
		expect.That(d, err == nil && len(l.Crashed) == 0 && l.Left == 1 && len(l.Troubles) == 1, "want the bad lease left, and told of, have %+v, %v", l, err)
	})
}

func TestUpkeepSaysWhenToLook(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		expect.Equal(d, "next of nothing", d.looks(Look{}).Next, -1)
		d.add(ReadyKey(d.q), d.lock, 1e6*d.in(30*time.Second))
		expect.Equal(d, "next of a lock", d.looks(Look{}).Next, d.now.Add(30*time.Second).UnixMilli()*1000)
		d.active("a", d.in(20*time.Second))
		is := d.looks(Look{})
		if after := is.Next - d.now.Add(20*time.Second).UnixMilli()*1000; after < 102000 || after > 102001 { // once its lock has gone, too
			d.Errorf("next of a lease: want it in 20 s, have it %d µs later", after)
		}
		expect.Equal(d, "found and ended", len(is.Found)+len(is.Ended), 0)
		d.add(ReadyKey(d.q), d.lock, 1e6*d.in(0)-1)
		d.add(LeaseKey(d.q), "a", d.in(-time.Second))
		d.task("b", "scheduled")
		d.add(ScheduledKey(d.q), "b", float64(d.now.Unix()+10))
		is = d.looks(Look{})
		expect.Equal(d, "found", strings.Join(is.Found, " "), d.q)
		expect.Equal(d, "ended", strings.Join(is.Ended, " "), d.q)
		expect.Equal(d, "next", is.Next, 1e6*(d.now.Unix()+10))
		// Nobody may take from a paused queue.
		value(d, d.rdb.Set(d.Context(), PausedKey(d.q), "1", 0))
		expect.Equal(d, "found", len(d.looks(Look{}).Found), 0)
	})
}

func TestUpkeepPeeks(t *testing.T) {
	t.Parallel()
	atDesk(t, func(d *desk) {
		paused := d.q + ":paused"
		peek := func(want ...Peeked) {
			d.Helper()
			have := expect.Value(d.Peek(d.Context(), []string{d.q, d.r, paused}))(d)
			if want == nil && len(have) > 0 || want != nil && !slices.Equal([]Peeked{have[d.q], have[d.r], have[paused]}, want) {
				d.Errorf("want %v, have %v", want, have)
			}
		}
		peek()
		value(d, d.rdb.LPush(d.Context(), PendingKey(d.q), "a", "b"))
		value(d, d.rdb.LPush(d.Context(), PendingKey(paused), "c"))
		value(d, d.rdb.Set(d.Context(), PausedKey(paused), "1", 0))
		peek(Woken, Empty, Paused)
		peek(Busy, Empty, Paused)
		expect.Equal(d, "notified", value(d, d.rdb.LLen(d.Context(), NotifyKey(d.q))), 1)
		value(d, d.rdb.Del(d.Context(), NotifyKey(d.q))) // a server was idle
		peek(Woken, Empty, Paused)
		expect.Equal(d, "notified", value(d, d.rdb.LLen(d.Context(), NotifyKey(paused))), 0)
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
				expect.Equal(d, "notified", value(d, d.rdb.LLen(d.Context(), NotifyKey(d.q))) == 1, c.found)
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
		d.add(RetryKey(d.q), "retried", d.in(time.Hour))
		d.active("requeued", 5)
		d.task("requeued", "pending")
		value(d, d.rdb.LPush(d.Context(), PendingKey(d.q), "requeued"))
		d.active("taken", 5)
		d.task("taken", "pending")
		d.active("deleted", 5)
		value(d, d.rdb.Del(d.Context(), TaskKey(d.q, "deleted")))
		l, err := d.Leases(d.Context(), d.q, 0)
		expect.Need(d, err == nil && len(l.Crashed) == 1 && l.Crashed[0].ID == "taken" && len(l.Troubles) == 0, "want the task that was taken, have %+v, %v", l, err)
		expect.Equal(d, "active", strings.Join(value(d, d.rdb.LRange(d.Context(), ActiveKey(d.q), 0, -1)), " "), "taken")
		expect.Equal(d, "lease", strings.Join(value(d, d.rdb.ZRange(d.Context(), LeaseKey(d.q), 0, -1)), " "), "taken")
		if ended, err := d.End(d.Context(), l.Crashed[0], &Outcome{Kind: Retry, Message: []byte("m"), Counts: true}); err != nil || !ended {
			d.Error(ended, err)
		}
		expect.Equal(d, "state", d.state("taken"), "retry")
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
			kind := Retry
			if c.ID == "archived" {
				kind = Archive
			}
			before := expect.Value(d.Message(d.Context(), c))(d)
			m := expect.Value(DecodeMessage(before))(d)
			m.ErrorMsg = "it crashed"
			if ended, err := d.End(d.Context(), c, &Outcome{Kind: kind, Message: m.Encode(), Counts: c.ID == "retried"}); !ended || err != nil {
				d.Errorf("%s: want it ended, have %t, %v", c.ID, ended, err)
			}
			if ended, err := d.End(d.Context(), c, &Outcome{Kind: kind, Message: m.Encode(), Counts: true}); ended || err != nil {
				d.Errorf("%s: want it ended once, have %t, %v", c.ID, ended, err)
			}
		}
		expect.Equal(d, "active and leased", value(d, d.rdb.Exists(d.Context(), ActiveKey(d.q), LeaseKey(d.q))), 0)
		expect.Equal(d, "fields", fmt.Sprint(value(d, d.rdb.HMGet(d.Context(), TaskKey(d.q, "retried"), "siding_attempt", "siding_ticket", "siding_text"))), "[<nil> <nil> <nil>]")
		left := value(d, d.rdb.TTL(d.Context(), "asynq:{"+d.q+"}:failed:"+time.Now().UTC().Format(time.DateOnly)))
		expect.That(d, left >= 89*24*time.Hour && left <= 91*24*time.Hour, "want statistics kept for 90 days, have %v", left)
	})
}

// An attempt that goes on, or that another has followed, is left alone.
func TestUpkeepLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d *desk){
		"renewed": func(d *desk) { d.add(LeaseKey(d.q), "t", d.in(30*time.Second)) },
		"another attempt": func(d *desk) {
			value(d, d.rdb.HSet(d.Context(), TaskKey(d.q, "t"), "siding_attempt", "b"))
		},
		"retried":      func(d *desk) { d.task("t", "retry") },
		"lease gone":   func(d *desk) { value(d, d.rdb.ZRem(d.Context(), LeaseKey(d.q), "t")) },
		"lock renewed": func(d *desk) { value(d, d.rdb.Set(d.Context(), d.lock, "a", time.Minute)) },
		"deleted":      func(d *desk) { value(d, d.rdb.Del(d.Context(), TaskKey(d.q, "t"))) },
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
				before := value(d, d.rdb.HGetAll(d.Context(), TaskKey(d.q, "t")))
				if ended, err := d.End(d.Context(), l.Crashed[0], &Outcome{Kind: Retry, Message: []byte("m"), Counts: true}); ended || err != nil {
					d.Errorf("want it left alone, have %t, %v", ended, err)
				}
				expect.Equal(d, "the task", fmt.Sprint(value(d, d.rdb.HGetAll(d.Context(), TaskKey(d.q, "t")))), fmt.Sprint(before))
				expect.Equal(d, "active", value(d, d.rdb.LLen(d.Context(), ActiveKey(d.q))), 1)
			})
		})
	}
}

// While Redis has no memory left, tasks go on to be forwarded and ended, as that takes none; and what is lost is put back.
func TestUpkeepWithoutMemory(t *testing.T) {
	t.Parallel()
	d := newDesk(newBench(t, redistest.Start(t).Client(t))) // of its own, as it gets full
	for i := range 120 {
		d.waits(fmt.Sprint(i), 100+i, d.in(time.Hour))
	}
	value(d, d.rdb.ZRem(t.Context(), LineKey(d.q, d.lock), "7"))
	d.task("late", "scheduled")
	d.add(ScheduledKey(d.q), "late", 5)
	d.active("crashed", 5)
	value(d, d.rdb.ConfigSet(t.Context(), "maxmemory", "1"))
	if err := d.rdb.Set(t.Context(), "x", "y", 0).Err(); err == nil {
		t.Fatal("want no memory left, have some")
	}
	d.looks(Look{})
	expect.Equal(d, "late", d.state("late"), "pending")
	l, err := d.Leases(t.Context(), d.q, 0)
	if err != nil || len(l.Crashed) != 1 {
		t.Fatal(l, err)
	}
	if ended, err := d.End(t.Context(), l.Crashed[0], &Outcome{Kind: Retry, Message: []byte("m"), Counts: true}); !ended || err != nil {
		t.Error(ended, err)
	}
	expect.Equal(d, "mended", d.mends().Waiting, 1)
	expect.Equal(d, "mended again", d.mends().Waiting, 0) // what is there stays as it is
	expect.Equal(d, "in line", value(d, d.rdb.ZCard(t.Context(), LineKey(d.q, d.lock))), 120)
}
