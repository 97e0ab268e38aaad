package taskredis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
)

// asks has the only pending task of a queue begin, and ask for the locks of its resources.
func (s *stepper) asks(queue, id string, resources ...string) (Outcome, Reply, Result) {
	s.b.t.Helper()
	s.b.pending(queue, id, store.Join(resources...))
	taken := s.takes(id+" ", nil, 1, queue)
	if taken[0].Lock != "" {
		s.b.t.Fatalf("want an attempt without a lock, have %q", taken[0].Lock)
	}
	ask := Outcome{Name: taken[0].Name, Kind: Ask, Want: locksOf(resources...)}
	_, a := s.make([]Outcome{ask}, 0)
	ask.Lock = a.Replies[0].Lock
	return ask, a.Replies[0], a.Results[0]
}

func locksOf(resources ...string) string {
	locks := slices.Clone(resources)
	for i, name := range locks {
		locks[i] = "lock:" + name
	}
	slices.Sort(locks)
	return store.JoinLocks(locks)
}

func (b *bench) want(key, want string) {
	b.t.Helper()
	have, err := b.rdb.Get(context.Background(), key).Result()
	if err != nil && err != redis.Nil { //nolint:errorlint // as go-redis returns it
		b.t.Fatal(err)
	}
	if have != want {
		b.t.Errorf("%s: want %q, have %q", key, want, have)
	}
}

// A task of several resources holds none of them until it can have all, and keeps its place in each line.
func TestStepTakesAllLocksOrNone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		s := b.server("one")
		b.pending("q", "a", "a")
		b.pending("q", "b", "b")
		holders := s.takes("a b ", nil, 2, "q")
		if _, _, result := s.asks("q", "set", "c", "b", "a"); result != Parked {
			t.Fatalf("want parked, have %s", result)
		}
		b.want("lock:c", "")
		for _, name := range []string{"a", "b", "c"} { // they come behind it, in each line
			b.pending("q", "behind-"+name, name)
		}
		s.takes("", nil, 3, "q")
		s.takes("", done(holders[0]), 3, "q")
		b.want("lock:a", "")
		set := s.takes("set ", done(holders[1]), 3, "q")
		if set[0].Lock != locksOf("a", "b", "c") || len(set[0].Fences) != 3 || set[0].Fence != set[0].Fences[0] || set[0].Parked != 1 || set[0].Freed == 0 {
			t.Errorf("have %+v", set[0])
		}
		for i, name := range []string{"a", "b", "c"} {
			b.want("lock:"+name, set[0].Attempt)
			b.want("{lock:"+name+"}:fence", fmt.Sprint(set[0].Fences[i]))
		}
		_, a := s.make(done(set...), 3, "q")
		if have := strings.Fields(idsOf(a.Taken)); len(have) != 3 {
			t.Errorf("want those behind it, have %v", have)
		}
		s.takes("", done(a.Taken...), 3, "q")
		b.gone()
	})
}

// The locks are granted at once if they are free, and each is renewed and freed.
func TestStepGrantsSeveralLocks(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		s, ctx := b.server("one"), t.Context()
		b.pending("q", "set", store.Join("a", "b"))
		taken := s.takes("set ", nil, 1, "q")
		step, a := s.make([]Outcome{{Name: taken[0].Name, Kind: Ask, Want: locksOf("a", "b")}}, 0)
		reply := a.Replies[0]
		if a.Results[0] != Granted || reply.Lock != locksOf("a", "b") || len(reply.Fences) != 2 {
			t.Fatalf("want two locks, have %s %+v", a.Results[0], reply)
		}
		again, err := s.Step(ctx, step)
		b.must(err)
		if again.Results[0] != Granted || again.Replies[0].Lock != reply.Lock || !slices.Equal(again.Replies[0].Fences, reply.Fences) {
			t.Errorf("run twice: want the same, have %s %+v", again.Results[0], again.Replies[0])
		}
		name := taken[0].Name
		name.Lock = reply.Lock
		for _, key := range []string{"lock:a", "lock:b"} {
			b.must(b.rdb.PExpire(ctx, key, time.Second).Err())
		}
		kept, err := s.Renew(ctx, "", []Name{name})
		b.must(err)
		for _, key := range []string{"lock:a", "lock:b"} {
			if left := b.rdb.PTTL(ctx, key).Val(); !kept[0] || left < 10*time.Second {
				t.Errorf("%s: want it renewed, have %v, %v", key, kept, left)
			}
		}
		s.takes("", []Outcome{{Name: name, Kind: Done}}, 1, "q")
		b.gone()
	})
}

// A task that begins with several locks out of its lines is told them again if the step runs twice.
func TestStepOfSeveralLocksRunsTwice(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		s := b.server("one")
		b.pending("q", "a", "a")
		holder := s.takes("a ", nil, 1, "q")
		s.asks("q", "set", "a", "b")
		step, a := s.make(done(holder...), 1, "q")
		again, err := s.Step(t.Context(), step)
		b.must(err)
		if len(a.Taken) != 1 || len(again.Taken) != 1 || again.Taken[0].Lock != a.Taken[0].Lock || again.Taken[0].Attempt != a.Taken[0].Attempt {
			t.Errorf("want the same, have %+v and %+v", a.Taken, again.Taken)
		}
	})
}

// One of its locks is gone, or revoked: the attempt has lost what protects it, and none of the others is free before its server
// has said what becomes of the task.
func TestStepOfOneLostLockOfSeveral(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		for _, revoked := range []bool{false, true} {
			queue := fmt.Sprint("q-", revoked)
			x, y := queue+"-x", queue+"-y"
			s, ctx := b.server("server of "+queue), t.Context()
			ask, reply, _ := s.asks(queue, "set", x, y)
			b.pending(queue, "x", x)
			b.pending(queue, "y", y)
			s.takes("", nil, 2, queue)
			if revoked {
				b.must(b.rdb.Set(ctx, "lock:"+y, strings.Replace(ask.Attempt, "siding:", "siding:revoked-", 1), redis.KeepTTL).Err())
			} else {
				b.must(b.rdb.Del(ctx, "lock:"+y).Err())
			}
			name := ask.Name
			name.Lock = reply.Lock
			kept, err := s.Renew(ctx, "", []Name{name})
			b.must(err)
			if kept[0] {
				t.Error("renew: want it lost")
			}
			message := b.rdb.HGet(ctx, TaskKey(queue, "set"), "msg").Val()
			out := Outcome{Name: name, Kind: Retry, Message: []byte(message), After: time.Hour, Hold: true}
			b.must(b.rdb.ZAdd(ctx, ReadyKey(queue), redis.Z{Score: 1, Member: "lock:" + y}).Err())
			if _, a := s.make([]Outcome{out}, 2, queue); a.Results[0] != Lost || idsOf(a.Taken) != "" {
				t.Errorf("want it lost, and nobody to begin, have %s %q", a.Results[0], idsOf(a.Taken))
			}
			out.Lock, out.Kind, out.Hold = "", Done, false
			_, a := s.make([]Outcome{out}, 2, queue)
			if have := strings.Fields(idsOf(a.Taken)); len(have) != 2 {
				t.Errorf("want those behind it, have %v", have)
			}
		}
	})
}

// Its server has died: the task is back at its place in each line before anybody else has one of its locks.
func TestStepPutsACrashedTaskBackIntoItsLines(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		s, ctx := b.server("one"), t.Context()
		s.asks("q", "set", "a", "b")
		b.pending("q", "a", "a")
		b.pending("q", "b", "b")
		s.takes("", nil, 2, "q")
		b.must(b.rdb.ZAdd(ctx, LeaseKey("q"), redis.Z{Score: 1, Member: "set"}).Err())
		other := b.server("two")
		other.takes("", nil, 2, "q") // as its locks last
		b.must(b.rdb.Del(ctx, "lock:a", "lock:b").Err())
		b.must(b.rdb.ZAdd(ctx, LeaseKey("q"), redis.Z{Score: 1, Member: "set"}).Err())
		b.must(b.rdb.ZAdd(ctx, ReadyKey("q"), redis.Z{Score: 1, Member: "lock:a"}, redis.Z{Score: 1, Member: "lock:b"}).Err())
		_, a := other.make(nil, 2, "q")
		if idsOf(a.Taken) != "set " || len(a.Recovered) != 1 || a.Recovered[0].Lock != locksOf("a", "b") {
			t.Fatalf("want the crashed task, have %q, recovered %v", idsOf(a.Taken), a.Recovered)
		}
		_, a = other.make(done(a.Taken...), 2, "q")
		if have := strings.Fields(idsOf(a.Taken)); len(have) != 2 {
			t.Errorf("want those behind it, have %v", have)
		}
	})
}

// Somebody has one of its locks by then: like each task of several that cannot begin, it is looked at within a second.
func TestStepLooksSoonAtACrashedTaskOfSeveral(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		s, ctx := b.server("one"), t.Context()
		s.asks("q", "set", "a", "b")
		b.must(b.rdb.Del(ctx, "lock:b").Err())
		b.must(b.rdb.Set(ctx, "lock:a", "siding:another:holder", 15*time.Second).Err())
		b.must(b.rdb.ZAdd(ctx, LeaseKey("q"), redis.Z{Score: 1, Member: "set"}).Err())
		_, a := b.server("two").make(nil, 1, "q")
		if due := a.Drawn[0].Due; len(a.Recovered) != 1 || due < 0 || due > time.Second {
			t.Errorf("want it looked at within a second, have recovered %v, and due in %v", a.Recovered, due)
		}
	})
}

// What keeps a task's place keeps it in each of its lines.
func TestStepKeepsThePlaceInSeveralLines(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		for _, how := range []Outcome{{Kind: Requeue}, {Kind: Again, First: true}, {Kind: Retry, Hold: true, After: 100 * time.Millisecond}} {
			queue := fmt.Sprint(how.Kind)
			x, y := queue+"-x", queue+"-y"
			s, ctx := b.server("server of "+queue), t.Context()
			ask, reply, _ := s.asks(queue, "set", x, y)
			b.pending(queue, "x", x)
			b.pending(queue, "y", y)
			s.takes("", nil, 2, queue)
			how.Name, how.Message = ask.Name, []byte(b.rdb.HGet(ctx, TaskKey(queue, "set"), "msg").Val())
			how.Lock = reply.Lock
			_, a := s.make([]Outcome{how}, 2, queue)
			for deadline := time.Now().Add(10 * time.Second); len(a.Taken) == 0 && time.Now().Before(deadline); {
				_, a = s.make(nil, 2, queue)
			}
			if idsOf(a.Taken) != "set " || a.Taken[0].Lock != reply.Lock {
				t.Errorf("%s: want the task first, have %q", how.Kind, idsOf(a.Taken))
			}
			_, a = s.make(done(a.Taken...), 2, queue)
			if have := strings.Fields(idsOf(a.Taken)); len(have) != 2 {
				t.Errorf("%s: want those behind it, have %v", how.Kind, have)
			}
		}
	})
}

// A line that has stopped holds each of the resources; an operator sets them all going.
func TestStepStopsSeveralLines(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		s, ctx := b.server("one"), t.Context()
		ask, reply, _ := s.asks("q", "set", "a", "b")
		b.pending("q", "a", "a")
		b.pending("q", "b", "b")
		s.takes("", nil, 2, "q")
		name := ask.Name
		name.Lock = reply.Lock
		message := b.rdb.HGet(ctx, TaskKey("q", "set"), "msg").Val()
		s.takes("", []Outcome{{Name: name, Kind: Archive, Message: []byte(message), Hold: true}}, 2, "q")
		for _, lock := range []string{"lock:a", "lock:b"} {
			held, _, err := HeldLines(ctx, b.rdb, []string{"q"}, lock)
			b.must(err)
			if len(held) != 1 || held[0].ID != "set" || held[0].Lock != lock {
				t.Errorf("%s: want its line held by the task, have %+v", lock, held)
			}
		}
		did, err := GiveUp(ctx, b.rdb, "q", "set", func(*Message) {})
		b.must(err)
		_, a := s.make(nil, 2, "q")
		if have := strings.Fields(idsOf(a.Taken)); !did || len(have) != 2 {
			t.Errorf("want those behind it, have %v, %v", did, have)
		}
	})
}

// Limits count for each of the resources, and a task that needs a paused one holds none of the others.
func TestStepKeepsToLimitsOfSeveral(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		s := b.server("one")
		s.SetRules(Rules{"\npool\t2\n", "\nshut\t0\n"})
		first, reply, result := s.asks("q", "1", "pool", "a")
		if result != Granted || !strings.Contains(reply.Lock, "{lock:pool}:permit:") {
			t.Fatalf("want a permit, have %s %q", result, reply.Lock)
		}
		_, _, result = s.asks("q", "2", "pool", "b")
		_, _, third := s.asks("q", "3", "pool", "c")
		_, _, shut := s.asks("q", "4", "d", "shut")
		if result != Granted || third != Parked || shut != Parked {
			t.Errorf("want one more of two, and none of a paused one, have %s, %s, %s", result, third, shut)
		}
		b.want("lock:c", "")
		b.want("lock:d", "")
		first.Kind = Done
		s.takes("3 ", []Outcome{first}, 2, "q")
	})
}

// A set waits for what was before it in a queue that somebody serves, and for nobody in one that nobody serves.
func TestStepOfSeveralAcrossQueues(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		for _, served := range []bool{true, false} {
			one, two := fmt.Sprint("one-", served), fmt.Sprint("two-", served)
			x, y := one+"-x", one+"-y"
			s, other := b.server("server of "+one), b.server("server of "+two)
			b.pending(two, "first", y)
			holder := other.takes("first ", nil, 2, two)
			b.pending(two, "older", y)
			other.takes("", nil, 2, two)
			_, _, result := s.asks(one, "set", x, y)
			if result != Parked {
				t.Fatalf("want parked, have %s", result)
			}
			if !served {
				b.must(b.rdb.HDel(t.Context(), "siding:slots", two).Err())
			}
			other.make(done(holder...), 0)
			want := "set "
			if served {
				want = ""
			}
			s.takes(want, nil, 1, one)
		}
	})
}

// A place that was lost is mended in each line.
func TestUpkeepMendsSeveralLines(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		s, ctx := b.server("one"), t.Context()
		b.pending("q", "a", "a")
		holder := s.takes("a ", nil, 1, "q")
		s.asks("q", "set", "a", "b")
		b.must(b.rdb.Del(ctx, "siding:{q}:line:lock:a", "siding:{q}:line:lock:b", ReadyKey("q"), LinesKey("lock:a"), LinesKey("lock:b")).Err())
		u := &Upkeep{Redis: b.rdb, Queues: []string{"q"}}
		mended, err := u.Mend(ctx, &Place{})
		b.must(err)
		if mended.Waiting != 1 {
			t.Errorf("want one task mended, have %+v", mended)
		}
		for _, lock := range []string{"lock:a", "lock:b"} {
			_, line := b.rdb.ZScore(ctx, LineKey("q", lock), "set").Result()
			_, ready := b.rdb.ZScore(ctx, ReadyKey("q"), lock).Result()
			_, known := b.rdb.ZScore(ctx, LinesKey(lock), "q").Result()
			if line != nil || ready != nil || known != nil {
				t.Errorf("%s: want the task in its line, have %v, %v, %v", lock, line, ready, known)
			}
		}
		s.takes("set ", done(holder...), 1, "q")
	})
}

// Whatever tasks need, come in whichever order, end or crash: nobody has a resource of another, those that need one resource in
// common begin in the order in which they have asked, and in the end all have run.
func TestStepsOfManySets(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		const tasks, resources, most = 300, 7, 5
		r := rand.New(rand.NewPCG(1, uint64(len(t.Name()))))
		s := b.server("one")
		needs := map[string][]string{}
		var order []string // those that wait, as they have asked
		running, ended := map[string]Name{}, 0
		begins := func(id string, name Name) {
			for other := range running {
				for _, resource := range needs[id] {
					if slices.Contains(needs[other], resource) {
						t.Fatalf("%s and %s have %s at once", id, other, resource)
					}
				}
			}
			for _, before := range order {
				if before == id {
					break
				}
				for _, resource := range needs[id] {
					if slices.Contains(needs[before], resource) {
						t.Fatalf("%s goes before %s, and both need %s", id, before, resource)
					}
				}
			}
			order = slices.DeleteFunc(order, func(waits string) bool { return waits == id })
			running[id] = name
		}
		for came := 0; ended < tasks; {
			if came < tasks && (len(running) == 0 || r.IntN(3) > 0) {
				id := fmt.Sprint(came)
				came++
				names := make([]string, 1+r.IntN(most))
				for i := range names {
					names[i] = fmt.Sprint(r.IntN(resources))
				}
				slices.Sort(names)
				needs[id] = slices.Compact(names)
				b.pending("q", id, "?\n") // it asks, as one whose resource is known to the server alone
				_, a := s.make(nil, 1, "q")
				for idsOf(a.Taken) != id+" " { // one that waited
					for _, t := range a.Taken {
						begins(t.ID, t.Name)
					}
					_, a = s.make(nil, 1, "q")
				}
				ask := Outcome{Name: a.Taken[0].Name, Kind: Ask, Want: locksOf(needs[id]...)}
				order = append(order, id)
				_, a = s.make([]Outcome{ask}, 0)
				if a.Results[0] == Granted {
					ask.Lock = a.Replies[0].Lock
					begins(id, ask.Name)
				}
				continue
			}
			var outcomes []Outcome
			for id, name := range running {
				if r.IntN(2) > 0 {
					outcomes = append(outcomes, Outcome{Name: name, Kind: Done})
					delete(running, id)
					ended++
				}
			}
			_, a := s.make(outcomes, 4, "q")
			for _, t := range a.Taken {
				begins(t.ID, t.Name)
			}
			if len(running) == 0 && len(a.Taken) == 0 && len(order) > 0 && len(outcomes) > 0 {
				t.Fatalf("nobody runs, and %v wait: want the first of them", order)
			}
		}
		b.gone()
	})
}

// The server of a task of several dies before it has asked for the locks: what is told of it names them as they are.
func TestRecoveredBeforeItAsksForSeveral(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bench) {
		t.Helper()
		b.pending("q", "set", store.Join("a", "b"))
		b.server("one").takes("set ", nil, 1, "q")
		b.must(b.rdb.ZAdd(t.Context(), LeaseKey("q"), redis.Z{Score: 1, Member: "set"}).Err())
		_, a := b.server("two").make(nil, 1, "q")
		if len(a.Recovered) != 1 || a.Recovered[0].Lock != locksOf("a", "b") {
			t.Errorf("want the task, and its locks, have %q", a.Recovered)
		}
	})
}
