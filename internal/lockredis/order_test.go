package lockredis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

// Goroutines and tasks of several queues get the lock in the order in which they came.
func TestOrderOfArrival(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"gt", "tg", "gtgtgt", "tgtgtg", "ggtt", "ttgg", "tggttgut", "ugtugg"} { // u is a task of another queue
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(w *world) {
				queues := map[rune]string{'t': "q", 'u': "other"}
				w.takes("holder")
				for i, kind := range order {
					if kind == 'g' {
						w.waits(fmt.Sprint(i))
					} else {
						w.parks(queues[kind], fmt.Sprint(i))
					}
				}
				w.leaves("holder")
				for i, kind := range order {
					name := fmt.Sprint(i)
					for other := range w.steps { // those who are not next get nothing
						if other != queues[kind] && w.memory != nil { // a machine may stand still while others have to wait
							w.runs(other, "")
						}
					}
					if kind == 'g' {
						w.wantReserved(name)
						w.takes(name)
						w.leaves(name)
						continue
					}
					for j, later := range order[i+1:] {
						if later == 'g' && w.memory != nil {
							w.waits(fmt.Sprint(i + 1 + j))
						}
					}
					w.runs(queues[kind], name)
					r := w.ends(queues[kind], name, "")
					expect.Need(w, r == taskredis.Settled, "want it settled, have %s", r)
				}
				w.takes("last")
			})
		})
	}
}

// A goroutine that tries once respects tasks, too, for as long as a freed lock is offered to them.
func TestFreedLockIsOfferedToOlderTasks(t *testing.T) {
	t.Parallel()
	onMemory(t, func(w *world) {
		w.takes("holder")
		w.parks("q", "task")
		w.leaves("holder")
		r := expect.Value(w.store.Acquire(w.Context(), store.Request{Key: key, Token: token("x"), TTL: time.Second, FenceTTL: time.Hour, Handoff: hand("x")}))(w)
		expect.Need(w, !r.Taken && r.Reserved && r.Left > 0 && r.Left <= offer, "want it busy for %v, have %+v", offer, r)
		n := w.rdb.LLen(w.Context(), taskredis.NotifyKey("q")).Val()
		expect.That(w, n == 1, "want an idle server woken, have %d elements", n)
		w.runs("q", "task")
	})
}

// A line whose queue nobody serves delays goroutines by the time of an offer, and no longer.
func TestLineThatNobodyServes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rule           *store.Rule
		holders, leave []string
	}{
		"no rule":                {nil, []string{"holder"}, []string{"holder"}},
		"a limit, with nobody":   {&store.Rule{Limit: 2}, []string{"holder", "other"}, []string{"other", "holder"}},
		"a limit, with a holder": {&store.Rule{Limit: 2}, []string{"holder", "other"}, []string{"holder"}},
		"a rate":                 {&store.Rule{Limit: 1, Rates: []store.Rate{{Starts: 100, Period: time.Minute}}}, []string{"holder"}, []string{"holder"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(w *world) {
				w.rule = tc.rule
				for _, holder := range tc.holders {
					w.takes(holder)
				}
				w.parks("q", "task")
				w.waits("g")
				var start time.Time
				for _, holder := range tc.leave {
					start = w.now()
					w.leaves(holder)
					have := w.called()
					expect.Need(w, have == "g", "want the goroutine told to ask again, have %q", have)
				}
				for r := w.ask("g"); !r.Taken; r = w.ask("g") {
					expect.Need(w, r.Reserved && r.Left > 0 && r.Left <= offer && r.Position == 1 && w.now().Sub(start) <= 20*offer,
						"want it told to ask again in %v, have %+v", offer, r)
					w.passes(r.Left)
				}
				took := w.now().Sub(start)
				expect.That(w, took >= offer, "want the lock offered for %v, have it after %v", offer, took)
				// Its own release offers the lock again: the task still is the first.
				w.leaves("g")
				w.runs("q", "task")
			})
		})
	}
}

// The clock steps back after a lock was freed: it is offered to the line for 50 ms all the same.
func TestOfferWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	onMemory(t, func(w *world) {
		w.takes("holder")
		w.parks("q", "task")
		w.waits("g")
		w.leaves("holder")
		w.passes(-10 * time.Minute)
		r := w.ask("g")
		expect.Need(w, !r.Taken && r.Left <= offer, "want it told to ask again in %v, have %+v", offer, r)
		w.passes(2 * offer)
		w.takes("g")
	})
}

// The holder dies. Whoever of those that wait looks first finds the lock free, and the one that came first gets it.
func TestHolderDies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(w *world){
		"a goroutine looks, a task is first": func(w *world) {
			w.parks("q", "task")
			w.waits("g")
			w.rdb.Del(w.Context(), key)
			r := w.waits("g")
			expect.Need(w, r.Left > 0 && r.Left <= offer, "want it told to ask again in %v, have %+v", offer, r)
			taken := w.runs("q", "task")
			expect.That(w, taken.Freed == 0, "want a lock that nobody freed, have %+v", taken)
		},
		"a task looks, a goroutine is first": func(w *world) {
			w.waits("g")
			w.parks("q", "task")
			w.rdb.Del(w.Context(), key)
			w.rdb.ZAdd(w.Context(), taskredis.ReadyKey("q"), due(key)) // its time is over
			w.runs("q", "")
			w.wantReserved("g")
			w.takes("g")
		},
		"a new task looks, a goroutine is first": func(w *world) {
			w.waits("g")
			w.rdb.Del(w.Context(), key)
			w.parks("q", "task")
			w.wantReserved("g")
			w.takes("g")
			w.leaves("g")
			w.runs("q", "task")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(w *world) {
				w.takes("holder")
				test(w)
			})
		})
	}
}

// Goroutines that are called and do not come delay the tasks behind them by one hand-off timeout together.
func TestGoroutinesThatDoNotCome(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		w.takes("holder")
		for i := range 3 {
			w.waits(fmt.Sprint("dead", i))
		}
		w.parks("q", "task")
		start := w.now()
		w.leaves("holder")
		w.wantReserved("dead0")
		w.runs("q", "")
		expect.Eventually(w.T, "the task taken", func() bool {
			w.wantReservedAtMost("dead0") // the others are not called one after the other
			w.passes(handoff / 50)
			return len(w.server("q").step(1).Taken) > 0
		})
		took := w.now().Sub(start)
		expect.That(w, took >= handoff, "want the task to wait for one hand-off timeout, have it wait for %v", took)
	})
}

// A goroutine to whom nobody listens delays nobody.
func TestGoroutineThatHasGone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		w.takes("holder")
		w.rdb.ZAdd(w.Context(), "{"+key+"}:queue", due(store.GoroutinePrefix+"gone:1"))
		w.parks("q", "task")
		w.leaves("holder")
		w.runs("q", "task")
	})
}

// A goroutine whose lock is reserved gives up. Then the lock is for whoever came next.
func TestReservedGoroutineLeaves(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		w.takes("holder")
		w.waits("g")
		w.parks("q", "task")
		w.leaves("holder")
		w.wantReserved("g")
		for range 2 {
			w.must(w.store.Leave(w.Context(), key, waiter("g"), store.Leave{Handoff: hand("leave")}))
		}
		w.runs("q", "task")
	})
}

// The next holder learns when the lock was freed for it, and by which trace.
func TestTraceOfTheLastHolder(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	onBoth(t, func(w *world) {
		w.takes("holder")
		w.parks("q", "task")
		w.waits("g")
		w.parks("q", "next")
		w.parks("q", "last")
		before := w.rdb.Time(w.Context()).Val().UnixMicro()
		w.leaves("holder")
		taken := w.runs("q", "task")
		after := w.rdb.Time(w.Context()).Val().UnixMicro()
		expect.That(w, taken.FreedBy == "" && taken.Freed >= before && taken.Freed <= after, "want it freed by nobody known from %d to %d, have %+v", before, after, taken)
		w.ends("q", "task", trace)
		w.takes("g")
		w.leaves("g")
		if taken := w.runs("q", "next"); taken.FreedBy != "" || taken.Freed == 0 {
			w.Errorf("want it freed by somebody, have %+v", taken)
		}
		w.ends("q", "next", trace)
		if taken := w.runs("q", "last"); taken.FreedBy != trace || taken.Freed == 0 {
			w.Errorf("want it freed by %s, have %+v", trace, taken)
		}
		n := w.rdb.Exists(w.Context(), "{"+key+"}:freed").Val()
		expect.That(w, n == 0, "want nothing kept of that")
	})
}

// A lock with permits: those of both kinds hold it at once, and the next that comes is the one that came first.
func TestPermitsOfBothKinds(t *testing.T) {
	t.Parallel()
	onMemory(t, func(w *world) {
		w.rule = &store.Rule{Limit: 2}
		w.takes("g0")
		a := w.comes("q", "t0")
		expect.Need(w, len(a.Taken) == 1, "want a permit for the task, have %+v", a)
		w.waits("g1")
		w.parks("q", "t1")
		w.waits("g2")
		w.parks("q", "t2")
		w.leaves("g0")
		w.runs("q", "") // the one that is free is reserved for g1
		w.takes("g1")
		w.ends("q", "t0", "")
		w.waits("g2")
		w.runs("q", "t1")
		w.leaves("g1")
		w.takes("g2")
		w.waits("g3")
		w.leaves("g2")
		w.runs("q", "t2")
		w.ends("q", "t1", "")
		w.takes("g3")
		permits := expect.Value(lockredis.Permits(w.Context(), w.rdb, key))(w)
		expect.That(w, len(permits) == 2, "want two permits in use, have %+v", permits)
		w.ends("q", "t2", "")
		w.leaves("g3")
		n := w.rdb.Exists(w.Context(), key, "{"+key+"}:permits").Val()
		expect.That(w, n == 0, "want the lock free")
	})
}

// The mark of a lock with permits lasts as long as the longest of them was to. Once none is in use, who knows no limit has the lock.
func TestMarkThatOutlivesAllPermits(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]func(w *world){
		"goroutine": func(w *world) { w.takes("g") },
		"task":      func(w *world) { expect.Equal(w, "tasks taken", len(w.comes("q", "task").Taken), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onMemory(t, func(w *world) {
				for name, ttl := range map[string]time.Duration{"long": time.Hour, "short": time.Second} {
					w.tick()
					r := expect.Value(w.store.Acquire(w.Context(), store.Request{
						Key: key, Rule: &store.Rule{Limit: 3}, Token: token(name), TTL: ttl, FenceTTL: time.Hour, Handoff: hand(name),
					}))(w)
					w.held[name] = r
				}
				w.leaves("long")
				w.passes(2 * time.Second) // the other one died
				left := w.rdb.PTTL(w.Context(), key).Val()
				expect.Need(w, left > 30*time.Minute, "want the mark still there, have %v left", left)
				takes(w)
			})
		})
	}
}

// A holder acquires, releases, and both calls come once more, late: the second release hands the lock on with the fence of the second
// grant, which does not go back.
func TestLateCopiesKeepTheFence(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		first := w.takes("holder")
		w.leaves("holder")
		again := w.takes("holder")
		w.waits("g")
		w.held["holder"] = first
		w.leaves("holder")
		w.wantReserved("g")
		fence := expect.Value(w.rdb.Get(w.Context(), store.Beside(key, "fence")).Result())(w)
		expect.That(w, fence == fmt.Sprintf("%d*", again.Fence), "want the fence %d of the second grant, have %s; the first was %d", again.Fence, fence, first.Fence)
	})
}

// The limit of a lock was raised while many wait: who frees it lets them all in, with a number of commands for each that does not
// grow with how many there are.
func TestLimitThatWasRaised(t *testing.T) {
	t.Parallel()
	const waiters = 200
	w := newWorld(t, redistest.Start(t).Client(t))
	w.takes("holder")
	for i := range waiters {
		w.waits(fmt.Sprint(i))
	}
	w.rule = &store.Rule{Limit: 1000}
	ran := func() int {
		stats := expect.Value(w.rdb.Info(t.Context(), "stats").Result())(t)
		n := 0
		_, text, _ := strings.Cut(stats, "total_commands_processed:")
		_, _ = fmt.Sscan(text, &n)
		return n
	}
	before := ran()
	w.leaves("holder")
	if have := ran() - before; have > 20*waiters {
		t.Errorf("want at most 20 commands for each of %d waiters, have %d in all", waiters, have)
	}
	n := w.rdb.HLen(t.Context(), store.Beside(key, "permits")).Val()
	expect.That(t, n == waiters, "want as many permits reserved, have %d", n)
}

// A permit is reserved for a goroutine that has gone. Its process, which learns that from the call, does not know the rule. If the
// next one has gone, too, that one was only told to ask, as a permit is free.
func TestPermitOfGoroutinesThatHaveGone(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string][]string{"one": {"gone"}, "two": {"gone", "gone-too"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(w *world) {
				w.rule = &store.Rule{Limit: 2}
				w.takes("one")
				w.takes("two")
				for _, waits := range gone {
					w.waits(waits)
				}
				w.waits("next")
				w.leaves("one")
				for _, want := range gone {
					if have := w.called(); have != want {
						w.Fatalf("want %s called, have %q", want, have)
					}
					w.must(w.store.Leave(w.Context(), key, waiter(want), store.Leave{Handoff: hand("leave-" + want)}))
				}
				if have := w.called(); have != "next" {
					w.Fatalf("want the next one called, have %q", have)
				}
				w.takes("next")
			})
		})
	}
}

// Rates allow the next start some time after a release. Then the one that came first has it.
func TestRatesOfBothKinds(t *testing.T) {
	t.Parallel()
	const period = 3 * time.Second
	onBoth(t, func(w *world) {
		w.rule = &store.Rule{Limit: 1, Rates: []store.Rate{{Starts: 1, Period: period}}}
		w.takes("holder")
		w.waits("g")
		w.parks("q", "t")
		w.leaves("holder")
		have := w.called()
		expect.Need(w, have == "g", "want the goroutine told to ask when it may start, have %q", have)
		r := w.waits("g")
		expect.Need(w, r.Later > 0 && r.Later <= period, "want the time of the next start, have %+v", r)
		w.runs("q", "")
		w.passes(r.Later)
		w.takes("g")
		w.leaves("g")
		w.runs("q", "")
		w.passes(period)
		w.runs("q", "t")
	})
}

// An operator takes the lock from its holder. It goes to the next when the holder returns.
func TestRevoke(t *testing.T) {
	t.Parallel()
	revoke := func(w *world, fence int64, want lockredis.RevokeResult) {
		w.Helper()
		for range 2 { // the answer may be lost
			outcome, _, left, _, err := lockredis.Revoke(w.Context(), w.rdb, lockredis.Revocation{Key: key, Fence: fence, By: "alice", Reason: "stuck", Handoff: hand("revoke")})
			w.must(err)
			expect.Need(w, outcome == want && (want != lockredis.Revoked || left > 0), "want it %s, have %s and %v", want, outcome, left)
		}
	}
	t.Run("task", func(t *testing.T) {
		t.Parallel()
		onBoth(t, func(w *world) {
			w.comes("q", "task")
			w.waits("g")
			w.parks("q", "next")
			task := w.taken["task"]
			revoke(w, task.Fence+1, lockredis.Other)
			revoke(w, task.Fence, lockredis.Revoked)
			w.waits("g") // until the holder returns
			kept := expect.Value(w.server("q").Renew(w.Context(), "", []taskredis.Name{task.Name}))(w)
			expect.That(w, !kept[0], "want the attempt told that it lost the lock")
			r := w.ends("q", "task", "")
			expect.That(w, r == taskredis.Lost, "want it lost, have %s", r)
			w.waits("g") // until it is known what becomes of the task
			again := taskredis.Outcome{Name: task.Name, Kind: taskredis.Snooze, Message: task.Encoded, After: time.Hour, Losses: 1}
			again.Lock = ""
			w.server("q").step(0, again)
			w.wantReserved("g")
			by, reason, err := lockredis.RevokedBy(w.Context(), w.rdb, key, task.Fence)
			expect.That(w, err == nil && by == "alice" && reason == "stuck", "want to know who and why, have %q, %q and %v", by, reason, err)
			w.takes("g")
			w.leaves("g")
			w.runs("q", "next")
		})
	})
	t.Run("goroutine", func(t *testing.T) {
		t.Parallel()
		onBoth(t, func(w *world) {
			w.takes("holder")
			w.parks("q", "task")
			w.waits("g")
			revoke(w, 0, lockredis.Revoked)
			w.runs("q", "")
			expect.Is(w, "renew", w.store.Renew(w.Context(), key, token("holder"), time.Second, time.Second), store.ErrLost)
			for range 2 {
				expect.Is(w, "release", w.release("holder"), store.ErrLost)
			}
			w.runs("q", "task")
			w.ends("q", "task", "")
			w.takes("g")
			// The first call once more, late: it is over.
			outcome, _, left, _, err := lockredis.Revoke(w.Context(), w.rdb, lockredis.Revocation{Key: key, By: "alice", Reason: "stuck", Handoff: hand("revoke")})
			expect.That(w, err == nil && outcome == lockredis.Revoked && left == 0, "want the answer of the first call, have %s, %v and %v", outcome, left, err)
			w.leaves("g")
		})
	})
	t.Run("another program", func(t *testing.T) {
		t.Parallel()
		onBoth(t, func(w *world) {
			w.rdb.Set(w.Context(), key, "8f3a60", time.Minute)
			w.parks("q", "task")
			w.rdb.Del(w.Context(), key)
			w.rdb.HSet(w.Context(), key, "of another type", "as any lock of a program that Siding does not know")
			outcome, holder, _, _, err := lockredis.Revoke(w.Context(), w.rdb, lockredis.Revocation{Key: key, By: "alice", Handoff: hand("revoke")})
			w.must(err)
			expect.Need(w, outcome == lockredis.Revoked && holder == store.ForeignHolder, "want it revoked, have %s of %q", outcome, holder)
			w.runs("q", "task")
		})
	})
	t.Run("nobody", func(t *testing.T) {
		t.Parallel()
		onBoth(t, func(w *world) { revoke(w, 0, lockredis.Free) })
	})
}

// A release and a step that are sent again wake nobody else.
func TestReleaseToTasksIsSentAgain(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		w.takes("holder")
		w.parks("q", "task")
		w.waits("g")
		w.leaves("holder")
		w.runs("q", "task")
		w.leaves("holder") // no loss
		w.waits("g")
		w.wantReserved("")
	})
}

// A release of a permit that is sent again is no loss because of others, who have theirs: they were granted the lock later, or
// since.
func TestReleaseOfAPermitIsSentAgain(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		w.rule = &store.Rule{Limit: 2}
		w.takes("one")
		w.takes("two")
		w.leaves("one")
		w.leaves("one")
		w.takes("three")
		w.leaves("one")
		w.leaves("three")
		w.leaves("two")
	})
}

// Goroutines by way of package lock, and tasks: each gets the lock soon after it was freed.
func TestLockerBesideTasks(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		locker := expect.Value(lock.New(w.store, lock.Config{}))(w)
		w.Cleanup(locker.Close)
		w.comes("q", "0")
		for i := range 5 {
			id, next := fmt.Sprint(i), fmt.Sprint(i+1)
			got := make(chan *lock.Lease, 1)
			go func() {
				held, err := locker.Acquire(w.Context(), "a", &lock.Options{Wait: lock.Forever})
				expect.Is(w, "the goroutine", err, nil)
				got <- held
			}()
			expect.Eventually(w.T, "a queued waiter", func() bool { return w.rdb.ZCard(w.Context(), "{"+key+"}:queue").Val() == 1 })
			w.parks("q", next)
			start := time.Now()
			w.ends("q", id, "")
			held := <-got
			took := time.Since(start)
			expect.Need(w, held != nil && took <= 2*time.Second, "want the lock at once, have it after %v", took)
			w.runs("q", "")
			w.must(held.Release(w.Context()))
			w.runs("q", next)
		}
	})
}
