package taskredis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// more makes a step in which an attempt asks for at most so many tasks that wait for its lock.
func (s *stepper) more(first Taken, most int) (*Step, *Answer) {
	s.Helper()
	return s.make([]Outcome{{Name: first.Name, Kind: More, Most: most, Like: "kind"}}, 0)
}

// line has tasks of a queue wait for its lock a, behind one that has it.
func (s *stepper) line(queue string, ids ...string) (first Taken) {
	s.Helper()
	s.pending(queue, "first", "a")
	first = s.takes("first ", nil, 1, queue)[0]
	for _, id := range ids {
		s.pending(queue, id, "a")
	}
	s.takes("", nil, 1, queue)
	return first
}

// An attempt gets those that come next in its line, as many as it asks for, and nobody else begins before its lock is free.
func TestStepBeginsMore(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		first := s.line("q", "1", "2", "3", "4")
		step, a := s.more(first, 3)
		expect.Need(t, idsOf(a.Taken) == "1 2 3 " && a.Results[0] == Begun, "want the next three, have %q, %s", idsOf(a.Taken), a.Results[0])
		again := expect.Value(s.Step(t.Context(), step))(t)
		expect.Need(t, len(again.Taken) == 3 && again.Results[0] == Begun, "run twice: want the same, have %+v", again)
		for i, member := range a.Taken {
			expect.That(t, member.Lock == "" && member.Fence == 0 && member.First == first.Name && member.Queue == "q" && member.Parks == 1, "have %+v", member)
			if again.Taken[i].Attempt != member.Attempt || again.Taken[i].First != member.First {
				t.Errorf("run twice: want %q, have %q", member.Attempt, again.Taken[i].Attempt)
			}
		}
		_, none := s.more(first, 3)
		expect.That(t, idsOf(none.Taken) == "4 ", "asked again: want the one that is left, have %q", idsOf(none.Taken))
		t.pending("q", "5", "a")
		s.takes("", nil, 1, "q")
		s.takes("", done(a.Taken...), 1, "q")
		next := s.takes("5 ", done(first), 1, "q")
		four := t.rdb.HGet(t.Context(), TaskKey("q", "4"), "siding_attempt").Val()
		s.takes("", append(done(next...), Outcome{Name: Name{Queue: "q", ID: "4", Attempt: four}, Kind: Done}), 1, "q")
		t.gone()
	})
}

// Only those are begun that could begin one after the other: the first that cannot ends it, as nobody passes it.
func TestStepBeginsNoMore(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		with := func(id string, fields ...any) func(Taken) error {
			return func(Taken) error { return t.rdb.HSet(t.Context(), TaskKey("q", id), fields...).Err() }
		}
		other := Message{Type: "kind2", ID: "2", Queue: "q"}
		for name, spoil := range map[string]func(first Taken) error{
			"deadline":          with("2", "siding_deadline", 1),
			"wait over":         with("2", "siding_wait_ends", 1),
			"no retries":        with("2", "siding_once", 1),
			"crashed":           with("2", "siding_crashes", 1),
			"held":              with("2", "siding_held", "99999999999999999"),
			"another kind":      with("2", "msg", other.Encode()),
			"several":           with("2", "siding_lock", "lock:a\nlock:b"),
			"it runs by hand":   func(Taken) error { return t.rdb.ZRem(t.Context(), RetryKey("q"), "2").Err() },
			"all: paused":       func(Taken) error { return t.rdb.Set(t.Context(), PausedKey("q"), 1, 0).Err() },
			"all: not its lock": func(Taken) error { return t.rdb.Set(t.Context(), "lock:a", "other", 0).Err() },
			"all: not its task": with("first", "siding_attempt", "other"),
			"all: revoked": func(first Taken) error {
				return t.rdb.Set(t.Context(), "lock:a", strings.Replace(first.Attempt, "siding:", "siding:revoked-", 1), time.Minute).Err()
			},
		} {
			t.must(t.rdb.FlushAll(t.Context()).Err())
			s := t.server("one")
			first := s.line("q", "1", "2", "3")
			t.must(spoil(first))
			want := "1 "
			if strings.HasPrefix(name, "all") {
				want = ""
			}
			_, a := s.more(first, 3)
			expect.That(t, idsOf(a.Taken) == want && a.Results[0] == Begun, "%s: want %q, have %q, %s", name, want, idsOf(a.Taken), a.Results[0])
			n := t.rdb.ZCard(t.Context(), LineKey("q", "lock:a")).Val()
			expect.That(t, n == int64(3-len(want)/2), "%s: %d are left in the line", name, n)
		}
	})
}

// However attempts end, they keep or leave their places as others do, and never free the lock that they ran under.
func TestStepSettlesMore(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		for _, tt := range []struct {
			out  Outcome
			want string // who comes after the first
		}{
			{Outcome{Kind: Done}, "2 3 "},
			{Outcome{Kind: Requeue, Name: Name{Lock: "lock:a"}}, "1 2 3 "},
			{Outcome{Kind: Retry, Hold: true, After: 100 * time.Millisecond}, "1 2 3 "},
			{Outcome{Kind: Retry, After: time.Hour}, "2 3 "},
			{Outcome{Kind: Archive}, "2 3 "},
		} {
			name := fmt.Sprint(tt.out.Kind, tt.out.Hold)
			t.must(t.rdb.FlushAll(t.Context()).Err())
			s := t.server(name)
			first := s.line("q", "1", "2", "3")
			_, a := s.more(first, 2)
			message := t.rdb.HGet(t.Context(), TaskKey("q", "1"), "msg").Val()
			ends := func(member Taken) Outcome {
				o := tt.out
				o.Queue, o.ID, o.Attempt, o.Message = member.Queue, member.ID, member.Attempt, []byte(message)
				return o
			}
			second := Outcome{Name: a.Taken[1].Name, Kind: Requeue}
			second.Lock = "lock:a"
			s.takes("", []Outcome{ends(a.Taken[0]), second}, 3, "q")
			if have := t.rdb.Get(t.Context(), "lock:a").Val(); have != first.Attempt {
				t.Fatalf("%s: want the lock held, have %q", name, have)
			}
			have, out := "", done(first)
			expect.Eventually(t, name+": those that come next", func() bool { // once the line is not held any more
				_, a := s.make(out, 3, "q")
				have, out = have+idsOf(a.Taken), done(a.Taken...)
				return len(have) >= len(tt.want)
			})
			expect.That(t, have == tt.want, "%s: want %q next, have %q", name, tt.want, have)
		}
	})
}

// Whoever ran under a lock that somebody else has by now has lost it, too; and nothing renews its lease.
func TestStepOfMoreUnderALostLock(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		first := s.line("q", "1")
		_, a := s.more(first, 1)
		member := a.Taken[0].Name
		t.must(t.rdb.Set(t.Context(), "lock:a", "other", time.Minute).Err())
		kept := expect.Value(s.Renew(t.Context(), "", []Name{member}))(t)
		expect.That(t, !kept[0], "renew: want it lost, have %v", kept)
		out := Outcome{Name: member, Kind: Done}
		out.Lock = "lock:a"
		if _, a := s.make([]Outcome{out}, 0); a.Results[0] != Lost {
			t.Errorf("want it lost, have %s", a.Results[0])
		}
		out.Lock = ""
		if _, a := s.make([]Outcome{out}, 0); a.Results[0] != Settled || t.rdb.Get(t.Context(), "lock:a").Val() != "other" {
			t.Errorf("want it settled, and the lock left alone, have %s", a.Results[0])
		}
	})
}

// The server dies: nobody has the lock before those are back in their places that ran under it, and while the lock lasts their
// leases do.
func TestStepPutsMoreBack(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		s, other := t.server("one"), t.server("two")
		first := s.line("q", "1", "2", "3")
		_, a := s.more(first, 2)
		names := []Name{first.Name, a.Taken[0].Name, a.Taken[1].Name}
		old := func(ids ...string) {
			for _, id := range ids {
				t.add(LeaseKey("q"), id, 1)
			}
		}
		old("first", "1", "2")
		kept := expect.Value(s.Renew(t.Context(), "", names))(t)
		expect.That(t, !slices.Contains(kept, false), "renew: have %v", kept)
		for _, id := range []string{"1", "2"} {
			left := t.rdb.ZScore(t.Context(), LeaseKey("q"), id).Val() - float64(time.Now().Unix())
			expect.That(t, left >= 10 && left <= 20, "renew: want a lease like that of the lock, have %v s", left)
		}
		old("first", "1", "2")
		other.takes("", nil, 3, "q")
		n := t.rdb.ZCount(t.Context(), LeaseKey("q"), "2", "+inf").Val()
		expect.That(t, n == 3, "want three leases that last as long as the lock, have %d", n)
		old("first", "1", "2")
		t.must(t.rdb.Del(t.Context(), "lock:a").Err())
		for _, want := range []string{"first ", "1 ", "2 ", "3 "} {
			taken := other.takes(want, nil, 3, "q")
			if _, a := s.make(done(a.Taken...), 0); slices.Contains(a.Results, Settled) {
				t.Errorf("want what the dead server says to be stale, have %v", a.Results)
			}
			other.takes("", done(taken...), 0, "q")
		}
	})
}

// Members whose lock was revoked before anybody heard of them are back in their places when the step comes again, and not once their
// leases are over: else those behind them would begin as soon as the first has ended.
func TestStepPutsMoreBackThatNobodyHasHeardOf(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		first := s.line("q", "1", "2", "3")
		step, a := s.more(first, 2)
		expect.Need(t, idsOf(a.Taken) == "1 2 ", "want the next two, have %q", idsOf(a.Taken))
		t.must(t.rdb.Set(t.Context(), "lock:a", strings.Replace(first.Attempt, "siding:", "siding:revoked-", 1), time.Minute).Err())
		again := expect.Value(s.Step(t.Context(), step))(t)
		expect.Need(t, len(again.Taken) == 0 && len(again.Troubles) == 0 && again.Results[0] == Begun, "run twice: want none that has lost its lock, have %+v", again)
		for _, id := range []string{"1", "2"} {
			have := t.rdb.HMGet(t.Context(), TaskKey("q", id), "state", "siding_attempt", "siding_crashes").Val()
			expect.That(t, slices.Equal(have, []any{"retry", nil, nil}), "%s: want it waiting, as if it had not begun, have %v", id, have)
		}
		value := t.rdb.Get(t.Context(), "lock:a").Val()
		expect.That(t, strings.Contains(value, "revoked-"), "want the lock with the first until that has ended, have %q", value)
		free := done(first)
		free[0].Lock = ""
		next := s.takes("1 ", free, 1, "q")
		next = s.takes("2 ", done(next...), 1, "q")
		next = s.takes("3 ", done(next...), 1, "q")
		s.takes("", done(next...), 1, "q")
		t.gone()
	})
}

// A copy of the step comes late that has begun a task, which has failed since and runs in another server's batch. It is left to that.
func TestStepLeavesMoreToOthers(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		one, two := t.server("one"), t.server("two")
		t.pending("q", "1", "a")
		step, a := one.make(nil, 1, "q")
		failed := Outcome{Name: a.Taken[0].Name, Kind: Snooze, Message: a.Taken[0].Encoded, Last: true}
		expect.OK(t, expect.Err(one.Step(t.Context(), &Step{Lane: 1, Number: 1, Sent: step.Sent, Outcomes: []Outcome{failed}})))
		t.must(t.rdb.ZRem(t.Context(), RetryKey("q"), "1").Err())
		first := two.line("q")
		t.pending("q", "1", "a")
		two.takes("", nil, 1, "q")
		_, a = two.more(first, 1)
		expect.Need(t, idsOf(a.Taken) == "1 ", "want it in the batch, have %q", idsOf(a.Taken))
		again := expect.Value(one.Step(t.Context(), step))(t)
		expect.That(t, len(again.Taken) == 0, "want none, have %q", idsOf(again.Taken))
		two.takes("", done(a.Taken[0], first), 1, "q")
		t.gone()
	})
}

// One that has crashed, and came before those that wait, is passed by none of them, and runs alone.
func TestStepRecoversBeforeMore(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		first := s.line("q", "1", "2", "3")
		s.more(first, 1)
		t.must(t.rdb.HSet(t.Context(), TaskKey("q", "1"), "siding_attempt", "siding:gone").Err()) // that of a server that is gone
		t.add(LeaseKey("q"), "1", 1)
		if _, a := s.more(first, 2); idsOf(a.Taken) != "" || len(a.Recovered) != 1 {
			t.Errorf("want it back in its place, and nobody to begin, have %q, recovered %v", idsOf(a.Taken), a.Recovered)
		}
		one := s.takes("1 ", done(first), 1, "q")
		if _, a := s.more(one[0], 2); idsOf(a.Taken) != "" {
			t.Errorf("want it alone, have %q", idsOf(a.Taken))
		}
	})
}
