package lock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// wakeByName is a function that does what a waiter's name says. It writes down whom it has woken,
// and by which ticket, in a list that is part of the name.
const wakeByName = `
local function wake_waiter(waiter, ticket)
  local outcome, list = string.match(waiter, '^(%a+)@([^#]*)')
  if outcome == 'broken' then redis.call('LPUSH', KEYS[1], 'x') end
  if outcome == 'woken' then redis.call('RPUSH', list, waiter .. ' ' .. ticket) end
  if outcome == 'woken' then return 'woken' end
  if outcome ~= 'hand' then return outcome end
end
`

// waking returns the same setup with a store that wakes waiters with a script's
// function.
func (s *setup) waking(wake string) *setup {
	s.Helper()
	return s.withStore(redisstore.Waking(s.rdb, wake), lock.Config(s.cfg))
}

// wokenList is where the setup's woken waiters are written down.
func (s *setup) wokenList() string { return "{" + s.key + "}:woken" }

// waiter returns the name of one of whom the outcome comes.
func (s *setup) waiter(outcome string, n int) string {
	return fmt.Sprintf("%s@%s#%d", outcome, s.wokenList(), n)
}

// takeHere acquires the lock with the setup's own locker.
func (s *setup) takeHere() *lease.Lease {
	s.Helper()
	held, err := s.ask("")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(held.Detach)
	return held
}

// wantWoken compares who was woken.
func (s *setup) wantWoken(want ...string) {
	s.Helper()
	have := s.rdb.LRange(s.Context(), s.wokenList(), 0, -1).Val()
	for i, waiter := range have {
		have[i], _, _ = strings.Cut(waiter, " ")
	}
	if !slices.Equal(have, want) {
		s.Errorf("woken: want %q, have %q", want, have)
	}
}

// A release wakes the first who comes, in the same step: nobody else has to be woken.
func TestReleaseWakes(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.waking(wakeByName)
		held := s.takeHere()
		first, second := s.waiter("woken", 1), s.waiter("woken", 2)
		busy := s.refuse(first)
		s.join(second)
		s.handOff(held, "")
		s.wantWoken(first)
		if have := s.rdb.LIndex(s.Context(), s.wokenList(), 0).Val(); !strings.HasSuffix(have, fmt.Sprintf(" %d", busy.Ticket)) {
			s.Errorf("want it woken by its ticket %d, have %q", busy.Ticket, have)
		}
		if have := s.queue(); !slices.Equal(have, []string{second}) {
			s.Errorf("queue: want the second, have %q", have)
		}
		s.wantTTL(s.key, time.Second, s.cfg.HandoffTimeout)
		if busy := s.refuse(second); busy.Position != 1 {
			s.Errorf("want the second refused at position 1, have %+v", busy)
		}
		held = s.take(first)
		s.expectHandOff(held)
		s.handOff(held, second) // the taker's store does not wake
	})
}

// enlist puts so many waiters into the wait queue, with tickets from 1 on.
func (s *setup) enlist(waiters int, name func(n int) string) {
	s.Helper()
	if waiters == 0 {
		return
	}
	queued := make([]redis.Z, waiters)
	for n := range queued {
		queued[n] = redis.Z{Score: float64(1 + n), Member: name(n)}
	}
	if err := s.rdb.ZAdd(s.Context(), s.row, queued...).Err(); err != nil {
		s.Fatal(err)
	}
}

// Those who cannot come are dropped, however many; one whom it cannot reach has to be woken
// stepwise.
func TestReleaseWakesPastTheDead(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{"woken": "woken", "stepwise": "hand", "nobody": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				const dead = 250
				s = s.waking(wakeByName)
				held := s.takeHere()
				s.enlist(dead, func(n int) string { return s.waiter("gone", n) })
				want, stepwise := "", ""
				if last != "" {
					want = s.waiter(last, dead)
					s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: 1 + dead, Member: want})
				}
				if last == "hand" {
					stepwise = want
				}
				r := s.handOff(held, stepwise)
				value := s.value()
				if strings.HasSuffix(value, want) == (last == "") && value != "" {
					s.Errorf("lock: want it kept for %q, have %q", want, value)
				}
				var left []string
				if stepwise != "" {
					left = []string{stepwise} // until it has been woken
					if r.Ticket != 1+dead {
						s.Errorf("want ticket %d, have %d", 1+dead, r.Ticket)
					}
				}
				if have := s.queue(); !slices.Equal(have, left) {
					s.Errorf("queue: want %q, have %d", left, len(have))
				}
				if stepwise != "" {
					if err := s.Confirm(s.Context(), r); err != nil || len(s.queue()) != 0 {
						s.Errorf("want it out of the wait queue, have %q, %v", s.queue(), err)
					}
				}
			})
		})
	}
}

// A newcomer at the lock of a holder that has died reserves the lock for the first in the wait
// queue, who is woken.
func TestAcquireWakesTheHead(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.waking(wakeByName)
		s.takeHere()
		gone, head := s.waiter("gone", 1), s.waiter("woken", 2)
		s.join(gone, head)
		s.expire()
		held, err := s.ask("newcomer")
		busy := asBusy(s.T, held, err)
		if busy.Next != nil || busy.Position != 1 {
			s.Errorf("want it first in the wait queue, and nobody to wake, have %+v", busy)
		}
		s.wantWoken(head)
	})
}

// A waiter that leaves, or is passed over, hands its reservation to one who is woken.
func TestLeaveWakes(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.waking(wakeByName)
		held := s.takeHere()
		first, second, third := s.waiter("hand", 1), s.waiter("woken", 2), s.waiter("woken", 3)
		s.join(first, second, third)
		r := s.handOff(held, first)
		next, err := s.Drop(s.Context(), r, false)
		if err != nil || next != nil {
			s.Errorf("want nobody to wake, have %v, %v", next, err)
		}
		s.wantWoken(second)
		if next, err := s.Leave(s.Context(), lease.Request{Resource: s.res, Waiter: second}); err != nil || next != nil {
			s.Errorf("want nobody to wake, have %v, %v", next, err)
		}
		s.wantWoken(second, third)
		if have := s.queue(); len(have) != 0 {
			s.Errorf("want nobody queued, have %q", have)
		}
	})
}

// A plain Release wakes as well: nobody else has to be woken.
func TestPlainReleaseWakes(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.waking(wakeByName)
		held := s.takeHere()
		first := s.waiter("woken", 1)
		s.join(first)
		s.release(held)
		s.wantWoken(first)
		if len(s.queue()) != 0 || s.value() == "" {
			s.Errorf("want it out of the wait queue and the lock kept for it, have %q, %q", s.queue(), s.value())
		}
	})
}

// The same call is made twice, as its answer was lost. The waiter that the first one woke keeps its
// reservation, and nobody else has to be woken.
func TestWakingWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(s *setup, locks lock.Store, how store.Handoff) (*store.Reservation, error){
		"release": func(s *setup, locks lock.Store, how store.Handoff) (*store.Reservation, error) {
			return locks.Release(s.Context(), s.key, "siding:token:me", store.Release{Handoff: how})
		},
		"leave": func(s *setup, locks lock.Store, how store.Handoff) (*store.Reservation, error) {
			return locks.Leave(s.Context(), s.key, "leaver", store.Leave{Handoff: how})
		},
		"acquire": func(s *setup, locks lock.Store, how store.Handoff) (*store.Reservation, error) {
			a, err := locks.Acquire(s.Context(), store.Request{
				Key: s.key, Token: "siding:token:you", TTL: time.Minute, FenceTTL: time.Hour, Waiter: "newcomer", Handoff: how,
			})
			if a.Fence != 0 {
				s.Errorf("want it refused, have fence %d", a.Fence)
			}
			return a.Next, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				locks := redisstore.Waking(s.rdb, wakeByName)
				how := store.Handoff{Nonce: "nonce", Stepwise: true, Timeout: time.Minute, QueueTTL: time.Hour}
				first, second := s.waiter("woken", 1), s.waiter("woken", 2)
				switch name {
				case "release":
					s.rdb.Set(s.Context(), s.key, "siding:token:me", time.Minute)
				case "leave":
					s.rdb.Set(s.Context(), s.key, "siding-reserved:other:1:leaver", time.Minute)
				}
				s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: 1, Member: first}, redis.Z{Score: 2, Member: second})
				for n := range 3 {
					next, err := call(s, locks, how)
					if err != nil || next != nil {
						s.Errorf("call %d: want nobody to wake, have %+v, %v", n, next, err)
					}
					if have := s.value(); !strings.HasSuffix(have, first) {
						s.Errorf("call %d: want the lock kept for the first, have %q", n, have)
					}
				}
				s.wantWoken(first)
				if have := s.queue(); len(have) == 0 || have[0] != second {
					s.Errorf("queue: want the second first, have %q", have)
				}
			})
		})
	}
}

// A waking function that fails leaves the lock to its TTL and the wait queue as it is.
func TestWakingThatFails(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.waking(wakeByName)
		held := s.takeHere()
		s.join(s.waiter("broken", 1))
		if r, err := held.HandOff(s.Context()); err == nil {
			s.Errorf("want an error, have %v", r)
		}
		if len(s.queue()) != 1 || !strings.HasPrefix(s.value(), "siding:") {
			s.Errorf("want the lock held and the waiter queued, have %q, %q", s.value(), s.queue())
		}
	})
}

func asBusy(t *testing.T, held *lease.Lease, err error) *lease.BusyError {
	t.Helper()
	busy, ok := err.(*lease.BusyError) //nolint:errorlint // the very one
	if !ok {
		t.Fatalf("want a BusyError, have %v, %v", held, err)
	}
	return busy
}
