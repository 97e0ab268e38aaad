package lock_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
)

// wakeToStart lets those begin whose name says so, where there is a start; others who are
// asked for are gone. If a start is marked as over, it returns nil to who asks again.
const wakeToStart = `
local function wake_waiter(waiter, ticket, start, again)
  if again and redis.call('EXISTS', 'over:' .. start[4]) == 1 then return end
  if not start then return 'woken' end
  if string.find(waiter, '^starts') then return 'started', {waiter, ticket, start[4], 7} end
  if string.find(waiter, '^woken') then return 'woken' end
  return 'gone'
end
`

func (s *setup) handOffBy(held *lease.Lease) *store.Reservation {
	s.Helper()
	handed, err := held.HandOffBy(s.Context(), "next", []any{"said"}, nil)
	if err != nil || handed != nil && handed.Grant == nil {
		s.Fatalf("want nobody to wake, have %+v, %v", handed, err)
	}
	return handed
}

// A waiter that starts has the lock in the same step, with a fence above the last; those before it
// who cannot come are dropped, and those behind it keep their positions.
func TestHandOffBy(t *testing.T) {
	t.Parallel()
	for _, gone := range []int{0, 3, 150} {
		t.Run(fmt.Sprint(gone, " gone"), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				s = s.waking(wakeToStart)
				held := s.takeHere()
				s.enlist(gone, func(n int) string { return fmt.Sprint("gone", n) })
				ticket := s.refuse("starts").Ticket
				s.join("behind")
				handed := s.handOffBy(held)
				if handed == nil {
					s.Fatal("want a grant, have none")
				}
				if want, have := []any{fmt.Sprint(ticket), "said", int64(7)}, handed.Reply; fmt.Sprint(have) != fmt.Sprint(want) {
					s.Errorf("answer: want %q, have %q", want, have)
				}
				if want := "siding:next:starts"; handed.Grant.Token != want || s.value() != want {
					s.Errorf("want the lock held by %q, have %q and %q granted", want, s.value(), handed.Grant.Token)
				}
				if have := strings.Join(s.queue(), " "); have != "behind" {
					s.Errorf("queue: want who was behind, have %q", have)
				}
				s.wantTTL(s.key, s.cfg.TTL-time.Second, s.cfg.TTL)
				next := s.takeGrant(handed.Grant)
				if next.Fence() <= held.Fence() || next.Deadline().IsZero() {
					s.Errorf("want a lease with a fence above %d, have %d, valid: %v", held.Fence(), next.Fence(), !next.Deadline().IsZero())
				}
				s.expectHandOff(next)
				s.release(next)
			})
		})
	}
}

// If no waiter can start, the lock is handed off as without a start.
func TestHandOffByWithoutATaker(t *testing.T) {
	t.Parallel()
	for name, waiter := range map[string]string{"woken": "woken", "gone": "gone", "nobody": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				s = s.waking(wakeToStart)
				held := s.takeHere()
				if waiter != "" {
					s.join(waiter)
				}
				if handed := s.handOffBy(held); handed != nil {
					s.Errorf("want no grant, have %+v", handed.Grant)
				}
				if have := s.value(); strings.HasSuffix(have, ":woken") != (waiter == "woken") || waiter != "woken" && have != "" {
					s.Errorf("want the lock kept for who was woken, or free, have %q", have)
				}
				if have := s.queue(); len(have) != 0 {
					s.Errorf("want nobody queued, have %q", have)
				}
			})
		})
	}
}

// A release is made again, as its answer was lost. It gives the same answer, nobody else gets the lock,
// and the fence stays. That holds if another permit of the lock was granted since, and if the waiter that
// has started has lost the lock.
func TestHandOffByWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rule    *store.Rule
		unknown bool // the caller does not know its permit
	}{
		"lock":           {},
		"permit":         {rule: &store.Rule{Limit: 2}},
		"unknown permit": {rule: &store.Rule{Limit: 2}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				locks, said := redisstore.Waking(s.rdb, wakeToStart), uuid.NewString()
				how := store.Release{
					Handoff: store.Handoff{Nonce: "nonce", Stepwise: true, Timeout: time.Minute, QueueTTL: time.Hour},
					Rule:    tt.rule,
					Start:   &store.Start{ID: "next", TTL: time.Minute, FenceTTL: time.Hour, Args: []any{said}},
				}
				take := func(token string) store.Result {
					s.Helper()
					r, err := locks.Acquire(s.Context(), store.Request{Key: s.key, Rule: tt.rule, Token: token, TTL: time.Minute, FenceTTL: time.Hour})
					if err != nil || !r.Taken {
						s.Fatalf("want it taken, have %+v, %v", r, err)
					}
					return r
				}
				taken := take("siding:token:me")
				held, key := cmp.Or(taken.Permit, s.key), cmp.Or(taken.Permit, s.key)
				if tt.unknown {
					key = s.key
				}
				s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: 1, Member: "starts1"}, redis.Z{Score: 2, Member: "starts2"})
				first, err := locks.Release(s.Context(), key, "siding:token:me", how)
				if err != nil || first == nil || first.Grant == nil || first.Grant.Fence <= taken.Fence {
					s.Fatalf("want it begun, have %+v, %v", first, err)
				}
				again := func() {
					s.Helper()
					next, err := locks.Release(s.Context(), key, "siding:token:me", how)
					if err != nil || next == nil || next.Grant == nil {
						s.Fatalf("want the same answer, have %+v, %v", next, err)
					}
					if *next.Grant != *first.Grant || fmt.Sprint(next.Reply) != fmt.Sprint(first.Reply) {
						s.Errorf("want the same answer, %+v, have %+v", first.Grant, next.Grant)
					}
				}
				again()
				again()
				if have := s.rdb.Get(s.Context(), held).Val(); have != "siding:next:starts1" {
					s.Errorf("want the first to hold it, have %q", have)
				}
				if have := strings.Join(s.queue(), " "); have != "starts2" {
					s.Errorf("queue: want the second, have %q", have)
				}
				if tt.rule != nil {
					s.rdb.Del(s.Context(), s.row)
					take("siding:other:other")
					again()
				}
				s.rdb.Set(s.Context(), held, "siding:another:another", time.Minute)
				again()
				s.rdb.Set(s.Context(), "over:"+said, "", time.Minute)
				if next, err := locks.Release(s.Context(), key, "siding:token:me", how); err != nil || next != nil && next.Grant != nil {
					s.Errorf("not active any more: want nobody named, and no error, have %+v, %v", next, err)
				}
			})
		})
	}
}
