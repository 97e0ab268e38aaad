package lock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// names returns w1 to wn.
func names(n int) []string {
	waiters := make([]string, n)
	for i := range waiters {
		waiters[i] = fmt.Sprintf("w%d", i+1)
	}
	return waiters
}

// wantQueue checks who is in the wait queue, the head first.
func (s *setup) wantQueue(want ...string) {
	s.Helper()
	if have := s.queue(); !slices.Equal(have, want) {
		s.Errorf("want in the wait queue %q, have %q", want, have)
	}
}

// TestWaitQueueIsFIFO has 50 waiters that are all woken and all come. They get the lock in the
// order in which they joined.
func TestWaitQueueIsFIFO(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		waiters := names(50)
		for i, w := range waiters {
			if position := s.refuse(w).Position; position != i+1 {
				s.Fatalf("want position %d, have %d", i+1, position)
			}
		}
		var served []string
		for range waiters {
			r, err := held.HandOff(s.Context())
			if err != nil || r == nil {
				s.Fatalf("want a reservation, have %v, %v", r, err)
			}
			if err := s.Confirm(s.Context(), r); err != nil {
				s.Fatal(err)
			}
			served = append(served, r.Waiter)
			held = s.take(r.Waiter)
			if slices.Contains(s.queue(), r.Waiter) {
				s.Fatalf("want the holder %s in no wait queue", r.Waiter)
			}
		}
		if diff := cmp.Diff(waiters, served); diff != "" {
			s.Errorf("-want +have:\n%s", diff)
		}
		s.handOff(held, "")
		if have := s.value(); have != "" {
			s.Errorf("want a free lock, have %q", have)
		}
	})
}

// TestPositionAndTicketAreKept over refusals, in whatever order the waiters come.
func TestPositionAndTicketAreKept(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		waiters := names(5)
		tickets := make([]int64, len(waiters))
		for i, w := range waiters {
			busy := s.refuse(w)
			tickets[i] = busy.Ticket
			if i > 0 && tickets[i] <= tickets[i-1] {
				s.Errorf("want a ticket above %d, have %d", tickets[i-1], tickets[i])
			}
		}
		for _, i := range []int{4, 0, 2, 2, 1, 3, 0} {
			busy := s.refuse(waiters[i])
			if busy.Position != i+1 || busy.Ticket != tickets[i] {
				s.Errorf("%s: want position %d and ticket %d, have %d and %d", waiters[i], i+1, tickets[i], busy.Position, busy.Ticket)
			}
		}
		s.wantQueue(waiters...)
		if _, err := s.Leave(s.Context(), lease.Request{Resource: s.res, Waiter: "w2"}); err != nil {
			s.Fatal(err)
		}
		if busy := s.refuse("w3"); busy.Position != 2 || busy.Ticket != tickets[2] {
			s.Errorf("want w3 moved up with its ticket, have position %d and ticket %d", busy.Position, busy.Ticket)
		}
		s.release(held)
	})
}

// TestTicketsWhenTheClockStepsBack: who comes later stands behind.
func TestTicketsWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.join("w1")
		ahead := float64(time.Now().Add(time.Hour).UnixMicro())
		s.rdb.ZIncrBy(s.Context(), s.row, ahead-s.rdb.ZScore(s.Context(), s.row, "w1").Val(), "w1")
		busy := s.refuse("w2")
		if busy.Position != 2 || busy.Ticket != int64(ahead)+1 {
			s.Errorf("want position 2 and the ticket after %.0f, have %+v", ahead, busy)
		}
		s.release(held)
	})
}

// TestTicketsByAnotherClock: the time at which a waiter came may be ahead of the server's by a
// second. One that is further ahead is cut: else all who come until then would pass the waiter.
func TestTicketsByAnotherClock(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		now := func() int64 { return s.rdb.Time(s.Context()).Val().UnixMicro() }
		join := func(waiter string, came int64) int64 {
			a, err := lock.Redis(s.rdb).Acquire(s.Context(), store.Request{
				Key: s.key, Token: "siding:1:" + waiter, TTL: time.Minute, FenceTTL: time.Minute,
				Waiter: waiter, Came: came, Handoff: store.Handoff{Nonce: waiter, Timeout: time.Minute, QueueTTL: time.Minute},
			})
			if err != nil || a.Position == 0 {
				s.Fatalf("%s: want it queued, have %+v, %v", waiter, a, err)
			}
			return a.Ticket
		}
		const second = 1_000_000
		came := now() + second
		if have := join("w1", came); have != came {
			s.Errorf("want the ticket as it came, %d, have %d", came, have)
		}
		before := now()
		if have := join("w2", before+3600*second); have < before+second || have > now()+second {
			s.Errorf("want a ticket that is ahead by a second, have it ahead by %d us", have-before)
		}
	})
}

// TestCallersWithoutANameAreNotQueued.
func TestCallersWithoutANameAreNotQueued(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		_ = s.refuse("")
		s.wantQueue()
		s.join("w1")
		s.release(held)
		// A free lock is theirs, whoever waits, and whoever waits keeps its position.
		held = s.take("")
		s.wantQueue("w1")
		s.handOff(held, "w1")
	})
}

func TestReleaseReservesForNobody(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.join("w1")
		s.release(held)
		if have := s.value(); have != "" {
			s.Errorf("want a free lock, have %q", have)
		}
		s.wantQueue("w1")
		held = s.take("w1") // at its fallback time
		s.wantQueue()
		s.release(held)
	})
}

func TestLeave(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.join(names(3)...)
		for _, w := range []string{"w1", "w1", "unknown"} {
			if _, err := s.Leave(s.Context(), lease.Request{Resource: s.res, Waiter: w}); err != nil {
				s.Fatal(err)
			}
		}
		s.wantQueue("w2", "w3")
		first := s.refuse("w2").Ticket
		if busy := s.refuse("w1"); busy.Position != 3 || busy.Ticket <= first {
			s.Errorf("want a waiter that left to join at the end with a new ticket, have %+v", busy)
		}
		s.handOff(held, "w2")
		if _, err := s.Leave(s.Context(), lease.Request{Resource: "never heard of", Waiter: "w1"}); err != nil {
			s.Errorf("want no error for a resource without a wait queue, have %v", err)
		}
	})
}

// TestHolderDiedAndANewcomerIsFirst: the lock is free, others are queued, and a
// newcomer is first on arrival. The lock is not for it.
func TestHolderDiedAndANewcomerIsFirst(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		tickets := map[string]int64{}
		for _, w := range names(2) {
			tickets[w] = s.refuse(w).Ticket
		}
		s.expire()
		busy := s.refuse("newcomer")
		s.wantNext(busy.Next, "w1")
		if busy.Next.Ticket != tickets["w1"] || busy.Next.Key != s.key {
			s.Errorf("want the ticket and resource of w1, have %+v", busy.Next)
		}
		if busy.Position != 3 || busy.Holder != "the next in the wait queue" || busy.Foreign || !busy.Since.IsZero() {
			s.Errorf("want a position behind the others and a lock kept for the next, have %+v", busy)
		}
		s.wantTTL(s.key, 59*time.Second, time.Minute)
		s.wantNext(s.refuse("another").Next, "") // reserved once is enough

		if err := s.Confirm(s.Context(), busy.Next); err != nil {
			s.Fatal(err)
		}
		s.wantQueue("w2", "newcomer", "another")
		held := s.take("w1")
		if _, handed := held.HandedOff(); handed || !held.Recovered() {
			s.Error("want a lock that was reserved, but not handed off")
		}
		s.handOff(held, "w2")
	})
}

// TestLaterWaiterIsNotServedFirst: somebody queued, but not its head, finds
// the lock free.
func TestLaterWaiterIsNotServedFirst(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		s.join("w1")
		second := s.refuse("w2")
		s.expire()
		busy := s.refuse("w2")
		s.wantNext(busy.Next, "w1")
		if busy.Position != 2 || busy.Ticket != second.Ticket {
			s.Errorf("want w2's position and ticket kept, have %+v", busy)
		}
		s.expire()
	})
}

// TestHeadTakesAFreeLock when its fallback time came first.
func TestHeadTakesAFreeLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		s.join("w1", "w2")
		s.expire()
		held := s.take("w1")
		if wait, ok := held.HandedOff(); ok || wait != 0 {
			s.Errorf("want no hand-off, have %v", wait)
		}
		s.wantQueue("w2")
		s.handOff(held, "w2")
	})
}

// TestWaitQueueOutlivesTheLongestFallbackTime: waiters come by themselves only when the lock's time
// is over. The wait queue must be there until then, and so must the mark that a reservation leaves.
func TestWaitQueueOutlivesTheLongestFallbackTime(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.with(lock.Config{TTL: 24 * time.Hour, HandoffTimeout: 24 * time.Hour})
		held := s.take("")
		s.join("w1")
		s.wantTTL(s.row, 25*time.Hour, 100*time.Hour)
		s.rdb.PExpire(s.Context(), s.row, time.Minute)
		s.join("w1") // each refusal prolongs it
		s.wantTTL(s.row, 25*time.Hour, 100*time.Hour)
		s.handOff(held, "w1")
		s.wantTTL(s.key, 23*time.Hour, 24*time.Hour)
		s.wantTTL(s.fence, 25*time.Hour, 100*time.Hour)
	})
}
