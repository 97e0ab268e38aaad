package taskredis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// pending puts a task at the tail of a queue, as a client does. resource may be "". more are further fields of its hash.
func (t *bench) pending(queue, id, resource string, more ...any) {
	t.Helper()
	fields := append([]any{"msg", messageWith(queue, id, []byte(id)), "state", "pending", "pending_since", "1"}, more...)
	if resource != "" {
		fields = append(fields, "siding_resource", resource)
	}
	t.must(t.rdb.HSet(t.Context(), TaskKey(queue, id), fields...).Err())
	t.must(t.rdb.LPush(t.Context(), PendingKey(queue), id).Err())
}

func messageWith(queue, id string, payload []byte) []byte {
	return (&Message{Type: "kind", ID: id, Queue: queue, Timeout: 60, Payload: payload}).Encode()
}

// leaseOf returns for how long the lease of a task lasts.
func (t *bench) leaseOf(queue, id string) time.Duration {
	t.Helper()
	now, ends := value(t, t.rdb.Time(t.Context())), value(t, t.rdb.ZScore(t.Context(), LeaseKey(queue), id))
	return time.UnixMilli(int64(ends * 1000)).Sub(now)
}

// run has an operator run a task that waits, as asynq's tools do.
func (t *bench) run(queue, id string) {
	t.Helper()
	t.must(t.rdb.HSet(t.Context(), TaskKey(queue, id), "state", "pending").Err())
	t.must(t.rdb.ZRem(t.Context(), RetryKey(queue), id).Err())
	t.must(t.rdb.LPush(t.Context(), PendingKey(queue), id).Err())
}

// crash has the server of a task die for long enough: its lease and its lock have ended, and the lock may be taken.
func (t *bench) crash(queue, id, lock string) {
	t.Helper()
	t.must(t.rdb.Del(t.Context(), lock).Err())
	t.add(LeaseKey(queue), id, 1)
	t.add(ReadyKey(queue), lock, 1)
}

// A stepper is a server that makes steps.
type stepper struct {
	*bench
	*Steps

	n int64
	// turn is whose turn is next, by queue.
	turn map[string]bool
}

func (t *bench) server(session string) *stepper {
	steps := &Steps{Redis: t.rdb, Session: session, Holder: "test", Prefix: "lock:", TTL: 15 * time.Second, FenceTTL: time.Minute, Crashes: 3}
	return &stepper{t, steps, 0, map[string]bool{}}
}

// onServer is onOwnRedis for a test of one server, or of one and others.
func onServer(t *testing.T, test func(*bench, *stepper)) {
	t.Helper()
	onOwnRedis(t, func(t *bench) { test(t, t.server("one")) })
}

func (s *stepper) make(outcomes []Outcome, slots int, queues ...string) (*Step, *Answer) {
	s.Helper()
	now := expect.Value(s.rdb.Time(s.Context()).Result())(s)
	s.n++
	step := &Step{Number: s.n, After: s.n - 1, Sent: now.UnixMicro(), Outcomes: outcomes}
	order := ""
	for i, queue := range queues {
		step.Draws = append(step.Draws, Draw{queue, s.turn[queue]})
		order += string(rune(i + 1))
	}
	for range slots {
		step.Slots = append(step.Slots, Order(order))
	}
	a := expect.Value(s.Step(s.Context(), step))(s)
	for _, trouble := range a.Troubles {
		s.Log(trouble)
	}
	for i, d := range a.Drawn {
		if !d.Untried {
			s.turn[queues[i]] = d.Pending
		}
	}
	return step, a
}

// takes makes a step and checks which tasks it took.
func (s *stepper) takes(want string, outcomes []Outcome, slots int, queues ...string) []Taken {
	s.Helper()
	_, a := s.make(outcomes, slots, queues...)
	have := idsOf(a.Taken)
	expect.Need(s, have == want, "taken: want %q, have %q", want, have)
	for i, r := range a.Results {
		expect.Need(s, r == Settled, "outcome %d: want settled, have %s", i, r)
	}
	return a.Taken
}

// ask makes a step in which an attempt asks for a lock, or several, and checks what comes of it.
func (s *stepper) ask(taken Taken, lock string, want Result) {
	s.Helper()
	_, a := s.make([]Outcome{{Name: taken.Name, Kind: Ask, Want: lock}}, 0)
	expect.Need(s, a.Results[0] == want, "want %s %s, have %s", lock, want, a.Results[0])
}

func idsOf(taken []Taken) string {
	text := ""
	for _, t := range taken {
		text += t.ID + " "
	}
	return text
}

func done(taken ...Taken) (outcomes []Outcome) {
	for _, t := range taken {
		outcomes = append(outcomes, Outcome{Name: t.Name, Kind: Done})
	}
	return outcomes
}

// gone checks that nothing is left but statistics, fences and the record of a step.
func (t *bench) gone() {
	t.Helper()
	keys := expect.Value(t.rdb.Keys(t.Context(), "*").Result())(t)
	for _, key := range keys {
		typ := t.rdb.Type(t.Context(), key).Val()
		expect.That(t, typ == "string" || key == "siding:slots", "left behind: %s (%s)", key, typ)
	}
}

func TestStepThatRunsTwice(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		again := func(step *Step) []Taken { return expect.Value(s.Step(t.Context(), step))(t).Taken }
		nothing, _ := s.make(nil, 4, "q")
		for i := range 4 {
			t.pending("q", fmt.Sprint(i), "r"+fmt.Sprint(i%3))
		}
		// The server has had its answer, and does not hear of this one.
		expect.Equal(t, "taken by a step that took nothing", idsOf(again(nothing)), "")
		step, first := s.make(nil, 4, "q")
		expect.Equal(t, "taken", idsOf(first.Taken), "0 1 2 ")
		expect.Equal(t, "taken again", fmt.Sprint(again(step)), fmt.Sprint(first.Taken))
		next, _ := s.make(done(first.Taken...), 4, "q") // takes 3, which was parked
		taken := again(next)
		expect.Need(t, idsOf(taken) == "3 ", "want 3 taken, have %q", idsOf(taken))
		expect.Equal(t, "sentence in its message", expect.Value(DecodeMessage(taken[0].Encoded))(t).ErrorMsg, "")
		expect.That(t, expect.Err(s.Step(t.Context(), step)) != nil, "a step that is over: want an error, have none")
	})
}

// What a step took may be another server's by the time it runs again, as its own was thought dead.
func TestStepThatRunsTwiceTakesNothingFromOthers(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		t.pending("q", "0", "a")
		t.pending("q", "1", "b")
		s := t.server("one")
		step, first := s.make(nil, 2, "q")
		t.crash("q", "0", "lock:a")
		t.server("two").takes("0 ", nil, 1, "q")
		again := expect.Value(s.Step(t.Context(), step))(t)
		expect.That(t, idsOf(first.Taken) == "0 1 " && idsOf(again.Taken) == "1 ", "want 0 and 1 taken, and then what nobody else has, have %q and %q", idsOf(first.Taken), idsOf(again.Taken))
	})
}

// What a step came to is recorded as texts behind their sizes, whatever these hold and however long they are.
func TestStepThatRunsTwiceSaysTheSame(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		ids := []string{"1", strings.Repeat("x", 254), strings.Repeat("y", 255), strings.Repeat("z", 70000), "a\n12:b\x00\xff"}
		for i, id := range ids {
			t.pending("q", id, "r"+fmt.Sprint(i))
		}
		step, first := s.make(nil, len(ids), "q")
		for i, task := range first.Taken {
			expect.That(t, task.ID == ids[i], "task %d: want id %.20q, have %.20q", i, ids[i], task.ID)
		}
		again, err := s.Step(t.Context(), step)
		t.must(err)
		expect.That(t, len(first.Taken) == len(ids) && fmt.Sprint(again.Taken) == fmt.Sprint(first.Taken), "tasks: want %d, twice the same, have %d and %d", len(ids), len(first.Taken), len(again.Taken))
		outcomes := done(first.Taken...)
		outcomes[1].Attempt += strings.Repeat("-", 300)
		outcomes[3].Lock = "lock:another"
		step, first = s.make(outcomes, 0, "q")
		again, err = s.Step(t.Context(), step)
		t.must(err)
		want := "[settled stale settled lost settled]"
		expect.That(t, fmt.Sprint(first.Results) == want && fmt.Sprint(again.Results) == want, "results: want %s twice, have %s and %s", want, first.Results, again.Results)
	})
}

func TestStepParksWhatComesFirst(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "1", "a")
		t.pending("q", "2", "a")
		taken := s.takes("1 ", nil, 2, "q")
		s.takes("", nil, 1, "q")
		t.pending("q", "urgent", "a", "siding_priority", 3)
		s.turn["q"] = true // pending tasks first: urgent is parked in the step that looks at its lock
		s.takes("urgent ", done(taken...), 1, "q")
	})
}

// New tasks and those that have waited take turns, within a step and from one to the next: however many there are of one kind, the
// other goes on.
func TestStepTakesTurns(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		for _, slots := range []int{4, 1} {
			queue := fmt.Sprint("q-", slots)
			s := t.server("server of " + queue)
			for _, id := range []string{"first", "waits"} {
				for i := range 4 {
					t.pending(queue, fmt.Sprint(id, i), fmt.Sprint(queue, i))
				}
			}
			_, a := s.make(nil, 9, queue)
			for i := range 9 {
				t.pending(queue, fmt.Sprint("new", i), "")
			}
			outcomes, kinds := done(a.Taken...), []string{}
			for range 4 / slots {
				_, a := s.make(outcomes, slots, queue)
				for _, taken := range a.Taken {
					kinds = append(kinds, strings.TrimRight(taken.ID, "0123456789"))
				}
				outcomes = nil
			}
			slices.Sort(kinds)
			expect.Equal(t, fmt.Sprintf("taken by steps of %d", slots), fmt.Sprint(kinds), "[new new waits waits]")
		}
	})
}

func TestStepThatDoesNotFollowDoesNothing(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "1", "a")
		s.takes("", nil, 0, "q")
		taken := s.takes("1 ", nil, 1, "q")
		t.pending("q", "2", "b")
		t.must(t.rdb.Del(t.Context(), "siding:step:one-0").Err()) // as a failover does
		step, a := s.make(done(taken...), 1, "q")
		expect.Need(t, a.Known == 0 && !a.Follows(step) && len(a.Taken)+len(a.Results) == 0, "want nothing done, have %+v", a)
		// Nor does one that knows of a step of the other lane which is gone.
		step.Number, step.After, step.OtherAfter = 4, 0, 1
		a, err := s.Step(t.Context(), step)
		t.must(err)
		expect.Need(t, a.Known == 0 && a.OtherKnown == 0 && !a.Follows(step) && len(a.Taken)+len(a.Results) == 0, "want nothing done, have %+v", a)
		step.OtherAfter = 0
		a, err = s.Step(t.Context(), step)
		t.must(err)
		expect.That(t, a.Follows(step) && idsOf(a.Taken) == "2 " && a.Results[0] == Settled, "want 1 settled and 2 taken, have %+v", a)
	})
}

func TestStepPutsACrashedTaskFirst(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		for i := range 4 {
			t.pending("q", fmt.Sprint(i), "a")
		}
		taken := s.takes("0 ", nil, 2, "q")
		t.crash("q", "0", "lock:a")
		other := t.server("two")
		_, a := other.make(nil, 2, "q")
		expect.Need(t, idsOf(a.Taken) == "0 " && len(a.Recovered) == 1, "want the crashed task, have %q, recovered %v", idsOf(a.Taken), a.Recovered)
		_, late := s.make(done(taken...), 0)
		expect.That(t, late.Results[0] == Stale, "the crashed attempt: want stale, have %s", late.Results[0])
		other.takes("1 ", done(a.Taken...), 2, "q")
	})
}

// A server dies before an attempt has asked for its lock, as one with a policy does, or for several. Its handler has not begun, so it
// costs the task nothing, not even one without retries.
func TestStepPutsATaskBackThatHasNotAsked(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		s, other := t.server("one"), t.server("two")
		s.PolicyKinds = []string{"kind"}
		for queue, resources := range map[string][]string{"one": {"a"}, "several": {"b", "c"}} {
			resource, lock := store.Join(resources...), locksOf(resources...)
			t.pending(queue, "0", resource, "siding_kind", "kind")
			taken := s.takes("0 ", nil, 1, queue)
			t.pending(queue, "1", "other "+queue)
			expect.Need(t, taken[0].Lock == "", "want no lock before it asks, have %q", taken[0].Lock)
			t.add(LeaseKey(queue), "0", 1)
			_, a := other.make(nil, 1, queue)
			expect.Need(t, idsOf(a.Taken) == "0 " && len(a.Recovered) == 1 && a.Recovered[0].Lock == lock && a.Recovered[0].Kind == "kind", "want it first, have %q, recovered %+v", idsOf(a.Taken), a.Recovered)
			s.ask(taken[0], lock, Stale)
		}
	})
}

func TestStepKeepsToALimit(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		s.SetRules(Rules{Limits: "\na:*\t2\n"})
		for i := range 6 {
			t.pending("q", fmt.Sprint(i), "a:1")
		}
		t.pending("q", "x", "b:1")
		taken := s.takes("0 1 x ", nil, 5, "q")
		second := s.takes("2 ", done(taken[0]), 5, "q")
		s.takes("", done(taken[2]), 5, "q")
		third := s.takes("3 4 ", done(taken[1], second[0]), 5, "q")
		kept := expect.Value(s.Renew(t.Context(), "", []Name{third[0].Name, taken[1].Name}))(t)
		expect.That(t, fmt.Sprint(kept) == "[true false]", "renewed: want the first alone, have %v", kept)
		last := s.takes("5 ", done(third...), 5, "q")
		s.takes("", done(last...), 5, "q")
		t.gone()
	})
}

func TestStepKeepsToARate(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		s.SetRules(Rules{Limits: "\na:*\t10 2/60000000\n"})
		for i := range 4 {
			t.pending("q", fmt.Sprint(i), "a:1")
		}
		taken := s.takes("0 1 ", nil, 5, "q")
		_, a := s.make(done(taken...), 5, "q")
		if len(a.Taken) > 0 || a.Drawn[0].Due < 59*time.Second || a.Drawn[0].Due > time.Minute {
			t.Errorf("want the next start in a minute, have %v, %v", a.Taken, a.Drawn[0].Due)
		}
	})
}

func TestStepPausesALock(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		s.SetRules(Rules{"\n*\t3\n", "\na:1\t0\n"})
		t.pending("q", "1", "a:1")
		t.pending("q", "2", "a:2")
		s.takes("2 ", nil, 5, "q")
		s.SetRules(Rules{"\n*\t3\n", ""})
		t.add(ReadyKey("q"), "lock:a:1", 1)
		s.takes("1 ", nil, 5, "q")
	})
}

func TestStepHasATaskThatAskedWait(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "holds", "a")
		t.pending("q", "asks", "")
		taken := s.takes("holds asks ", nil, 2, "q")
		s.ask(taken[1], "lock:a", Parked) // the task has no deadline
		until := expect.Value(t.rdb.ZScore(t.Context(), RetryKey("q"), "asks").Result())(t)
		in := time.Until(time.Unix(int64(until), 0))
		expect.That(t, in >= time.Hour, "want it to wait for hours, have it forwarded in %v", in)
	})
}

// A lock may expire a little earlier than Redis's clock says, as the embedded one's does. Nobody passes the crashed task then.
func TestLeaseEndsBeforeItsLock(test *testing.T) {
	test.Parallel()
	const early, ttl = 90 * time.Millisecond, 15 * time.Second
	for _, name := range []string{"begun", "renewed", "looked at", "asked for", "of a batch"} {
		test.Run(name, func(test *testing.T) {
			test.Parallel()
			t, memory := inMemory(test)
			clock := time.UnixMicro(1_800_000_000_000_900) // of a second, Redis' locks know the milliseconds
			passes := func(clocks, ttls time.Duration) {
				clock = clock.Add(clocks)
				memory.SetTime(clock)
				memory.FastForward(ttls)
			}
			passes(0, 0)
			one, two := t.server("one"), t.server("two")
			resource := "a"
			if name == "asked for" {
				resource = ""
			}
			t.pending("q", "first", resource)
			taken := one.takes("first ", nil, 1, "q")
			left, next := ttl, "next "
			switch name {
			case "renewed":
				passes(5*time.Second, 5*time.Second)
				expect.OK(t, expect.Err(one.Renew(t.Context(), "", []Name{taken[0].Name})))
			case "looked at":
				passes(ttl-early/2, ttl-early)
				two.takes("", nil, 1, "q")
				left = early
			case "asked for":
				one.ask(taken[0], "lock:a", Granted)
			case "of a batch":
				t.pending("q", "member", "a")
				two.takes("", nil, 1, "q")
				_, a := one.more(taken[0], 9)
				expect.Equal(t, "members", idsOf(a.Taken), "member ")
				next = "member "
			}
			t.pending("q", "next", "a")
			two.takes("", nil, 1, "q")
			passes(left-early, left)
			first := two.takes("first ", nil, 2, "q")
			two.takes(next, done(first...), 2, "q")
		})
	}
}

// A step gives a lock to one that waits, parks a task behind it, and takes one that came later and is to ask for the lock. Its fences are
// ahead of the clock, and so is the ticket of the one that it parks; that of the other is later all the same.
func TestAskBehindOneParkedInTheSameStep(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		first := s.line("q", "waits")
		t.pending("q", "parks", "a")
		t.pending("q", "asks", "")
		s.turn["q"] = false // the ready set's
		taken := s.takes("waits asks ", done(first), 2, "q")
		s.ask(taken[1], "lock:a", Parked)
		next := s.takes("parks ", done(taken[0]), 2, "q")
		next = s.takes("asks ", done(next...), 1, "q")
		s.takes("", done(next...), 1, "q")
		t.gone()
	})
}

// After Redis' clock has stepped back a task that asks comes behind all that wait, as one that is parked does.
func TestAskAfterAStepOfTheClock(test *testing.T) {
	test.Parallel()
	for resource, locks := range map[string]string{"": "lock:a", "\na\nb": "lock:a\nlock:b"} {
		t, memory := inMemory(test)
		clock, one := time.Unix(1_800_000_000, 0), t.server("one")
		memory.SetTime(clock)
		t.pending("q", "holder", "a")
		holder := one.takes("holder ", nil, 1, "q")
		t.pending("q", "waits", "a")
		one.takes("", nil, 1, "q")
		memory.SetTime(clock.Add(-10 * time.Second))
		t.pending("q", "asks", resource)
		one.ask(one.takes("asks ", nil, 1, "q")[0], locks, Parked)
		waits := one.takes("waits ", done(holder...), 1, "q")
		one.takes("asks ", done(waits...), 1, "q")
	}
}

// An attempt has lost the lock that it trusts, and holds another one, as after a failover. Its lease goes by that.
func TestLostLockBesideAnother(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		one := t.server("one")
		t.pending("q", "1", "a")
		taken := one.takes("1 ", nil, 1, "q")
		taken[0].Lock = "lock:b"
		_, a := one.make(done(taken...), 0)
		expect.Equal(t, "result", a.Results[0], Lost)
		lease, left := t.leaseOf("q", "1"), value(t, t.rdb.PTTL(t.Context(), "lock:a"))
		expect.That(t, lease <= left, "want a lease of %v at most, have %v", left, lease)
	})
}

func TestRenewKnowsALockThatWasJustGranted(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "plain", "")
		t.pending("q", "other", "b") // the program knows better than the client
		taken := s.takes("plain other ", nil, 2, "q")
		for i, lock := range []string{"lock:a1", "lock:a2"} {
			s.ask(taken[i], lock, Granted)
			t.must(t.rdb.PExpire(t.Context(), lock, time.Second).Err())
			kept, err := s.Renew(t.Context(), "", []Name{taken[i].Name}) // as sent before the answer came
			t.must(err)
			left := expect.Value(t.rdb.PTTL(t.Context(), lock).Result())(t)
			if in := t.leaseOf("q", taken[i].ID); !kept[0] || left < 14*time.Second || in > 15*time.Second {
				t.Errorf("%s: want it kept for 15s, have %v, a lock for %v and a lease for %v", taken[i].ID, kept[0], left, in)
			}
		}
	})
}

// Redis stood still while a renewal was under way, until the lease was over. As long as the task has no lock, that is no matter. But
// then it is given one, of which its server does not hear before it dies: nobody passes it.
func TestRenewalComesLate(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		one, two := t.server("one"), t.server("two")
		t.pending("q", "first", "") // only the program knows that it needs a lock
		t.pending("q", "next", "a")
		taken := one.takes("first ", nil, 1, "q")
		t.add(LeaseKey("q"), "first", 1)
		expect.That(t, expect.Value(one.Renew(t.Context(), "", []Name{taken[0].Name}))(t)[0], "want one without a lock kept")
		one.ask(taken[0], "lock:a", Granted)
		two.takes("", nil, 1, "q")
		t.crash("q", "first", "lock:a")
		expect.That(t, !expect.Value(one.Renew(t.Context(), "", []Name{taken[0].Name}))(t)[0], "want it lost")
		two.takes("first ", nil, 2, "q")
	})
}

// An attempt without a lock keeps the place that its task has in the line of one, and its lease is renewed all the same.
func TestRenewAnAttemptWithoutALock(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "0", "a")
		t.pending("q", "1", "a")
		s.takes("0 ", nil, 2, "q")
		t.must(t.rdb.HSet(t.Context(), TaskKey("q", "1"), "siding_wait_ends", "1").Err()) // it has waited for too long
		t.run("q", "1")
		taken := s.takes("1 ", nil, 1, "q")
		expect.Need(t, taken[0].Fence == WaitOver && taken[0].Lock == "", "want it taken without a lock, have %+v", taken[0])
		soon := float64(time.Now().Add(10 * time.Second).Unix())
		t.add(LeaseKey("q"), "1", soon)
		kept := expect.Value(s.Renew(t.Context(), "", []Name{taken[0].Name}))(t)
		lease := expect.Value(t.rdb.ZScore(t.Context(), LeaseKey("q"), "1").Result())(t)
		expect.That(t, kept[0] && lease != soon, "want its lease renewed, have %v until %.3f", kept[0], lease)
	})
}

// While an attempt asks for its lock nothing but its lease says that its server lives.
func TestLeaseOfAnAttemptThatAsks(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		s.PolicyKinds, s.TTL = []string{"kind"}, 500*time.Millisecond
		t.pending("q", "0", "a", "siding_kind", "kind")
		taken := s.takes("0 ", nil, 1, "q")
		in := t.leaseOf("q", "0")
		expect.That(t, taken[0].Lock == "" && in >= s.TTL, "want a lease of at least %v, and no lock, have %v, %q", s.TTL, in, taken[0].Lock)
	})
}

// A task that has left the server has no attempt any more: it may be a server of asynq, which knows of none, that takes it next.
func TestStepForgetsAnAttemptThatHasEnded(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		for _, kind := range []Kind{Retry, Snooze, Archive, Requeue, Complete, Ask} {
			queue := string(kind)
			t.pending(queue, "0", "a"+queue)
			t.must(t.rdb.Set(t.Context(), "lock:b", "siding:other:test", 0).Err())
			taken := s.takes("0 ", nil, 1, queue)
			o := Outcome{Name: taken[0].Name, Kind: kind, Message: taken[0].Encoded, After: time.Hour}
			if kind == Ask {
				o.Want = "lock:b"
			}
			_, a := s.make([]Outcome{o}, 0)
			r := a.Results[0]
			expect.Need(t, r == Settled || r == Parked, "%s: have %s", kind, r)
			n := t.rdb.HExists(t.Context(), TaskKey(queue, "0"), "siding_attempt").Val()
			expect.That(t, !n, "%s: want its attempt gone", kind)
		}
	})
}

// A repair may put a task into pending that is there already. One step takes it, or has it wait, once.
func TestStepMeetsATaskTwiceInPending(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		for _, id := range []string{"0", "1"} {
			t.pending("q", id, "a")
			t.must(t.rdb.LPush(t.Context(), PendingKey("q"), id).Err())
		}
		_, a := s.make(nil, 4, "q")
		expect.That(t, idsOf(a.Taken) == "0 " && len(a.Parked) == 1, "want 0 taken and 1 parked, have %q and %+v", idsOf(a.Taken), a.Parked)
		expect.Equal(t, "active or pending", t.rdb.LLen(t.Context(), ActiveKey("q")).Val()+t.rdb.LLen(t.Context(), PendingKey("q")).Val(), 1)
	})
}

// A step takes about a megabyte of messages, and leaves the others to the next one.
func TestStepEndsAfterManyBytes(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		for i := range 10 {
			id := fmt.Sprint(i)
			t.pending("q", id, "", "msg", messageWith("q", id, make([]byte, 300_000)))
		}
		for _, want := range []int{4, 4, 2} {
			_, a := s.make(nil, 10, "q")
			expect.Need(t, len(a.Taken) == want && a.Drawn[0].More == (want == 4), "want %d taken, have %d, and more: %v", want, len(a.Taken), a.Drawn[0].More)
		}
	})
}

// A step is sent again, and meanwhile an attempt that it has begun was given a lock. Then its lease ends with that.
func TestStepThatRunsTwiceKeepsALeaseShort(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		s, lane := t.server("one"), t.server("one")
		t.pending("q", "0", "")
		step, a := s.make(nil, 1, "q")
		now := expect.Value(t.rdb.Time(t.Context()).Result())(t)
		ask := Outcome{Name: a.Taken[0].Name, Kind: Ask, Want: "lock:a"}
		other, err := lane.Step(t.Context(), &Step{Lane: 1, Number: 1, Sent: now.UnixMicro(), Outcomes: []Outcome{ask}})
		t.must(err)
		expect.Need(t, other.Results[0] == Granted, "want it granted, have %s", other.Results[0])
		a, err = s.Step(t.Context(), step)
		t.must(err)
		in := t.leaseOf("q", "0")
		expect.That(t, len(a.Taken) == 1 && in <= 20*time.Second, "want a lease of %v, have %v", s.TTL, in)
	})
}

// Of locks that are freed together the one is ready first that was taken first, whatever their names and whichever
// outcome comes first.
func TestStepFreesInTheOrderOfTaking(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		for _, resource := range []string{"c", "a", "d", "b"} {
			t.pending("q", resource+"1", resource)
			t.pending("q", resource+"2", resource)
		}
		taken := s.takes("c1 a1 d1 b1 ", nil, 5, "q")
		outcomes := done(taken...)
		slices.SortFunc(outcomes, func(a, b Outcome) int { return strings.Compare(a.ID, b.ID) })
		s.takes("", outcomes, 0)
		for _, want := range []string{"c2 ", "a2 ", "d2 ", "b2 "} {
			s.takes(want, nil, 1, "q")
		}
	})
}

func TestStepSaysThatADeadlineIsOver(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		for id, deadline := range map[string]time.Duration{"1": -time.Minute, "2": time.Minute} {
			t.pending("q", id, "r"+id, "siding_deadline", time.Now().Add(deadline).Unix())
		}
		_, a := s.make(nil, 2, "q")
		for _, taken := range a.Taken {
			over := taken.ID == "1"
			expect.That(t, over == (taken.Fence == -1) && over == (taken.Lock == ""), "task %s: have lock %q and fence %d", taken.ID, taken.Lock, taken.Fence)
		}
	})
}

// oneWaits returns a server that has taken task 1 of a queue, and task 2 waits. Their resource has the name of the queue.
func (t *bench) oneWaits(queue string) (*stepper, Taken) {
	t.Helper()
	s := t.server("server of " + queue)
	t.pending(queue, "1", queue)
	t.pending(queue, "2", queue)
	first := s.takes("1 ", nil, 1, queue)[0]
	s.takes("", nil, 1, queue)
	return s, first
}

// An operator has revoked the lock of an attempt, see package lockredis. The attempt cannot renew it, and loses it when it
// ends; only then, and once it is known whether the task keeps its place, the next may have it.
func TestStepOfARevokedLock(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		for _, lost := range []bool{false, true} { // whether the attempt knows
			queue := fmt.Sprint("q-", lost)
			s, first := t.oneWaits(queue)
			key := "lock:" + queue
			t.must(t.rdb.Set(t.Context(), key, strings.Replace(first.Attempt, "siding:", "siding:revoked-", 1), redis.KeepTTL).Err())
			kept := expect.Value(s.Renew(t.Context(), "", []Name{first.Name}))(t)
			expect.That(t, !kept[0], "renew: want the lock lost")
			s.takes("", nil, 1, queue)
			out := Outcome{Name: first.Name, Kind: Snooze, Message: first.Encoded, After: time.Hour, Losses: 1}
			if lost {
				out.Lock = ""
			}
			if !lost {
				if _, a := s.make([]Outcome{out}, 1, queue); a.Results[0] != Lost || idsOf(a.Taken) != "" {
					t.Errorf("want it lost, and no task yet, have %s and %q", a.Results[0], idsOf(a.Taken))
				}
				out.Lock = ""
			}
			if _, a := s.make([]Outcome{out}, 1, queue); a.Results[0] != Settled || idsOf(a.Taken) != "2 " {
				t.Errorf("want it settled, and the next task, have %s and %q", a.Results[0], idsOf(a.Taken))
			}
		}
	})
}

// The lock of an attempt has run out, and its server hears of it with what has ended. Nobody has the lock until the server says
// whether the task keeps its place; and not much longer if it never does.
func TestStepOfALockThatRanOut(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		for answers, next := range map[bool]string{true: "1 ", false: "2 "} {
			queue := fmt.Sprint("q-", answers)
			s, first := t.oneWaits(queue)
			key := "lock:" + queue
			t.must(t.rdb.Del(t.Context(), key).Err())
			t.add(ReadyKey(queue), key, 1)
			out := Outcome{Name: first.Name, Kind: Retry, Message: first.Encoded, Hold: true}
			_, a := s.make([]Outcome{out}, 1, queue)
			expect.That(t, a.Results[0] == Lost && idsOf(a.Taken) == "", "want it lost, and no task yet, have %s and %q", a.Results[0], idsOf(a.Taken))
			var outcomes []Outcome
			if answers {
				out.Lock = ""
				outcomes = append(outcomes, out)
			} else if left := t.rdb.PTTL(t.Context(), key).Val(); left <= 0 || left > 2*time.Second {
				t.Errorf("the lock lasts for %v, want up to 2s", left)
			} else {
				t.must(t.rdb.Del(t.Context(), key).Err())
				t.add(ReadyKey(queue), key, 1)
			}
			s.takes(next, outcomes, 1, queue)
		}
	})
}

// A server that is told of a loss, and stands still then, has its task taken for crashed before anybody else has its lock.
func TestServerThatIsSilentAfterALoss(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		s, first := t.oneWaits("q")
		t.must(t.rdb.Del(t.Context(), "lock:q").Err())
		_, a := s.make(done(first), 1, "q")
		expect.Need(t, a.Results[0] == Lost && len(a.Taken) == 0, "want it lost, and its lock kept, have %s and %v", a.Results[0], a.Taken)
		lease, left := t.leaseOf("q", first.ID), value(t, t.rdb.PTTL(t.Context(), "lock:q"))
		expect.That(t, lease > 0 && lease < left, "want its lease to end before the lock does in %v, have it end in %v", left, lease)
		t.crash("q", first.ID, "lock:q")
		t.server("two").takes(first.ID+" ", nil, 1, "q")
	})
}

// An attempt that is given back has lost its lock: its task keeps its place all the same.
func TestStepGivesBackARevokedLock(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		s, first := t.oneWaits("q")
		t.must(t.rdb.Set(t.Context(), "lock:q", strings.Replace(first.Attempt, "siding:", "siding:revoked-", 1), redis.KeepTTL).Err())
		s.takes("1 ", []Outcome{{Name: first.Name, Kind: Requeue}}, 1, "q")
	})
}

// Of tasks with one priority the first that came is the first in the line, also if it has not waited: after a crash, or
// if it holds the line.
func TestStepKeepsThePlaceOfAPriority(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		for name, kind := range map[string]Kind{"crash": "", "hold": Retry, "given back": Requeue} {
			s := t.server("server of " + name)
			for _, id := range []string{"1", "2"} {
				t.pending(name, id, name, "siding_priority", 3)
			}
			first := s.takes("1 ", nil, 1, name)[0]
			s.takes("", nil, 1, name)
			var outcomes []Outcome
			if kind == "" {
				t.must(t.rdb.Del(t.Context(), "lock:"+name).Err())
				t.add(LeaseKey(name), "1", 1)
			} else {
				outcomes = []Outcome{{Name: first.Name, Kind: kind, Message: first.Encoded, Hold: kind == Retry}}
			}
			s.takes("1 ", outcomes, 1, name)
		}
	})
}

// A task that has begun comes back before those that this step has parked behind it, also if many without a lock began before; and
// these keep the order in which they came, also with a priority.
func TestStepGivesTicketsInOrder(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		for _, priority := range []int{0, 3} {
			queue := fmt.Sprint("q-", priority)
			for i := range 9 {
				t.pending(queue, fmt.Sprint("other ", i), "")
			}
			for _, id := range []string{"d", "c", "b", "a"} {
				t.pending(queue, id, queue, "siding_priority", priority)
			}
			_, a := s.make(nil, 13, queue)
			outcomes := []Outcome{{Name: a.Taken[9].Name, Kind: Requeue}}
			for _, next := range []string{"d ", "c ", "b ", "a "} {
				outcomes = done(s.takes(next, outcomes, 1, queue)...)
			}
		}
	})
}

// A crashed task that upkeep ends only after half a minute, as it has no retries and its handler had begun, holds up nobody. One
// that upkeep ends at once does.
func TestStepGoesOnWithoutACrashedTask(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		for crashes, next := range map[int]string{0: "2 ", 3: ""} {
			queue := fmt.Sprint("q-", crashes)
			s, first := t.oneWaits(queue)
			t.must(t.rdb.HSet(t.Context(), TaskKey(queue, "1"), "siding_began", first.Attempt, "siding_crashes", crashes).Err())
			t.crash(queue, "1", "lock:"+queue)
			s.takes(next, nil, 1, queue)
		}
	})
}

// A crashed task whose ticket is no number has no place in its line. Those who wait in that keep theirs.
func TestStepKeepsALineBesideAWrongTicket(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		s, _ := t.oneWaits("q")
		t.must(t.rdb.HSet(t.Context(), TaskKey("q", "1"), "siding_ticket", "ten").Err())
		t.crash("q", "1", "lock:q")
		s.takes("2 ", nil, 1, "q")
	})
}

// Who asks for a lock does not pass a crashed task either that this step has not put back, as more have crashed than it may.
func TestAskBehindManyCrashes(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		const crashes = 25
		for i := range crashes {
			t.pending("q", fmt.Sprint("crashed-", i), fmt.Sprint("r", i))
		}
		s.make(nil, crashes, "q")
		t.pending("q", "asks", "")
		taken := s.takes("asks ", nil, 1, "q")
		for i := range crashes {
			t.must(t.rdb.Del(t.Context(), fmt.Sprint("lock:r", i)).Err())
			t.add(LeaseKey("q"), fmt.Sprint("crashed-", i), float64(i))
		}
		s.ask(taken[0], fmt.Sprint("lock:r", crashes-1), Parked)
	})
}

// An operator has the first of a line run: it is pending, and keeps its place. So does one whose lock only its server can tell, which
// must not ask for it while the next one takes it.
func TestStepKeepsThePlaceOfOneThatAnOperatorRuns(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		for queue, resource := range map[string]string{"known": "known", "asks": ""} {
			t.pending(queue, "holds", queue)
			holds := s.takes("holds ", nil, 1, queue)
			for _, id := range []string{"first", "second"} {
				t.pending(queue, id, resource)
				_, a := s.make(nil, 1, queue)
				for _, taken := range a.Taken {
					s.ask(taken, "lock:"+queue, Parked)
				}
			}
			t.run(queue, "first")
			s.takes("first ", done(holds...), 2, queue)
			n := t.rdb.LLen(t.Context(), PendingKey(queue)).Val()
			expect.That(t, n == 0, "%s: want nobody pending, have %d", queue, n)
		}
	})
}

// Such a task is taken out of the middle of those that are pending, while the step goes through them. It loses none of the others.
func TestStepLosesNobodyBehindOneThatAnOperatorRuns(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "holds", "a")
		holds := s.takes("holds ", nil, 1, "q")
		t.pending("q", "run", "a")
		s.takes("", nil, 1, "q")
		t.pending("q", "1", "")
		t.pending("q", "2", "")
		t.run("q", "run")
		for _, id := range []string{"3", "4", "5"} {
			t.pending("q", id, "")
		}
		s.turn["q"] = true
		s.takes("1 run 2 3 ", done(holds...), 4, "q")
		s.takes("4 5 ", nil, 4, "q")
	})
}

// Nobody goes before a crashed task that upkeep is about to end, not even if its lock is freed in that same step.
func TestStepKeepsALineForOneThatCrashedTooOften(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "holds", "b")
		t.pending("q", "asks", "")
		t.pending("q", "crashed", "a")
		taken := s.takes("holds asks crashed ", nil, 3, "q")
		t.pending("q", "waits", "a")
		s.takes("", nil, 1, "q")
		// The lock ends before the lease, and the task that asks came before the one that waits.
		t.must(t.rdb.Del(t.Context(), "lock:a").Err())
		ask := Outcome{Name: taken[1].Name, Kind: Ask, Want: "lock:a"}
		if _, a := s.make([]Outcome{ask}, 0); len(a.Results) != 1 || a.Results[0] == Parked {
			t.Fatalf("want it granted, have %v", a.Results)
		}
		t.must(t.rdb.HSet(t.Context(), TaskKey("q", "crashed"), "siding_crashes", 3).Err())
		t.add(LeaseKey("q"), "crashed", 1)
		// The answer was lost, and it asks again, now for another lock: what it held is free.
		ask.Want = "lock:b"
		_, a := s.make([]Outcome{ask}, 1, "q")
		expect.That(t, idsOf(a.Taken) == "" && a.Results[0] == Parked, "want it parked and none taken, have %v, taken %q", a.Results, idsOf(a.Taken))
	})
}

// While Redis has no memory left, a server goes on: tasks begin, keep their locks and end, as Redis lets a script go on that has begun to write.
func TestStepsWithoutMemory(test *testing.T) {
	test.Parallel()
	t := newBench(test, redistest.Start(test).Client(test))
	for _, id := range []string{"1", "2"} {
		t.pending("q", id, "a")
	}
	t.must(t.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	err := t.rdb.Set(t.Context(), "x", "y", 0).Err()
	expect.Need(t, err != nil, "want no memory left, have some")
	s := t.server("one")
	taken := s.takes("1 ", nil, 2, "q")
	latest := expect.Value(s.Began(t.Context(), taken[0].Name, false))(t)
	expect.That(t, latest, "began: want it written down, have %t", latest)
	kept := expect.Value(s.Renew(t.Context(), "", []Name{taken[0].Name}))(t)
	expect.That(t, kept[0], "renew: want it renewed, have %v", kept)
	s.takes("", done(s.takes("2 ", done(taken...), 2, "q")...), 2, "q")
}

// A step parks as many tasks with large payloads as with small ones, and Redis reads few of these.
func TestStepParksLargeTasks(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		const n = 150
		for i := range n {
			id, payload := fmt.Sprint(i), make([]byte, 250_000)
			if i == n/2 {
				payload = []byte("a small one")
			}
			t.pending("q", id, "a", "msg", messageWith("q", id, payload))
		}
		t.pending("q", "other", "b")
		s := t.server("one")
		taken := s.takes("0 other ", nil, 2, "q")
		have := len(taken[0].Encoded)
		expect.That(t, have >= 250_000, "want the message of the first, have %d bytes", have)
		for i := 1; i < n; i++ {
			taken = s.takes(fmt.Sprint(i, " "), done(taken...), 1, "q")
			m := expect.Value(DecodeMessage(taken[0].Encoded))(t)
			expect.That(t, m.ID == fmt.Sprint(i) && m.ErrorMsg == "", "want %d without a sentence, have %s, %q", i, m.ID, m.ErrorMsg)
		}
	})
}

// A crowd that is parked, or looked at in vain, holds up only the tasks of its own queue.
func TestStepHasSomethingLeftForOtherQueues(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"many": 10, "large": 10_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServer(t, func(t *bench, s *stepper) {
				for i := range 500 {
					id := fmt.Sprint(i)
					t.pending("crowd", id, "a", "msg", messageWith("crowd", id, make([]byte, size)))
				}
				t.pending("other", "b", "b")
				t.pending("third", "c", "c")
				s.takes("0 b c ", nil, 3, "crowd", "other", "third")
			})
		})
	}
	t.Run("all of them", func(t *testing.T) { // each slot begins with another queue, so all have their share before one uses it up
		t.Parallel()
		onServer(t, func(t *bench, s *stepper) {
			step := &Step{Number: 1}
			for i := range 6 {
				queue := fmt.Sprint("q", i)
				t.pending(queue, "first", queue)
				for n := range 200 {
					t.pending(queue, fmt.Sprint(n), queue)
				}
				step.Draws = append(step.Draws, Draw{queue, true})
				step.Slots = append(step.Slots, Order(rune(i+1)))
			}
			step.Slots = append(step.Slots, step.Slots...)
			step.Sent = expect.Value(t.rdb.Time(t.Context()).Result())(t).UnixMicro()
			a := expect.Value(s.Step(t.Context(), step))(t)
			expect.That(t, len(a.Taken) == 6 && len(a.Parked) > 300 && len(a.Parked) <= 400, "want 6 taken and 300 to 400 parked, have %d and %d", len(a.Taken), len(a.Parked))
		})
	})
	t.Run("looks", func(t *testing.T) {
		t.Parallel()
		onServer(t, func(t *bench, s *stepper) {
			for i := range 150 {
				t.pending("crowd", fmt.Sprint(i), fmt.Sprint("a", i))
				t.must(t.rdb.Set(t.Context(), fmt.Sprint("lock:a", i), "another program's", 0).Err())
			}
			t.pending("other", "1", "b")
			t.pending("other", "2", "b")
			first := s.takes("1 ", nil, 2, "crowd", "other")
			for i := range 150 {
				t.add(ReadyKey("crowd"), fmt.Sprint("lock:a", i), 1)
			}
			s.turn["crowd"] = false
			s.takes("2 ", done(first...), 1, "crowd", "other")
		})
	})
}

// A program that tells nobody when it leaves has the lock of a task. The step that parks the task, after it has found no lock that
// is due, says when to look.
func TestStepSaysWhenToLookAtALock(t *testing.T) {
	t.Parallel()
	onOwnRedis(t, func(t *bench) {
		t.must(t.rdb.Set(t.Context(), "lock:a", "another program's", 10*time.Second).Err())
		t.pending("q", "1", "a")
		_, a := t.server("one").make(nil, 1, "q")
		d := a.Drawn[0].Due
		expect.That(t, len(a.Parked) == 1 && d > 0 && d <= time.Second, "want a task parked, and its lock looked at within a second, have %d, and %v", len(a.Parked), d)
	})
}

// A step may name more queues than its slots come to try. It does not look at those, and says so.
func TestStepLooksOnlyAtQueuesThatItTries(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", "1", "")
		t.pending("r", "2", "")
		_, a := s.make(nil, 1, "q", "r")
		expect.That(t, idsOf(a.Taken) == "1 " && !a.Drawn[0].Untried && a.Drawn[1].Untried && !a.Drawn[1].More, "want 1 taken, and r not looked at, have %q, %+v", idsOf(a.Taken), a.Drawn)
		s.takes("2 ", nil, 1, "q", "r")
	})
}
