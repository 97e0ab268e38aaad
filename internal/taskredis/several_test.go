package taskredis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// asks has the only pending task of a queue begin, and ask for the locks of its resources. The outcome has its message, for those that
// are made of it.
func (s *stepper) asks(queue, id string, resources ...string) (Outcome, Result) {
	s.Helper()
	s.pending(queue, id, store.Join(resources...))
	taken := s.takes(id+" ", nil, 1, queue)
	expect.Need(s, taken[0].Lock == "", "want an attempt without a lock, have %q", taken[0].Lock)
	ask := Outcome{Name: taken[0].Name, Kind: Ask, Want: locksOf(resources...), Message: taken[0].Encoded}
	_, a := s.make([]Outcome{ask}, 0)
	ask.Lock = a.Replies[0].Lock
	return ask, a.Results[0]
}

func locksOf(resources ...string) string {
	locks := slices.Clone(resources)
	for i, name := range locks {
		locks[i] = "lock:" + name
	}
	slices.Sort(locks)
	return store.JoinLocks(locks)
}

func (t *bench) want(key, want string) {
	t.Helper()
	have, err := t.rdb.Get(t.Context(), key).Result()
	if err != nil && err != redis.Nil { //nolint:errorlint // as go-redis returns it
		t.Fatal(err)
	}
	expect.That(t, have == want, "%s: want %q, have %q", key, want, have)
}

// A task of several resources holds none of them until it can have all, and keeps its place in each line.
func TestStepTakesAllLocksOrNone(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "a", "a")
		t.pending("q", "b", "b")
		holders := s.takes("a b ", nil, 2, "q")
		_, result := s.asks("q", "set", "c", "b", "a")
		expect.Need(t, result == Parked, "want parked, have %s", result)
		t.want("lock:c", "")
		for _, name := range []string{"a", "b", "c"} { // they come behind it, in each line
			t.pending("q", "behind-"+name, name)
		}
		s.takes("", nil, 3, "q")
		s.takes("", done(holders[0]), 3, "q")
		t.want("lock:a", "")
		step, a := s.make(done(holders[1]), 3, "q")
		set := a.Taken
		expect.Need(t, idsOf(set) == "set ", "want the set taken, have %q", idsOf(set))
		again := expect.Value(s.Step(t.Context(), step))(t)
		if set[0].Lock != locksOf("a", "b", "c") || len(set[0].Fences) != 3 || set[0].Fence != set[0].Fences[0] || set[0].Parks != 1 || set[0].Freed == 0 {
			t.Errorf("have %+v", set[0])
		}
		expect.That(t, len(again.Taken) == 1 && again.Taken[0].Lock == set[0].Lock && again.Taken[0].Attempt == set[0].Attempt, "run twice: want the same, have %+v", again.Taken)
		for i, name := range []string{"a", "b", "c"} {
			t.want("lock:"+name, set[0].Attempt)
			t.want("{lock:"+name+"}:fence", fmt.Sprint(set[0].Fences[i]))
		}
		_, a = s.make(done(set...), 3, "q")
		have := strings.Fields(idsOf(a.Taken))
		expect.That(t, len(have) == 3, "want those behind it, have %v", have)
		s.takes("", done(a.Taken...), 3, "q")
		t.gone()
	})
}

// The locks are granted at once if they are free, and each is renewed and freed.
func TestStepGrantsSeveralLocks(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "set", store.Join("a", "b"))
		taken := s.takes("set ", nil, 1, "q")
		step, a := s.make([]Outcome{{Name: taken[0].Name, Kind: Ask, Want: locksOf("a", "b")}}, 0)
		reply := a.Replies[0]
		expect.Need(t, a.Results[0] == Granted && reply.Lock == locksOf("a", "b") && len(reply.Fences) == 2, "want two locks, have %s %+v", a.Results[0], reply)
		again := expect.Value(s.Step(t.Context(), step))(t)
		if again.Results[0] != Granted || again.Replies[0].Lock != reply.Lock || !slices.Equal(again.Replies[0].Fences, reply.Fences) {
			t.Errorf("run twice: want the same, have %s %+v", again.Results[0], again.Replies[0])
		}
		name := taken[0].Name
		name.Lock = reply.Lock
		for _, key := range []string{"lock:a", "lock:b"} {
			t.must(t.rdb.PExpire(t.Context(), key, time.Second).Err())
		}
		kept := expect.Value(s.Renew(t.Context(), "", []Name{name}))(t)
		for _, key := range []string{"lock:a", "lock:b"} {
			left := t.rdb.PTTL(t.Context(), key).Val()
			expect.That(t, kept[0] && left >= 10*time.Second, "%s: want it renewed, have %v, %v", key, kept, left)
		}
		s.takes("", []Outcome{{Name: name, Kind: Done}}, 1, "q")
		t.gone()
	})
}

// One of its locks is gone, or revoked: the attempt has lost what protects it, and none of the others is free before its server
// has said what becomes of the task.
func TestStepOfOneLostLockOfSeveral(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		for _, revoked := range []bool{false, true} {
			queue := fmt.Sprint("q-", revoked)
			x, y := queue+"-x", queue+"-y"
			s := t.server("server of " + queue)
			ask, _ := s.asks(queue, "set", x, y)
			t.pending(queue, "x", x)
			t.pending(queue, "y", y)
			s.takes("", nil, 2, queue)
			if revoked {
				t.must(t.rdb.Set(t.Context(), "lock:"+y, strings.Replace(ask.Attempt, "siding:", "siding:revoked-", 1), redis.KeepTTL).Err())
			} else {
				t.must(t.rdb.Del(t.Context(), "lock:"+y).Err())
			}
			kept := expect.Value(s.Renew(t.Context(), "", []Name{ask.Name}))(t)
			expect.That(t, !kept[0], "renew: want it lost")
			out := Outcome{Name: ask.Name, Kind: Retry, Message: ask.Message, After: time.Hour, Hold: true}
			t.add(ReadyKey(queue), "lock:"+y, 1)
			if _, a := s.make([]Outcome{out}, 2, queue); a.Results[0] != Lost || idsOf(a.Taken) != "" {
				t.Errorf("want it lost, and nobody to begin, have %s %q", a.Results[0], idsOf(a.Taken))
			}
			out.Lock, out.Kind, out.Hold = "", Done, false
			_, a := s.make([]Outcome{out}, 2, queue)
			have := strings.Fields(idsOf(a.Taken))
			expect.That(t, len(have) == 2, "want those behind it, have %v", have)
		}
	})
}

// Its server has died: the task is back at its place in each line before anybody else has one of its locks.
func TestStepPutsACrashedTaskBackIntoItsLines(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		s.asks("q", "set", "a", "b")
		t.pending("q", "a", "a")
		t.pending("q", "b", "b")
		s.takes("", nil, 2, "q")
		t.add(LeaseKey("q"), "set", 1)
		other := t.server("two")
		other.takes("", nil, 2, "q") // as its locks last
		t.must(t.rdb.Del(t.Context(), "lock:a", "lock:b").Err())
		t.add(LeaseKey("q"), "set", 1)
		t.must(t.rdb.ZAdd(t.Context(), ReadyKey("q"), redis.Z{Score: 1, Member: "lock:a"}, redis.Z{Score: 1, Member: "lock:b"}).Err())
		_, a := other.make(nil, 2, "q")
		expect.Need(t, idsOf(a.Taken) == "set " && len(a.Recovered) == 1 && a.Recovered[0].Lock == locksOf("a", "b"), "want the crashed task, have %q, recovered %v", idsOf(a.Taken), a.Recovered)
		_, a = other.make(done(a.Taken...), 2, "q")
		have := strings.Fields(idsOf(a.Taken))
		expect.That(t, len(have) == 2, "want those behind it, have %v", have)
	})
}

// Somebody has one of its locks by then: like each task of several that cannot begin, it is looked at within a second.
func TestStepLooksSoonAtACrashedTaskOfSeveral(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		s.asks("q", "set", "a", "b")
		t.must(t.rdb.Del(t.Context(), "lock:b").Err())
		t.must(t.rdb.Set(t.Context(), "lock:a", "siding:another:holder", 15*time.Second).Err())
		t.add(LeaseKey("q"), "set", 1)
		_, a := t.server("two").make(nil, 1, "q")
		due := a.Drawn[0].Due
		expect.That(t, len(a.Recovered) == 1 && due >= 0 && due <= time.Second, "want it looked at within a second, have recovered %v, and due in %v", a.Recovered, due)
	})
}

// asynq's tools have archived the task that held a line of another queue. The one behind it goes on, and a set that came later does not
// pass it.
func TestSetBehindALineWhoseHolderWasArchived(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		other := t.server("other")
		t.pending("other", "holds", "a")
		first := other.takes("holds ", nil, 1, "other")[0]
		t.pending("other", "behind", "a")
		other.takes("", []Outcome{{Name: first.Name, Kind: Retry, Message: first.Encoded, After: time.Hour, Hold: true}}, 1, "other")
		t.pending("q", "holder", "b")
		holder := s.takes("holder ", nil, 1, "q")
		_, result := s.asks("q", "set", "a", "b")
		expect.Need(t, result == Parked, "want parked, have %s", result)
		t.must(t.rdb.SAdd(t.Context(), "asynq:queues", "other").Err()) // as clients do
		t.must(asynq.NewInspectorFromRedisClient(t.rdb).ArchiveTask("other", "holds"))
		s.takes("", done(holder...), 1, "q")
		t.add(ReadyKey("other"), "lock:a", 1) // a held line is looked at each 10 s
		other.takes("behind ", nil, 1, "other")
	})
}

// What keeps a task's place keeps it in each of its lines.
func TestStepKeepsThePlaceInSeveralLines(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		for _, how := range []Outcome{{Kind: Requeue}, {Kind: Snooze, AtHead: true}, {Kind: Retry, Hold: true, After: 100 * time.Millisecond}} {
			queue := fmt.Sprint(how.Kind)
			x, y := queue+"-x", queue+"-y"
			s := t.server("server of " + queue)
			ask, _ := s.asks(queue, "set", x, y)
			t.pending(queue, "x", x)
			t.pending(queue, "y", y)
			s.takes("", nil, 2, queue)
			how.Name, how.Message = ask.Name, ask.Message
			_, a := s.make([]Outcome{how}, 2, queue)
			for deadline := time.Now().Add(10 * time.Second); len(a.Taken) == 0 && time.Now().Before(deadline); {
				_, a = s.make(nil, 2, queue)
			}
			expect.That(t, idsOf(a.Taken) == "set " && a.Taken[0].Lock == ask.Lock, "%s: want the task first, have %q", how.Kind, idsOf(a.Taken))
			_, a = s.make(done(a.Taken...), 2, queue)
			if have := strings.Fields(idsOf(a.Taken)); len(have) != 2 {
				t.Errorf("%s: want those behind it, have %v", how.Kind, have)
			}
		}
	})
}

// A task waits for other locks than its field says, as its server has found out. If an operator has it run, it keeps its place in their
// lines, and those behind it theirs.
func TestStepKeepsThePlaceInOtherLines(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "holds", "a")
		t.pending("q", "other", "b")
		taken := s.takes("holds other ", nil, 2, "q")
		s.ask(taken[1], locksOf("a", "b"), Parked)
		_, result := s.asks("q", "set", "a", "b")
		expect.Equal(t, "result", result, Parked)
		t.run("q", "other")
		s.takes("", nil, 1, "q")
		other := s.takes("other ", done(taken[0]), 1, "q")
		s.takes("set ", done(other...), 1, "q")
	})
}

// The first of a line leaves it without a word, as its time is over. A task of several resources behind it is the first then.
func TestSetBehindOneWhoseTimeIsOver(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "holds", "b")
		holds := s.takes("holds ", nil, 1, "q")
		t.pending("q", "late", "b")
		s.takes("", nil, 1, "q")
		_, result := s.asks("q", "set", "a", "b")
		expect.Equal(t, "result", result, Parked)
		past := value(t, t.rdb.Time(t.Context())).Unix() - 1
		value(t, t.rdb.HSet(t.Context(), TaskKey("q", "late"), "siding_deadline", past, "siding_until", past))
		t.add(RetryKey("q"), "late", float64(past))
		u := &Upkeep{Redis: t.rdb, Session: "one", Queues: []string{"q"}, TTL: 15 * time.Second}
		expect.OK(t, expect.Err(u.Look(t.Context(), Look{Queues: []string{"q"}})))
		late := s.takes("late ", nil, 1, "q")
		s.make(done(append(late, holds...)...), 0)
		expect.Eventually(t, "the set", func() bool {
			_, a := s.make(nil, 1, "q")
			return idsOf(a.Taken) == "set "
		})
	})
}

// A line that has stopped holds each of the resources; an operator sets them all going.
func TestStepStopsSeveralLines(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		ask, _ := s.asks("q", "set", "a", "b")
		t.pending("q", "a", "a")
		t.pending("q", "b", "b")
		s.takes("", nil, 2, "q")
		s.takes("", []Outcome{{Name: ask.Name, Kind: Archive, Message: ask.Message, Hold: true}}, 2, "q")
		for _, lock := range []string{"lock:a", "lock:b"} {
			held, _, err := HeldLines(t.Context(), t.rdb, []string{"q"}, lock)
			t.must(err)
			expect.That(t, len(held) == 1 && held[0].ID == "set" && held[0].Lock == lock, "%s: want its line held by the task, have %+v", lock, held)
		}
		did := expect.Value(SkipHeld(t.Context(), t.rdb, "q", "set", func(*Message) {}))(t)
		_, a := s.make(nil, 2, "q")
		have := strings.Fields(idsOf(a.Taken))
		expect.That(t, did && len(have) == 2, "want those behind it, have %v, %v", did, have)
	})
}

// Limits count for each of the resources, and a task that needs a paused one holds none of the others.
func TestStepKeepsToLimitsOfSeveral(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		s.SetRules(Rules{"\npool\t2\n", "\nshut\t0\n"})
		first, result := s.asks("q", "1", "pool", "a")
		expect.Need(t, result == Granted && strings.Contains(first.Lock, "{lock:pool}:permit:"), "want a permit, have %s %q", result, first.Lock)
		_, result = s.asks("q", "2", "pool", "b")
		_, third := s.asks("q", "3", "pool", "c")
		_, shut := s.asks("q", "4", "d", "shut")
		expect.That(t, result == Granted && third == Parked && shut == Parked, "want one more of two, and none of a paused one, have %s, %s, %s", result, third, shut)
		t.want("lock:c", "")
		t.want("lock:d", "")
		first.Kind = Done
		s.takes("3 ", []Outcome{first}, 2, "q")
	})
}

// A set waits for what was before it in a queue that somebody serves, and for nobody in one that nobody serves.
func TestStepOfSeveralAcrossQueues(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		for _, served := range []bool{true, false} {
			one, two := fmt.Sprint("one-", served), fmt.Sprint("two-", served)
			x, y := one+"-x", one+"-y"
			s, other := t.server("server of "+one), t.server("server of "+two)
			t.pending(two, "first", y)
			holder := other.takes("first ", nil, 2, two)
			t.pending(two, "older", y)
			other.takes("", nil, 2, two)
			_, result := s.asks(one, "set", x, y)
			expect.Need(t, result == Parked, "want parked, have %s", result)
			if !served {
				t.must(t.rdb.HDel(t.Context(), "siding:slots", two).Err())
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
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "a", "a")
		holder := s.takes("a ", nil, 1, "q")
		s.asks("q", "set", "a", "b")
		t.must(t.rdb.Del(t.Context(), "siding:{q}:line:lock:a", "siding:{q}:line:lock:b", ReadyKey("q"), LinesKey("lock:a"), LinesKey("lock:b")).Err())
		u := &Upkeep{Redis: t.rdb, Queues: []string{"q"}}
		mended := expect.Value(u.Mend(t.Context(), &MendCursor{}))(t)
		expect.That(t, mended.Waiting == 1, "want one task mended, have %+v", mended)
		for _, lock := range []string{"lock:a", "lock:b"} {
			_, line := t.rdb.ZScore(t.Context(), LineKey("q", lock), "set").Result()
			_, ready := t.rdb.ZScore(t.Context(), ReadyKey("q"), lock).Result()
			_, known := t.rdb.ZScore(t.Context(), LinesKey(lock), "q").Result()
			expect.That(t, line == nil && ready == nil && known == nil, "%s: want the task in its line, have %v, %v, %v", lock, line, ready, known)
		}
		s.takes("set ", done(holder...), 1, "q")
	})
}
