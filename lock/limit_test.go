package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// wantPermits checks which permits of the lock are held or reserved.
func (s *setup) wantPermits(want ...int) []lockredis.Permit {
	s.Helper()
	permits := expect.Value(lockredis.Permits(s.Context(), s.rdb, s.key))(s)
	var have []int
	for _, p := range permits {
		have = append(have, p.Number)
	}
	expect.Need(s, slices.Equal(have, want), "want the permits %v, have %v", want, permits)
	return permits
}

// wantReserved checks for whom permits are reserved.
func (s *setup) wantReserved(want ...string) {
	s.Helper()
	permits := expect.Value(lockredis.Permits(s.Context(), s.rdb, s.key))(s)
	var have []string
	for _, p := range permits {
		if p.Reserved {
			have = append(have, s.short(p.Name))
		}
	}
	slices.Sort(have)
	expect.Need(s, slices.Equal(have, want), "want permits reserved for %v, have %v", want, have)
}

var three = &store.Rule{Limit: 3}

func TestLimitGrantsSoManyPermits(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		var fences []int64
		var held []*lease.Lease
		for i := range three.Limit {
			l := s.of(three).take(fmt.Sprint("w", i))
			if len(fences) > 0 && l.Fence() <= fences[len(fences)-1] {
				s.Fatalf("want fences that grow, have %d after %v", l.Fence(), fences)
			}
			held, fences = append(held, l), append(fences, l.Fence())
		}
		busy := s.of(three).refuse("w4")
		expect.Need(s, busy.Holders == 3 && busy.Position == 1 && busy.Remaining > 0 && strings.Contains(busy.Holder, ", and 2 more") && !busy.Foreign,
			"want the first in the wait queue behind three holders, have %+v", busy)
		permits := s.wantPermits(1, 2, 3)
		if permits[1].Fence != fences[1] || permits[1].Name != "holder of w1" || permits[1].Reserved {
			s.Fatalf("want the second permit held by w1 with the fence %d, have %+v", fences[1], permits[1])
		}
		s.of(three).join("w5")

		s.release(held[1])
		s.wantReserved("w4")
		s.wantPermits(1, 2, 3)
		s.of(three).join("w6")
		got := s.of(three).take("w4")
		expect.Need(s, got.Fence() > fences[2], "want a fence above %d, have %d", fences[2], got.Fence())
		s.release(held[0])
		s.wantReserved("w5")
		s.release(held[2])
		s.wantReserved("w5", "w6")
		s.release(s.of(three).take("w6"))
		s.release(s.of(three).take("w5"))
		s.release(got)
		s.wantPermits()
		s.wantFree()
	})
}

// expirePermit lets a permit run out, as if its time had passed.
func (s *setup) expirePermit(number int) {
	s.Helper()
	n := s.rdb.Del(s.Context(), store.PermitKey(s.key, fmt.Sprint(number))).Val()
	expect.Need(s, n == 1, "want permit %d to expire, have none", number)
}

// The lock's own key is there while a permit is, and goes with the last of them.
func TestLimitKeepsOthersOut(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		first, second := s.of(three).take(""), s.of(three).take("")
		set := s.rdb.SetNX(s.Context(), s.key, "another program", time.Minute).Val()
		expect.Need(s, !set, "want another program kept out, have it in")
		busy := s.refuse("w1") // knows no limit
		expect.Need(s, busy.Holders == 2 && busy.Position == 1 && !busy.Foreign,
			"want the first in the wait queue behind two holders, have %+v", busy)
		s.release(first)
		n := s.rdb.Exists(s.Context(), s.key).Val()
		expect.Need(s, n == 1, "want the lock's key while a permit is held, have none")
		s.join("w1")
		s.release(second)
		s.release(s.take("w1"))
		s.wantPermits()
		s.wantFree()

		s.rdb.Set(s.Context(), s.key, "another program", time.Minute)
		if busy := s.of(three).refuse(""); !busy.Foreign {
			s.Fatalf("want all kept out by another program, have %+v", busy)
		}
	})
}

// One who knows no limit has the whole lock, and so nobody takes a permit that he would not see. His release reserves a permit
// for the waiter.
func TestHolderWhoKnowsNoLimit(t *testing.T) {
	t.Parallel()
	onEachOf(t, map[string]func(*setup){
		"from before the limit": func(*setup) {},
		"as the permits have run out": func(s *setup) {
			s.of(three).take("")
			s.expirePermit(1)
		},
	}, func(s *setup, before func(*setup)) {
		before(s)
		held := s.take("")
		busy := s.of(three).refuse("w1")
		expect.That(s, busy.Holder != "", "want the holder named, have %+v", busy)
		expect.OK(s, held.Renew(s.Context()))
		s.handOff(held, "w1")
		s.of(three).take("w1")
		a := s.of(three).take("a")
		s.of(three).take("b")
		s.wantPermits(1, 2, 3)
		expect.OK(s, a.Renew(s.Context()))
	})
}

func TestPermitIsRenewedAndLost(t *testing.T) {
	t.Parallel()
	onEachOf(t, map[string]func(*setup){
		"the permit has expired": func(s *setup) { s.expirePermit(1) },
		"another has the permit": func(s *setup) {
			s.rdb.Set(s.Context(), store.PermitKey(s.key, "1"), "siding:2:x", time.Minute)
		},
		"the lock's key was deleted":    func(s *setup) { s.expire() },
		"another program took the lock": func(s *setup) { s.rdb.Set(s.Context(), s.key, "x", time.Minute) },
	}, func(s *setup, lose func(*setup)) {
		held := s.of(three).take("")
		permit := store.PermitKey(s.key, "1")
		for _, key := range []string{permit, s.key} {
			s.rdb.PExpire(s.Context(), key, time.Second)
		}
		expect.OK(s, held.Renew(s.Context()))
		s.wantTTL(permit, s.cfg.TTL/2, s.cfg.TTL)
		s.wantTTL(s.key, s.cfg.TTL/2, s.cfg.TTL)
		work := held.Context(s.Context())
		lose(s)
		wantLost(s, "renew", held.Renew(s.Context()))
		wantLost(s, "cause", expect.Ended(s.T, work))
	})
}

// A call whose answer was lost is sent again.
func TestPermitCallsAreSentTwice(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		on := lock.Redis(s.rdb)
		handoff := func(nonce string) store.Handoff {
			return store.Handoff{Nonce: nonce, Timeout: time.Minute, QueueTTL: time.Hour}
		}
		request := func(waiter string) store.Request {
			id := uuid.NewString()
			return store.Request{
				Key: s.key, Rule: &store.Rule{Limit: 2, Rates: []store.Rate{{Starts: 3, Period: time.Hour}}}, Token: "siding:" + id + ":" + waiter,
				TTL: time.Minute, FenceTTL: time.Hour, Waiter: s.name(waiter), Handoff: handoff(id),
			}
		}
		twice := func(r store.Request) store.Result {
			s.Helper()
			first := expect.Value(on.Acquire(s.Context(), r))(s)
			again, err := on.Acquire(s.Context(), r)
			if err != nil || first.Taken != again.Taken || first.Permit != again.Permit || first.Fence != again.Fence || first.Position != again.Position {
				s.Fatalf("want the same answer twice, have %+v, %+v and %v", first, again, err)
			}
			return first
		}
		a, b := request("a"), request("b")
		first, second := twice(a), twice(b)
		expect.Need(s, first.Taken && second.Taken && first.Permit != second.Permit, "want two permits, have %+v and %+v", first, second)
		c := request("c")
		if r := twice(c); r.Taken || r.Position != 1 {
			s.Fatalf("want c in the wait queue, have %+v", r)
		}
		for range 2 {
			expect.OK(s, on.Release(s.Context(), first.Permit, a.Token, store.Release{Handoff: handoff("release-a"), Fence: first.Fence, Rule: a.Rule}))
			s.wantReserved("c")
		}
		if r := twice(c); !r.Taken || r.Permit != first.Permit {
			s.Fatalf("want c to get the permit that was reserved for it, have %+v", r)
		}
		// Three have started, though two of them asked twice.
		for range 2 {
			expect.OK(s, on.Release(s.Context(), first.Permit, c.Token, store.Release{Handoff: handoff("release-c"), Fence: s.lastFence(), Rule: a.Rule}))
		}
		if r := twice(request("d")); r.Taken || r.Later <= 0 {
			s.Fatalf("want d to wait for its time, have %+v", r)
		}
		for range 2 {
			expect.OK(s, on.Release(s.Context(), second.Permit, b.Token, store.Release{Handoff: handoff("release-b"), Fence: second.Fence, Rule: b.Rule}))
			s.wantReserved()
		}
	})
}

// An acquire whose answer is lost for good is undone, although the caller does not know its permit.
func TestUnknownPermitIsGivenBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		on := lock.Redis(s.rdb)
		request := store.Request{Key: s.key, Rule: three, Token: "siding:1:x", TTL: time.Minute, FenceTTL: time.Hour, Handoff: store.Handoff{Nonce: "1", Timeout: time.Minute, QueueTTL: time.Hour}}
		r, err := on.Acquire(s.Context(), request)
		expect.Need(s, err == nil && r.Taken, "want a permit, have %+v and %v", r, err)
		s.wantPermits(1)
		expect.OK(s, on.Release(s.Context(), s.key, request.Token, store.Release{Handoff: request.Handoff, Rule: three}))
		s.wantPermits()
	})
}

// The list of permits is kept for longer than any lease lasts.
func TestPermitsAreListedAsLongAsHeld(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		listed := func() {
			s.Helper()
			left := s.rdb.PTTL(s.Context(), store.Beside(s.key, "permits")).Val()
			expect.That(s, left > 24*time.Hour, "want it kept for more than a day, have %v", left)
		}
		held := s.of(three).take("")
		listed()
		expect.OK(s, held.Renew(s.Context()))
		_ = s.of(three).take("")
		listed()
	})
}

// The permit of a holder that died is for the first that waits, and so are all that are free when the limit is raised.
func TestFreePermitsGoToTheFirst(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		two, four, none := &store.Rule{Limit: 2}, &store.Rule{Limit: 4}, &store.Rule{}
		s.of(two).take("")
		s.of(two).take("")
		s.of(two).join("w0", "w1", "w2", "w3", "w4", "w5")
		ask := func(rule *store.Rule, waiter string, want ...string) {
			s.Helper()
			_ = s.of(rule).refuse(waiter)
			s.wantReserved(want...)
		}
		ask(two, "w5")
		s.expirePermit(1)
		ask(none, "w5")
		ask(two, "w5", "w0")
		s.of(two).take("w0")
		ask(four, "w5", "w1", "w2")
		s.of(four).take("w2")
		s.of(four).take("w1")
		ask(two, "w5")
		s.expirePermit(3)
		s.expirePermit(4)
		ask(two, "w5")
		s.expirePermit(2)
		ask(two, "w5", "w3")
	})
}

// A waiter for whom a permit is reserved may start at any time, and so counts as one who has started.
func TestReservationsCountAsStarts(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		paused, slow := &store.Rule{}, &store.Rule{Limit: 5, Rates: []store.Rate{{Starts: 3, Period: time.Hour}}}
		s.of(slow).take("")
		s.of(paused).join("w0", "w1", "w2", "w3")
		busy := s.of(slow).refuse("w3")
		expect.Need(s, busy.Remaining >= 59*time.Minute, "want the next to wait for its time, have %+v", busy)
		s.wantReserved("w0", "w1")
		s.of(slow).take("w1")
		s.of(slow).take("w0")
		if busy := s.of(slow).refuse(""); busy.Holder != "holder of , and 2 more" || busy.Remaining < 59*time.Minute {
			s.Fatalf("want the next to wait for its time, have %+v", busy)
		}
	})
}

// A waiter that was woken before the rates were lowered waits on until these allow a start.
func TestLoweredRate(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		rule := func(starts int) *store.Rule {
			return &store.Rule{Limit: 5, Rates: []store.Rate{{Starts: starts, Period: time.Hour}}}
		}
		s.of(rule(4)).take("")
		s.of(&store.Rule{}).join("w0", "w1", "w2", "w3", "w4")
		s.of(rule(4)).join("w4")
		s.wantReserved("w0", "w1", "w2")
		s.of(rule(1)).join("w1", "w0")
		s.wantReserved("w2")
		s.wantQueue("w3", "w4", "w1", "w0")
		s.of(rule(2)).take("w2")
		s.wantPermits(1, 2)
	})
}

// lastFence returns the last fencing token of the lock.
func (s *setup) lastFence() int64 {
	s.Helper()
	fence := expect.Value(strconv.ParseInt(strings.TrimSuffix(s.rdb.Get(s.Context(), s.fence).Val(), "*"), 10, 64))(s)
	return fence
}

// A release wakes nobody while more hold the lock than its limit allows by now.
func TestLoweredLimit(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		one := &store.Rule{Limit: 1}
		var held []*lease.Lease
		for range 3 {
			held = append(held, s.of(three).take(""))
		}
		s.of(one).join("w1")
		on := lock.Redis(s.rdb)
		release := func(l *lease.Lease) {
			s.Helper()
			var permit string
			for number, fence := range s.rdb.HGetAll(s.Context(), store.Beside(s.key, "permits")).Val() {
				if fence == strconv.FormatInt(l.Fence(), 10) {
					permit = store.PermitKey(s.key, number)
				}
			}
			err := on.Release(s.Context(), permit, s.rdb.Get(s.Context(), permit).Val(), store.Release{
				Rule: one, Handoff: store.Handoff{Nonce: uuid.NewString(), Timeout: time.Minute, QueueTTL: time.Hour},
			})
			expect.OK(s, err)
			s.wantReserved()
		}
		release(held[1])
		release(held[0])
		_ = s.of(one).refuse("w2")
		release(held[2])
		s.wantNext("w1")
	})
}

// In no period do more start than the rates say, and never do more hold the lock than its limit, although many ask all the time, in
// all ways.
func TestRates(t *testing.T) {
	t.Parallel()
	onEach(t, (*setup).crowd)
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		setUp(t, redistest.StartCluster(t, 3).Client(t), lock.Config{}).crowd()
	})
}

func (s *setup) crowd() {
	rates := []lock.Rate{{Starts: 10, Period: 200 * time.Millisecond}, {Starts: 3, Period: 20 * time.Millisecond}}
	const starts, limit = 40, 2
	var mu sync.Mutex
	var at []int64 // µs by the clock of Redis
	var inside, most int
	var all sync.WaitGroup
	for range 4 {
		locker := s.stranger()
		for i := range starts / 4 {
			opts := &lock.Options{Wait: lock.Forever, Limit: limit, Rates: rates}
			if i%5 == 0 {
				opts.Retry = lock.Fixed(2 * time.Millisecond)
			}
			all.Go(func() {
				err := locker.Do(s.Context(), s.res, opts, func(ctx context.Context) error {
					mu.Lock()
					at = append(at, lock.Fence(ctx, s.res))
					inside++
					most = max(most, inside)
					mu.Unlock()
					defer func() {
						mu.Lock()
						defer mu.Unlock()
						inside--
					}()
					_ = sleep.For(ctx, time.Millisecond)
					return expect.Until(ctx, func() error { // so somebody else is there, too
						mu.Lock()
						defer mu.Unlock()
						if most < limit {
							return errors.New("nobody else is there")
						}
						return nil
					})
				})
				expect.Is(s, "do", err, nil)
			})
		}
	}
	all.Wait()
	slices.Sort(at)
	expect.Need(s, len(at) == starts, "want %d starts, have %d", starts, len(at))
	expect.Equal(s, "the most holders at once", most, limit)
	s.wantPermits()
	precision := time.Millisecond // a fence is the time of its start, to a few us
	if strings.HasSuffix(s.Name(), "embedded") {
		precision = 20 * time.Millisecond // its clock goes on in a script
	}
	for _, r := range rates {
		for i := r.Starts; i < len(at); i++ {
			took := time.Duration(at[i]-at[i-r.Starts]) * time.Microsecond
			expect.Need(s, took >= r.Period-precision, "want at most %d starts in %v, have one more after %v", r.Starts, r.Period, took)
		}
	}
}

// A store behind a network knows limits if the store itself does, whether it wakes waiters or not.
func TestLimitBehindANetwork(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for name, inner := range map[string]lock.Store{"listens": lock.Redis(s.rdb), "does not listen": lock.Redis(struct{ redis.Scripter }{s.rdb})} {
			behind, network := locktest.Faulty(inner)
			locker, opts := lockerOn(s, behind), &lock.Options{Limit: 2}
			for range opts.Limit {
				abandon(expect.Value(locker.Acquire(s.Context(), name, opts))(s))
			}
			wantBusy(s, name, expect.Err(locker.Acquire(s.Context(), name, opts)))
			network.Set(locktest.Refuse)
			expect.Is(s, name, expect.Err(locker.Acquire(s.Context(), name, opts)), locktest.ErrNetwork)
		}
	})
}

func TestLimitIsChecked(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string]lock.Options{
		"lock: limit: want 0 to 1000, have -1":                                                            {Limit: -1},
		"lock: limit: want 0 to 1000, have 1001":                                                          {Limit: 1001},
		"lock: rates: starts: want 1 to 10000, have 0":                                                    {Rates: []lock.Rate{{Period: time.Second}}},
		"lock: rates: period: want 1ms to 744h0m0s, have 0s":                                              {Rates: []lock.Rate{{Starts: 1}}},
		"lock: rates: want at most 8, have 9":                                                             {Rates: make([]lock.Rate, 9)},
		"lock: limit, rates: want none on a store that does not know them, have a limit of 2 and 0 rates": {Limit: 2},
	} {
		expect.Equal(t, "error", fmt.Sprint(expect.Err(lockerOn(t, locktest.NewMemory()).Acquire(t.Context(), "account:1", &opts))), want)
	}
}
