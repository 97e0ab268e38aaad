package taskredis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// more makes a step in which an attempt asks for at most so many tasks that wait for its lock.
func (s *stepper) more(first Taken, most int) (*Step, *Answer) {
	s.b.t.Helper()
	return s.make([]Outcome{{Name: first.Name, Kind: More, Most: most, Like: "kind"}}, 0)
}

// line has tasks of a queue wait for its lock a, behind one that has it.
func (s *stepper) line(queue string, ids ...string) (first Taken) {
	s.b.t.Helper()
	s.b.pending(queue, "first", "a")
	first = s.takes("first ", nil, 1, queue)[0]
	for _, id := range ids {
		s.b.pending(queue, id, "a")
	}
	s.takes("", nil, 1, queue)
	return first
}

// An attempt gets those that come next in its line, as many as it asks for, and nobody else begins before its lock is free.
func TestStepBeginsMore(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		s := b.server("one")
		first := s.line("q", "1", "2", "3", "4")
		step, a := s.more(first, 3)
		if idsOf(a.Taken) != "1 2 3 " || a.Results[0] != Begun {
			t.Fatalf("want the next three, have %q, %s", idsOf(a.Taken), a.Results[0])
		}
		again, err := s.Step(t.Context(), step)
		b.must(err)
		if len(again.Taken) != 3 || again.Results[0] != Begun {
			t.Fatalf("run twice: want the same, have %+v", again)
		}
		for i, member := range a.Taken {
			if member.Lock != "" || member.Fence != 0 || member.First != first.Name || member.Queue != "q" || member.Parked != 1 {
				t.Errorf("have %+v", member)
			}
			if again.Taken[i].Attempt != member.Attempt || again.Taken[i].First != member.First {
				t.Errorf("run twice: want %q, have %q", member.Attempt, again.Taken[i].Attempt)
			}
		}
		if _, none := s.more(first, 3); idsOf(none.Taken) != "4 " {
			t.Errorf("asked again: want the one that is left, have %q", idsOf(none.Taken))
		}
		b.pending("q", "5", "a")
		s.takes("", nil, 1, "q")
		s.takes("", done(a.Taken...), 1, "q")
		next := s.takes("5 ", done(first), 1, "q")
		four := b.rdb.HGet(t.Context(), TaskKey("q", "4"), "siding_attempt").Val()
		s.takes("", append(done(next...), Outcome{Name: Name{Queue: "q", ID: "4", Attempt: four}, Kind: Done}), 1, "q")
		b.gone()
	})
}

// Only those are begun that could begin one after the other: the first that cannot ends it, as nobody passes it.
func TestStepBeginsNoMore(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		ctx := t.Context()
		for name, spoil := range map[string]func(s *stepper, queue string, first *Taken) error{
			"deadline": func(_ *stepper, queue string, _ *Taken) error {
				return b.rdb.HSet(ctx, TaskKey(queue, "2"), "siding_deadline", 1).Err()
			},
			"wait over": func(_ *stepper, queue string, _ *Taken) error {
				return b.rdb.HSet(ctx, TaskKey(queue, "2"), "siding_wait_ends", 1).Err()
			},
			"no retries": func(_ *stepper, queue string, _ *Taken) error {
				return b.rdb.HSet(ctx, TaskKey(queue, "2"), "siding_once", 1).Err()
			},
			"crashed": func(_ *stepper, queue string, _ *Taken) error {
				return b.rdb.HSet(ctx, TaskKey(queue, "2"), "siding_crashes", 1).Err()
			},
			"held": func(_ *stepper, queue string, _ *Taken) error {
				return b.rdb.HSet(ctx, TaskKey(queue, "2"), "siding_held", "99999999999999999").Err()
			},
			"another kind": func(_ *stepper, queue string, _ *Taken) error {
				m := Message{Type: "kind2", ID: "2", Queue: queue}
				return b.rdb.HSet(ctx, TaskKey(queue, "2"), "msg", m.Encode()).Err()
			},
			"it runs by hand": func(_ *stepper, queue string, _ *Taken) error {
				return b.rdb.ZRem(ctx, RetryKey(queue), "2").Err()
			},
			"several": func(_ *stepper, queue string, _ *Taken) error {
				return b.rdb.HSet(ctx, TaskKey(queue, "2"), "siding_lock", "lock:a\nlock:b").Err()
			},
			"all: paused": func(_ *stepper, queue string, _ *Taken) error {
				return b.rdb.Set(ctx, PausedKey(queue), 1, 0).Err()
			},
			"all: not its lock": func(_ *stepper, _ string, _ *Taken) error { return b.rdb.Set(ctx, "lock:a", "other", 0).Err() },
			"all: revoked": func(_ *stepper, _ string, first *Taken) error {
				return b.rdb.Set(ctx, "lock:a", strings.Replace(first.Attempt, "siding:", "siding:revoked-", 1), time.Minute).Err()
			},
			"all: not its task": func(_ *stepper, queue string, _ *Taken) error {
				return b.rdb.HSet(ctx, TaskKey(queue, "first"), "siding_attempt", "other").Err()
			},
		} {
			b.must(b.rdb.FlushAll(ctx).Err())
			queue := strings.ReplaceAll(name, " ", "-")
			s := b.server(queue)
			first := s.line(queue, "1", "2", "3")
			b.must(spoil(s, queue, &first))
			want := "1 "
			if strings.HasPrefix(name, "all") {
				want = ""
			}
			if _, a := s.more(first, 3); idsOf(a.Taken) != want || a.Results[0] != Begun {
				t.Errorf("%s: want %q, have %q, %s", name, want, idsOf(a.Taken), a.Results[0])
			}
			if n := b.rdb.ZCard(ctx, LineKey(queue, "lock:a")).Val(); n != int64(3-len(want)/2) {
				t.Errorf("%s: %d are left in the line", name, n)
			}
		}
	})
}

// However attempts end, they keep or leave their places as others do, and never free the lock that they ran under.
func TestStepSettlesMore(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
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
			b.must(b.rdb.FlushAll(t.Context()).Err())
			s := b.server(name)
			first := s.line("q", "1", "2", "3")
			_, a := s.more(first, 2)
			message := b.rdb.HGet(t.Context(), TaskKey("q", "1"), "msg").Val()
			ends := func(member Taken) Outcome {
				o := tt.out
				o.Queue, o.ID, o.Attempt, o.Message = member.Queue, member.ID, member.Attempt, []byte(message)
				return o
			}
			second := Outcome{Name: a.Taken[1].Name, Kind: Requeue}
			second.Lock = "lock:a"
			s.takes("", []Outcome{ends(a.Taken[0]), second}, 3, "q")
			if have := b.rdb.Get(t.Context(), "lock:a").Val(); have != first.Attempt {
				t.Fatalf("%s: want the lock held, have %q", name, have)
			}
			have, out := "", done(first)
			expect.Eventually(t, name+": those that come next", func() bool { // once the line is not held any more
				_, a := s.make(out, 3, "q")
				have, out = have+idsOf(a.Taken), done(a.Taken...)
				return len(have) >= len(tt.want)
			})
			if have != tt.want {
				t.Errorf("%s: want %q next, have %q", name, tt.want, have)
			}
		}
	})
}

// Whoever ran under a lock that somebody else has by now has lost it, too; and nothing renews its lease.
func TestStepOfMoreUnderALostLock(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		s := b.server("one")
		first := s.line("q", "1")
		_, a := s.more(first, 1)
		member := a.Taken[0].Name
		b.must(b.rdb.Set(t.Context(), "lock:a", "other", time.Minute).Err())
		if kept, err := s.Renew(t.Context(), "", []Name{member}); err != nil || kept[0] {
			t.Errorf("renew: want it lost, have %v, %v", kept, err)
		}
		out := Outcome{Name: member, Kind: Done}
		out.Lock = "lock:a"
		if _, a := s.make([]Outcome{out}, 0); a.Results[0] != Lost {
			t.Errorf("want it lost, have %s", a.Results[0])
		}
		out.Lock = ""
		if _, a := s.make([]Outcome{out}, 0); a.Results[0] != Settled || b.rdb.Get(t.Context(), "lock:a").Val() != "other" {
			t.Errorf("want it settled, and the lock left alone, have %s", a.Results[0])
		}
	})
}

// The server dies: nobody has the lock before those are back in their places that ran under it, and while the lock lasts their
// leases do.
func TestStepPutsMoreBack(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		s, other, ctx := b.server("one"), b.server("two"), t.Context()
		first := s.line("q", "1", "2", "3")
		_, a := s.more(first, 2)
		names := []Name{first.Name, a.Taken[0].Name, a.Taken[1].Name}
		old := func(ids ...string) {
			for _, id := range ids {
				b.must(b.rdb.ZAdd(ctx, LeaseKey("q"), redis.Z{Score: 1, Member: id}).Err())
			}
		}
		old("first", "1", "2")
		if kept, err := s.Renew(ctx, "", names); err != nil || slices.Contains(kept, false) {
			t.Errorf("renew: have %v, %v", kept, err)
		}
		for _, id := range []string{"1", "2"} {
			if left := b.rdb.ZScore(ctx, LeaseKey("q"), id).Val() - float64(time.Now().Unix()); left < 10 || left > 20 {
				t.Errorf("renew: want a lease like that of the lock, have %v s", left)
			}
		}
		old("first", "1", "2")
		other.takes("", nil, 3, "q")
		if n := b.rdb.ZCount(ctx, LeaseKey("q"), "2", "+inf").Val(); n != 3 {
			t.Errorf("want three leases that last as long as the lock, have %d", n)
		}
		old("first", "1", "2")
		b.must(b.rdb.Del(ctx, "lock:a").Err())
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
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		ctx := t.Context()
		s := b.server("one")
		first := s.line("q", "1", "2", "3")
		step, a := s.more(first, 2)
		if idsOf(a.Taken) != "1 2 " {
			t.Fatalf("want the next two, have %q", idsOf(a.Taken))
		}
		b.must(b.rdb.Set(ctx, "lock:a", strings.Replace(first.Attempt, "siding:", "siding:revoked-", 1), time.Minute).Err())
		again, err := s.Step(ctx, step)
		b.must(err)
		if len(again.Taken) > 0 || len(again.Troubles) > 0 || again.Results[0] != Begun {
			t.Fatalf("run twice: want none that has lost its lock, have %+v", again)
		}
		for _, id := range []string{"1", "2"} {
			if have := b.rdb.HMGet(ctx, TaskKey("q", id), "state", "siding_attempt", "siding_crashes").Val(); !slices.Equal(have, []any{"retry", nil, nil}) {
				t.Errorf("%s: want it waiting, as if it had not begun, have %v", id, have)
			}
		}
		if value := b.rdb.Get(ctx, "lock:a").Val(); !strings.Contains(value, "revoked-") {
			t.Errorf("want the lock with the first until that has ended, have %q", value)
		}
		free := done(first)
		free[0].Lock = ""
		next := s.takes("1 ", free, 1, "q")
		next = s.takes("2 ", done(next...), 1, "q")
		next = s.takes("3 ", done(next...), 1, "q")
		s.takes("", done(next...), 1, "q")
		b.gone()
	})
}

// One that has crashed, and came before those that wait, is passed by none of them, and runs alone.
func TestStepRecoversBeforeMore(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		s := b.server("one")
		first := s.line("q", "1", "2", "3")
		s.more(first, 1)
		b.must(b.rdb.HSet(t.Context(), TaskKey("q", "1"), "siding_attempt", "siding:gone").Err()) // that of a server that is gone
		b.must(b.rdb.ZAdd(t.Context(), LeaseKey("q"), redis.Z{Score: 1, Member: "1"}).Err())
		if _, a := s.more(first, 2); idsOf(a.Taken) != "" || len(a.Recovered) != 1 {
			t.Errorf("want it back in its place, and nobody to begin, have %q, recovered %v", idsOf(a.Taken), a.Recovered)
		}
		one := s.takes("1 ", done(first), 1, "q")
		if _, a := s.more(one[0], 2); idsOf(a.Taken) != "" {
			t.Errorf("want it alone, have %q", idsOf(a.Taken))
		}
	})
}
