package lock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// summonByName is a summon function that does what a waiter's name says, and writes down
// whom it has called, and by which ticket, in a list that is named in the name.
const summonByName = `
local function summon(waiter, ticket)
  local outcome, called = string.match(waiter, '^(%a+)@([^#]*)')
  if outcome == 'broken' then redis.call('LPUSH', KEYS[1], 'x') end
  if outcome == 'called' then redis.call('RPUSH', called, waiter .. ' ' .. ticket) end
  if outcome ~= 'hand' then return outcome end
end
`

// summoning returns the same setup with a store that calls waiters with a script's summon
// function.
func (s *setup) summoning(summon string) *setup {
	s.Helper()
	locker, err := lock.New(redisstore.Calling(s.rdb, summon), s.Config())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(locker.Close)
	other := *s
	other.Locker = locker
	return &other
}

// calledList is where the setup's summoned waiters are written down.
func (s *setup) calledList() string { return "{" + s.key + "}:called" }

// waiter returns the name of one of whom the outcome comes.
func (s *setup) waiter(outcome string, n int) string {
	return fmt.Sprintf("%s@%s#%d", outcome, s.calledList(), n)
}

// takeHere acquires the lock with the setup's own locker.
func (s *setup) takeHere() *lock.Lease {
	s.Helper()
	lease, err := s.Acquire(s.Context(), s.res, nil)
	if err != nil {
		s.Fatal(err)
	}
	return lease
}

// wantCalled compares who was summoned.
func (s *setup) wantCalled(want ...string) {
	s.Helper()
	have := s.rdb.LRange(s.Context(), s.calledList(), 0, -1).Val()
	for i, called := range have {
		have[i], _, _ = strings.Cut(called, " ")
	}
	if !slices.Equal(have, want) {
		s.Errorf("summoned: want %q, have %q", want, have)
	}
}

// A release summons the first who comes, in the same step: nobody has to be called by hand.
func TestReleaseSummons(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.summoning(summonByName)
		lease := s.takeHere()
		first, second := s.waiter("called", 1), s.waiter("called", 2)
		busy := s.refuse(first)
		s.join(second)
		s.handOff(lease, "")
		s.wantCalled(first)
		if have := s.rdb.LIndex(s.Context(), s.calledList(), 0).Val(); !strings.HasSuffix(have, fmt.Sprintf(" %d", busy.Ticket)) {
			s.Errorf("want it called by its ticket %d, have %q", busy.Ticket, have)
		}
		if have := s.line(); !slices.Equal(have, []string{second}) {
			s.Errorf("line: want the second, have %q", have)
		}
		s.wantTTL(s.key, time.Second, s.Config().Grace)
		if busy := s.refuse(second); busy.Place != 1 {
			s.Errorf("want the second refused at place 1, have %+v", busy)
		}
		lease = s.take(first)
		s.expectHandOff(lease)
		s.handOff(lease, second) // the taker's store does not summon
	})
}

// enlist puts so many waiters into the line, with tickets from 1 on.
func (s *setup) enlist(waiters int, name func(n int) string) {
	s.Helper()
	if waiters == 0 {
		return
	}
	line := make([]redis.Z, waiters)
	for n := range line {
		line[n] = redis.Z{Score: float64(1 + n), Member: name(n)}
	}
	if err := s.rdb.ZAdd(s.Context(), s.row, line...).Err(); err != nil {
		s.Fatal(err)
	}
}

// Those who cannot come are dropped, however many; one whom it cannot reach is to be called
// by hand.
func TestReleaseSummonsPastTheDead(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{"called": "called", "by hand": "hand", "nobody": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				const dead = 250
				s = s.summoning(summonByName)
				lease := s.takeHere()
				s.enlist(dead, func(n int) string { return s.waiter("gone", n) })
				want, byHand := "", ""
				if last != "" {
					want = s.waiter(last, dead)
					s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: 1 + dead, Member: want})
				}
				if last == "hand" {
					byHand = want
				}
				r := s.handOff(lease, byHand)
				value := s.value()
				if strings.HasSuffix(value, want) == (last == "") && value != "" {
					s.Errorf("lock: want it kept for %q, have %q", want, value)
				}
				var left []string
				if byHand != "" {
					left = []string{byHand} // until it has been called
					if r.Ticket != 1+dead {
						s.Errorf("want ticket %d, have %d", 1+dead, r.Ticket)
					}
				}
				if have := s.line(); !slices.Equal(have, left) {
					s.Errorf("line: want %q, have %d", left, len(have))
				}
				if byHand != "" {
					if err := s.Called(s.Context(), r); err != nil || len(s.line()) != 0 {
						s.Errorf("want it out of the line, have %q, %v", s.line(), err)
					}
				}
			})
		})
	}
}

// Who comes to a lock that its holder has left by dying reserves it for the head of the
// line, who is summoned.
func TestAcquireSummonsTheHead(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.summoning(summonByName)
		s.takeHere()
		gone, head := s.waiter("gone", 1), s.waiter("called", 2)
		s.join(gone, head)
		s.expire()
		lease, err := s.Acquire(s.Context(), s.res, &lock.Options{Waiter: "newcomer"})
		busy := asBusy(s.T, lease, err)
		if busy.Next != nil || busy.Place != 1 {
			s.Errorf("want it first in line, and nobody to call, have %+v", busy)
		}
		s.wantCalled(head)
	})
}

// A waiter that leaves, or is passed over, hands its reservation to one who is summoned.
func TestLeaveSummons(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.summoning(summonByName)
		lease := s.takeHere()
		first, second, third := s.waiter("hand", 1), s.waiter("called", 2), s.waiter("called", 3)
		s.join(first, second, third)
		r := s.handOff(lease, first)
		next, err := s.PassOn(s.Context(), r)
		if err != nil || next != nil {
			s.Errorf("want nobody to be called, have %v, %v", next, err)
		}
		s.wantCalled(second)
		if next, err := s.Leave(s.Context(), s.res, second); err != nil || next != nil {
			s.Errorf("want nobody to be called, have %v, %v", next, err)
		}
		s.wantCalled(second, third)
		if have := s.line(); len(have) != 0 {
			s.Errorf("want nobody in line, have %q", have)
		}
	})
}

// A plain Release summons as well: nobody has to be called by hand.
func TestPlainReleaseSummons(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.summoning(summonByName)
		lease := s.takeHere()
		first := s.waiter("called", 1)
		s.join(first)
		s.release(lease)
		s.wantCalled(first)
		if len(s.line()) != 0 || s.value() == "" {
			s.Errorf("want it out of the line and the lock kept for it, have %q, %q", s.line(), s.value())
		}
	})
}

// The same call made twice, as its answer was lost: the one who was summoned by the first
// keeps its reservation, and nobody is called by hand.
func TestSummonsWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(s *setup, locks lock.Store, line store.Line) (*store.Turn, error){
		"release": func(s *setup, locks lock.Store, line store.Line) (*store.Turn, error) {
			return locks.Release(s.Context(), s.key, "siding:token:me", line)
		},
		"leave": func(s *setup, locks lock.Store, line store.Line) (*store.Turn, error) {
			return locks.Leave(s.Context(), s.key, "leaver", "", line)
		},
		"acquire": func(s *setup, locks lock.Store, line store.Line) (*store.Turn, error) {
			a, err := locks.Acquire(s.Context(), store.Claim{
				Key: s.key, Token: "siding:token:you", TTL: time.Minute, Keep: time.Hour, Waiter: "newcomer", Line: line,
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
				locks := redisstore.Calling(s.rdb, summonByName)
				line := store.Line{Nonce: "nonce", ByHand: true, Grace: time.Minute, Keep: time.Hour}
				first, second := s.waiter("called", 1), s.waiter("called", 2)
				switch name {
				case "release":
					s.rdb.Set(s.Context(), s.key, "siding:token:me", time.Minute)
				case "leave":
					s.rdb.Set(s.Context(), s.key, "siding-reserved:other:1:leaver", time.Minute)
				}
				s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: 1, Member: first}, redis.Z{Score: 2, Member: second})
				for n := range 3 {
					next, err := call(s, locks, line)
					if err != nil || next != nil {
						s.Errorf("call %d: want nobody to call by hand, have %+v, %v", n, next, err)
					}
					if have := s.value(); !strings.HasSuffix(have, first) {
						s.Errorf("call %d: want the lock kept for the first, have %q", n, have)
					}
				}
				s.wantCalled(first)
				if have := s.line(); len(have) == 0 || have[0] != second {
					s.Errorf("line: want the second first, have %q", have)
				}
			})
		})
	}
}

// A summon function that fails leaves the lock to its TTL and the line as it is.
func TestBrokenSummon(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.summoning(summonByName)
		lease := s.takeHere()
		s.join(s.waiter("broken", 1))
		if r, err := lease.HandOff(s.Context()); err == nil {
			s.Errorf("want an error, have %v", r)
		}
		if len(s.line()) != 1 || !strings.HasPrefix(s.value(), "siding:") {
			s.Errorf("want the lock held and the waiter in line, have %q, %q", s.value(), s.line())
		}
	})
}

func asBusy(t *testing.T, lease *lock.Lease, err error) *lock.BusyError {
	t.Helper()
	busy, ok := err.(*lock.BusyError) //nolint:errorlint // the very one
	if !ok {
		t.Fatalf("want a BusyError, have %v, %v", lease, err)
	}
	return busy
}
