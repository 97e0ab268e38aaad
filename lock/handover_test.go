package lock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// summonToStart lets those begin whose name says so, where there is a start; others who are
// asked for are gone.
const summonToStart = `
local function summon(waiter, ticket, start)
  if not start then return 'called' end
  if string.find(waiter, '^starts') then return 'begun', {waiter, ticket, start[4], 7} end
  if string.find(waiter, '^called') then return 'called' end
  return 'gone'
end
`

func (s *setup) handOver(lease *lock.Lease) lock.Handed {
	s.Helper()
	handed, err := lease.HandOver(s.Context(), "next", []any{"said"}, nil)
	if err != nil || handed.Next != nil {
		s.Fatalf("want nobody to call by hand, have %+v, %v", handed.Next, err)
	}
	return handed
}

// Who begins has the lock in the same step, with a fence above the last; those
// before it who cannot come are dropped, and those behind it keep their places.
func TestHandOver(t *testing.T) {
	t.Parallel()
	for _, gone := range []int{0, 3, 150} {
		t.Run(fmt.Sprint(gone, " gone"), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				s = s.summoning(summonToStart)
				lease := s.takeHere()
				s.enlist(gone, func(n int) string { return fmt.Sprint("gone", n) })
				ticket := s.refuse("starts").Ticket
				s.join("behind")
				handed := s.handOver(lease)
				if handed.Grant == nil {
					s.Fatal("want a grant, have none")
				}
				if want, have := []any{fmt.Sprint(ticket), "said", int64(7)}, handed.Answer; fmt.Sprint(have) != fmt.Sprint(want) {
					s.Errorf("answer: want %q, have %q", want, have)
				}
				if want := "siding:next:starts"; handed.Grant.Token != want || s.value() != want {
					s.Errorf("want the lock held by %q, have %q and %q granted", want, s.value(), handed.Grant.Token)
				}
				if have := strings.Join(s.line(), " "); have != "behind" {
					s.Errorf("line: want who was behind, have %q", have)
				}
				s.wantTTL(s.key, s.Config().TTL-time.Second, s.Config().TTL)
				next := s.adopt(handed.Grant)
				if next.Fence() <= lease.Fence() || !next.Valid() {
					s.Errorf("want a lease with a fence above %d, have %d, valid: %v", lease.Fence(), next.Fence(), next.Valid())
				}
				s.expectHandOff(next)
				s.release(next)
			})
		})
	}
}

// Where nobody begins, the lock is passed on as without a start.
func TestHandOverWithoutATaker(t *testing.T) {
	t.Parallel()
	for name, waiter := range map[string]string{"called": "called", "gone": "gone", "nobody": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				s = s.summoning(summonToStart)
				lease := s.takeHere()
				if waiter != "" {
					s.join(waiter)
				}
				if handed := s.handOver(lease); handed.Grant != nil {
					s.Errorf("want no grant, have %+v", handed.Grant)
				}
				if have := s.value(); strings.HasSuffix(have, ":called") != (waiter == "called") || waiter != "called" && have != "" {
					s.Errorf("want the lock kept for who was called, or free, have %q", have)
				}
				if have := s.line(); len(have) != 0 {
					s.Errorf("want nobody in line, have %q", have)
				}
			})
		})
	}
}

// The same release made twice, as its answer was lost: it names the same one again, nobody else
// gets the lock, and the fence stays.
func TestHandOverWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		locks := redisstore.Calling(s.rdb, summonToStart)
		line := store.Line{
			Nonce: "nonce", ByHand: true, Grace: time.Minute, Keep: time.Hour,
			Start: &store.Start{ID: "next", TTL: time.Minute, Keep: time.Hour, Args: []any{"said"}},
		}
		s.rdb.Set(s.Context(), s.key, "siding:token:me", time.Minute)
		s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: 1, Member: "starts1"}, redis.Z{Score: 2, Member: "starts2"})
		first, err := locks.Release(s.Context(), s.key, "siding:token:me", line)
		if err != nil || first == nil || first.Fence == 0 {
			s.Fatalf("want it begun, have %+v, %v", first, err)
		}
		for range 2 {
			next, err := locks.Release(s.Context(), s.key, "siding:token:me", line)
			if err != nil || next == nil {
				s.Fatalf("want the same answer, have %+v, %v", next, err)
			}
			if next.Token != first.Token || next.Fence != first.Fence || fmt.Sprint(next.Answer) != fmt.Sprint(first.Answer) {
				s.Errorf("want the same answer, %+v, have %+v", first, next)
			}
			if have := s.value(); have != "siding:next:starts1" {
				s.Errorf("want the first to hold it, have %q", have)
			}
		}
		if have := strings.Join(s.line(), " "); have != "starts2" {
			s.Errorf("line: want the second, have %q", have)
		}
	})
}
