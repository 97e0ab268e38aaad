package taskredis

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// Of several tasks that hold a line the first is listed; and the next one when the first has been given up.
func TestEachTaskThatStopsALineIsListed(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		s.SetRules(Rules{Limits: "\na\t2\n"})
		for _, id := range []string{"1", "2", "3"} {
			t.pending("q", id, "a")
		}
		var outcomes []Outcome
		for _, taken := range s.takes("1 2 ", nil, 3, "q") {
			outcomes = append(outcomes, Outcome{Name: taken.Name, Kind: Archive, Message: taken.Encoded, Hold: true})
		}
		s.takes("", outcomes, 3, "q")
		for _, id := range []string{"1", "2"} {
			held, _, err := HeldLines(t.Context(), t.rdb, []string{"q"}, "")
			t.must(err)
			expect.Need(t, len(held) == 1 && held[0].ID == id && held[0].Until.IsZero(), "want the line stopped by %s, have %+v", id, held)
			if did, err := SkipHeld(t.Context(), t.rdb, "q", id, func(*Message) {}); !did || err != nil {
				t.Fatalf("give up: %v, %v", did, err)
			}
			if id == "1" {
				s.takes("", nil, 3, "q")
			}
		}
		s.takes("3 ", nil, 3, "q")
	})
}

// A task that an operator has run holds its line no more, also if its lock is busy: sets of other queues would pass it.
func TestHoldOfATaskThatIsRunEnds(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "1", "a")
		taken := s.takes("1 ", nil, 3, "q")[0]
		s.takes("", []Outcome{{Name: taken.Name, Kind: Retry, Message: taken.Encoded, After: time.Hour, Hold: true}}, 3, "q")
		until := func() time.Time {
			return time.UnixMicro(int64(value(t, t.rdb.ZScore(t.Context(), HeldKey("q"), "lock:a"))))
		}
		expect.That(t, until().After(time.Now()), "want the line held")
		value(t, t.rdb.Set(t.Context(), "lock:a", "another program", time.Minute))
		t.must(t.rdb.SAdd(t.Context(), "asynq:queues", "q").Err()) // as clients do
		t.must(asynq.NewInspectorFromRedisClient(t.rdb).RunTask("q", "1"))
		s.takes("", nil, 3, "q")
		expect.That(t, !until().After(time.Now()), "want the line held no more, have it held until %v", until())
	})
}

// Lines that have stopped are listed first, however many others there are.
func TestHeldLinesListsStoppedOnesFirst(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		queue := t.queue
		add := func(lock, until string, score float64) {
			id := "holds " + lock
			t.must(t.rdb.ZAdd(t.Context(), HeldKey(queue), redis.Z{Score: score, Member: lock}).Err())
			t.must(t.rdb.ZAdd(t.Context(), LineKey(queue, lock), redis.Z{Score: 1, Member: id}).Err())
			t.must(t.rdb.HSet(t.Context(), TaskKey(queue, id), "siding_held", until, "siding_lock", lock, "state", "archived").Err())
			if until != "stop" {
				t.must(t.rdb.HSet(t.Context(), TaskKey(queue, id), "state", "retry").Err())
			}
		}
		for n := range MostHeld {
			add(fmt.Sprint("lock:later:", n), fmt.Sprint(n+1), float64(n+1))
		}
		for n := range 2 {
			add(fmt.Sprint("lock:stopped:", n), "stop", math.Inf(1))
		}
		held, more, err := HeldLines(t.Context(), t.rdb, []string{queue}, "")
		t.must(err)
		expect.Need(t, len(held) == MostHeld && more == 2, "want %d lines, and 2 left out, have %d and %d", MostHeld, len(held), more)
		for n, want := range []string{"lock:stopped:0", "lock:stopped:1", "lock:later:0"} {
			expect.That(t, held[n].Lock == want && held[n].Until.IsZero() == (n < 2), "line %d: want %s, have %+v", n, want, held[n])
		}
	})
}

// An older line of another queue, which is served, goes first, but not while it is held.
func TestStepPassesHeldLinesOfOtherQueues(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("older", "1", "a")
		t.pending("older", "2", "a")
		first := s.takes("1 ", nil, 2, "older")[0]
		_, result := s.asks("q", "set", "a", "b")
		expect.Need(t, result == Parked, "want the set parked, have %s", result)
		s.takes("", nil, 1, "older", "q")
		stop := Outcome{Name: first.Name, Kind: Archive, Message: first.Encoded, Hold: true}
		s.takes("", []Outcome{stop}, 0)
		expect.Eventually(t, "the set begins", func() bool {
			_, a := s.make(nil, 1, "older", "q")
			return idsOf(a.Taken) == "set "
		})
	})
}

// A queue is served whose server has something to do for each slot. So a lock is offered to its line if that is older.
func TestStepServesItsQueueWithItsLastSlot(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		s, busy := t.server("one"), t.server("busy")
		t.pending("q", "holds", "a")
		holds := s.takes("holds ", nil, 1, "q")
		t.pending("older", "waits", "a")
		t.pending("older", "other", "")
		busy.takes("other ", nil, 1, "older")
		t.pending("q", "newer", "a")
		s.takes("", nil, 1, "q")
		s.takes("", done(holds...), 1, "q")
		busy.takes("waits ", nil, 1, "older")
	})
}

// A lock that is offered to an older line of another queue is so, too, when a task asks for it.
func TestAskHeedsAnOffer(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "holds", "a")
		t.pending("q", "asks", "")
		taken := s.takes("holds asks ", nil, 2, "q")
		t.pending("older", "waits", "a")
		s.takes("", nil, 1, "older")
		ticket := Outcome{Name: taken[1].Name, Kind: Ask, Want: "lock:a"}
		t.must(t.rdb.HSet(t.Context(), TaskKey("q", "asks"), "siding_ticket", time.Now().Add(time.Minute).UnixMicro()).Err())
		_, a := s.make(append(done(taken[0]), ticket), 1, "q")
		expect.Need(t, a.Results[1] == Parked && idsOf(a.Taken) == "", "want it parked, and nothing taken, have %s and %q", a.Results[1], idsOf(a.Taken))
		s.takes("waits ", nil, 1, "older")
	})
}

// A task that is not to wait takes a free lock, also if tasks of a queue wait for it that nobody serves, or if those are gone that
// did wait, and only the record of their line is left.
func TestPoliciesHeedNobodyWhoIsAbsent(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		nothing := func(string, string) error { return nil }
		for name, test := range map[string]struct {
			older  string // the queue of the one that waits; "" for the same
			before func(older, lock string) error
			want   Result
		}{
			"served":      {"older", nothing, Rejected},
			"same":        {"", nothing, Rejected},
			"unserved":    {"older", func(older, _ string) error { return t.rdb.HDel(t.Context(), "siding:slots", older).Err() }, Granted},
			"empty":       {"", func(older, lock string) error { return t.rdb.Del(t.Context(), LineKey(older, lock)).Err() }, Granted},
			"empty other": {"older", func(older, lock string) error { return t.rdb.Del(t.Context(), LineKey(older, lock)).Err() }, Granted},
			"deleted":     {"", func(older, _ string) error { return t.rdb.Del(t.Context(), TaskKey(older, "waits")).Err() }, Granted},
		} {
			q := "q " + name
			older := q
			if test.older != "" {
				older = test.older + name
			}
			s := t.server("server of " + q)
			t.pending(q, "holds", q)
			holds := s.takes("holds ", nil, 1, q)
			t.pending(older, "waits", q)
			s.takes("", nil, 1, older)
			t.pending(q, "limits", "")
			limits := s.takes("limits ", nil, 1, q)
			t.pending(q, "asks", "")
			asks := s.takes("asks ", nil, 1, q)
			t.must(test.before(older, "lock:"+q))
			s.takes("", done(holds...), 0)
			_, a := s.make([]Outcome{{Name: limits[0].Name, Kind: Ask, Want: "lock:" + q, Policy: Policy{MaxWaiting: 1}}}, 0)
			want := test.want
			if want == Granted {
				want = Parked // for as long as the lock is offered to who is absent
			}
			expect.Equal(t, name+", with a limit", a.Results[0], want)
			if want == Parked {
				expect.Eventually(t.T, "the one with a limit to run", func() bool {
					_, a = s.make(nil, 1, q)
					return len(a.Taken) == 1
				})
				expect.Equal(t, name+", with a limit", a.Taken[0].ID, "limits")
				s.takes("", done(a.Taken...), 0)
			}
			_, a = s.make([]Outcome{{Name: asks[0].Name, Kind: Ask, Want: "lock:" + q, Policy: Policy{OnBusy: Reject}}}, 0)
			expect.Equal(t, name, a.Results[0], test.want)
		}
	})
}

// A task of asynq's client is unique for its time. A wait prolongs that, and the archive ends what is left of the wait alone.
func TestUniquenessOfArchivedTasks(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		key := t.queue + "unique"
		left := func(what string, least, most time.Duration) {
			t.Helper()
			ttl := value(t, t.rdb.TTL(t.Context(), key))
			expect.That(t, ttl >= least && ttl <= most, "%s: want it unique for %v to %v, have %v", what, least, most, ttl)
		}
		for _, after := range []string{"a wait", "a crash", "neither"} {
			for _, lasts := range []time.Duration{time.Minute, 24 * time.Hour} {
				q := fmt.Sprint(after, lasts)
				s, dead := t.server("server of "+q), t.server("dead server of "+q)
				var holds, taken []Taken
				if after == "a wait" {
					t.pending(q, "holds", q)
					holds = s.takes("holds ", nil, 1, q)
				}
				t.pending(q, "unique", q, "unique_key", key)
				value(t, t.rdb.Set(t.Context(), key, "unique", lasts))
				switch after {
				case "a wait":
					s.takes("", nil, 1, q)
					left(q+", as it waits", 3*time.Hour, lasts+4*time.Hour)
					taken = s.takes("unique ", done(holds...), 1, q)
				case "a crash":
					crashed := dead.takes("unique ", nil, 1, q)
					t.must(t.rdb.Del(t.Context(), crashed[0].Lock).Err())
					t.add(LeaseKey(q), "unique", 1)
					expect.Eventually(t.T, "it to be taken again", func() bool {
						_, a := s.make(nil, 1, q)
						taken = a.Taken
						return len(taken) == 1
					})
				default:
					taken = s.takes("unique ", nil, 1, q)
				}
				s.takes("", []Outcome{{Name: taken[0].Name, Kind: Archive, Message: taken[0].Encoded}}, 0)
				left(q+", in the archive", lasts-30*time.Second, lasts)
			}
		}
	})
}

// What is known of a task that waits, for equal ones to find it, goes when it begins, however that came.
func TestBegunTasksAreNotEqual(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		for name, ends := range map[string]func(q string, holds []Taken, s *stepper){
			"in its turn": func(q string, holds []Taken, s *stepper) { s.takes("waits ", done(holds...), 1, q) },
			"as its wait ends": func(q string, _ []Taken, s *stepper) {
				value(t, t.rdb.HSet(t.Context(), TaskKey(q, "waits"), "siding_wait_ends", 1))
				t.run(q, "waits")
				s.takes("waits ", nil, 1, q)
			},
		} {
			q := "equal " + name
			s := t.server("server of " + q)
			t.pending(q, "holds", q)
			holds := s.takes("holds ", nil, 1, q)
			t.pending(q, "waits", "")
			asks := s.takes("waits ", nil, 1, q)
			s.make([]Outcome{{Name: asks[0].Name, Kind: Ask, Want: "lock:" + q, Policy: Policy{OnBusy: Coalesce, Equal: "digest"}}}, 0)
			known := func() int64 { return value(t, t.rdb.HLen(t.Context(), "{lock:"+q+"}:equal")) }
			expect.Equal(t, name+", as it waits", known(), 1)
			ends(q, holds, s)
			expect.Equal(t, name, known(), 0)
		}
	})
}

// More tasks have crashed than one step puts back. As long as it is not known who is before it, a task that is not to wait asks again.
func TestRejectAsksAgainBesideMuchThatHasCrashed(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		s, dead := t.server("one"), t.server("dead")
		ask := func(a Taken) Result {
			_, answer := s.make([]Outcome{{Name: a.Name, Kind: Ask, Want: "lock:free", Policy: Policy{OnBusy: Reject}}}, 0)
			return answer.Results[0]
		}
		t.pending("q", "asks", "")
		asks := s.takes("asks ", nil, 1, "q")
		for i := range 30 {
			t.pending("q", fmt.Sprint(i), fmt.Sprint("r", i))
		}
		_, a := dead.make(nil, 30, "q")
		for _, crashed := range a.Taken {
			t.must(t.rdb.Del(t.Context(), crashed.Lock).Err())
			t.add(LeaseKey("q"), crashed.ID, 1)
		}
		have := ask(asks[0])
		expect.That(t, have == Parked, "beside 30 that have crashed: want it parked, have %s", have)
		_, a = s.make(nil, 40, "q")
		i := slices.IndexFunc(a.Taken, func(t Taken) bool { return t.ID == "asks" })
		expect.Need(t, len(a.Taken) == 31 && i >= 0, "want it taken again, and the others, have %q", idsOf(a.Taken))
		have = ask(a.Taken[i])
		expect.That(t, have == Granted, "once all are back: want it granted, have %s", have)
	})
}

// A batch that has lost its permit keeps nobody from the lock.
func TestLostPermitOfABatch(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		s.SetRules(Rules{Limits: "\na\t2\n"})
		for _, id := range []string{"other", "first", "member"} {
			t.pending("q", id, "a")
		}
		holders := s.takes("other first ", nil, 3, "q")
		_, a := s.more(holders[1], 1)
		expect.Need(t, idsOf(a.Taken) == "member ", "want a member, have %q", idsOf(a.Taken))
		s.takes("", done(holders[0]), 0)
		t.must(t.rdb.Del(t.Context(), holders[1].Lock, store.LockOf(holders[1].Lock)).Err()) // both have run out
		member := done(a.Taken[0])
		member[0].Lock = holders[1].Lock
		if _, a = s.make(member, 0); a.Results[0] != Lost {
			t.Errorf("want it lost, have %s", a.Results[0])
		}
		t.want("lock:a", "")
	})
}

// Nobody waits for a task without retries whose lock has run out, as its server may be dead. If that lives after all, the task comes
// again in its place, behind the one that has begun meanwhile.
func TestLostLockOfATaskWithoutRetries(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		s, first := t.oneWaits("q")
		t.must(t.rdb.HSet(t.Context(), TaskKey("q", "1"), "siding_began", first.Attempt).Err())
		t.pending("q", "3", "q")
		t.crash("q", "1", "lock:q")
		second := s.takes("2 ", nil, 2, "q")
		again := Outcome{Name: first.Name, Kind: Snooze, Message: first.Encoded, Hold: true}
		_, a := s.make([]Outcome{again}, 0)
		expect.Need(t, a.Results[0] == Lost, "want it lost, have %s", a.Results[0])
		again.Lock = ""
		s.takes("", []Outcome{again}, 2, "q")
		s.takes("1 ", done(second...), 2, "q")
	})
}

// An attempt that has lost a lock which its task does not know, as a failover has forgotten that it was given it, keeps nobody from
// that lock: nobody would free it.
func TestLostLockThatWasForgotten(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "1", "")
		taken := s.takes("1 ", nil, 1, "q")[0]
		taken.Lock = "lock:a"
		_, a := s.make(done(taken), 0)
		expect.That(t, a.Results[0] == Lost, "want it lost, have %s", a.Results[0])
		t.want("lock:a", "")
	})
}

// A task that asks for another lock than it was given, and has lost that meanwhile, has not begun: it keeps its place.
func TestAskUnderALostLock(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		s, first := t.oneWaits("q")
		t.must(t.rdb.Del(t.Context(), "lock:q").Err())
		t.add(ReadyKey("q"), "lock:q", 1)
		ask := Outcome{Name: first.Name, Kind: Ask, Want: "lock:b"}
		_, a := s.make([]Outcome{ask}, 1, "q")
		if a.Results[0] != Parked || idsOf(a.Taken) != "1 " || t.rdb.HExists(t.Context(), TaskKey("q", "1"), "siding_crashes").Val() {
			t.Errorf("want it back at once, as it has not crashed, have %s and %q", a.Results[0], idsOf(a.Taken))
		}
	})
}

// Nobody hears that a task was given another lock than it had, and it asks again: neither lock stands idle.
func TestAskForALockThatWasGranted(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		s, first := t.oneWaits("q")
		ask := Outcome{Name: first.Name, Kind: Ask, Want: "lock:b"}
		for _, want := range []Result{Granted, Parked} {
			_, a := s.make([]Outcome{ask}, 0, "q")
			expect.That(t, a.Results[0] == want, "want the lock %v, have %v", want, a.Results[0])
		}
		expect.That(t, t.rdb.Exists(t.Context(), "lock:b").Val() == 0, "want the other lock free, as its task waits")
		s.takes("1 ", nil, 2, "q")
	})
}

// A task that holds its line ends by its deadline: those behind it go on at once.
func TestDeadlineOfATaskThatHoldsItsLine(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		s, first := t.oneWaits("q")
		s.takes("", []Outcome{{Name: first.Name, Kind: Retry, Message: first.Encoded, After: time.Hour, Hold: true}}, 2, "q")
		// As upkeep does when the deadline is over.
		t.must(t.rdb.HSet(t.Context(), TaskKey("q", "1"), "siding_deadline", 1).Err())
		t.run("q", "1")
		t.must(t.rdb.ZRem(t.Context(), LineKey("q", "lock:q"), "1").Err())
		s.takes("1 2 ", nil, 2, "q")
	})
}

// A task that comes again has waited if it stood in its line, where its handler has not begun: however often it was parked before.
func TestTaskThatComesAgainHasWaited(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		for name, tt := range map[string]struct {
			how  Outcome
			want bool
		}{
			"given back":            {Outcome{Kind: Requeue, Begun: true}, false},
			"given back unbegun":    {Outcome{Kind: Requeue}, true},
			"holds its line":        {Outcome{Kind: Retry, Hold: true}, false},
			"comes again":           {Outcome{Kind: Snooze, Losses: 1}, false},
			"asks again":            {Outcome{Kind: Snooze, AtHead: true}, true},
			"crashed":               {Outcome{}, false},
			"failed, without place": {Outcome{Kind: Retry}, false},
		} {
			queue := strings.ReplaceAll(name, " ", "-")
			s, first := t.oneWaits(queue)
			t.must(t.rdb.HSet(t.Context(), TaskKey(queue, "1"), "siding_parked", 1).Err())
			tt.how.Name, tt.how.Message = first.Name, first.Encoded
			outcomes := []Outcome{tt.how}
			if tt.how.Kind == "" {
				outcomes = nil
				t.must(t.rdb.Del(t.Context(), "lock:"+queue).Err())
				t.add(LeaseKey(queue), "1", 1)
			}
			var again Taken
			for deadline := time.Now().Add(10 * time.Second); again.ID != "1" && time.Now().Before(deadline); outcomes = nil {
				if due := t.rdb.ZScore(t.Context(), RetryKey(queue), "1").Val(); due > 0 && t.rdb.HGet(t.Context(), TaskKey(queue, "1"), "siding_until").Val() == "" {
					t.must(t.rdb.ZRem(t.Context(), RetryKey(queue), "1").Err()) // as upkeep forwards it
					t.must(t.rdb.HSet(t.Context(), TaskKey(queue, "1"), "state", "pending").Err())
					t.must(t.rdb.RPush(t.Context(), PendingKey(queue), "1").Err())
				}
				_, a := s.make(outcomes, 1, queue)
				for _, taken := range a.Taken {
					if again = taken; taken.ID == "2" {
						s.make(done(taken), 0)
					}
				}
			}
			expect.That(t, again.ID == "1" && again.Parks > 0 && again.Waited == tt.want, "%s: want it to come, and say %v, have %+v", name, tt.want, again)
		}
	})
}
