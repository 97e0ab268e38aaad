package lock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// wantLine checks who is in line, the head first.
func (s *setup) wantLine(want ...string) {
	s.Helper()
	if have := s.line(); !slices.Equal(have, want) {
		s.Errorf("want in line %q, have %q", want, have)
	}
}

// TestLineIsFIFO serves 50 waiters, all called and all coming, in the order in
// which they joined.
func TestLineIsFIFO(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		lease := s.take("")
		waiters := names(50)
		for i, w := range waiters {
			if place := s.refuse(w).Place; place != i+1 {
				s.Fatalf("want place %d, have %d", i+1, place)
			}
		}
		var served []string
		for range waiters {
			r, err := lease.HandOff(s.Context())
			if err != nil || r == nil {
				s.Fatalf("want a reservation, have %v, %v", r, err)
			}
			if err := s.Called(s.Context(), r); err != nil {
				s.Fatal(err)
			}
			served = append(served, r.Waiter)
			lease = s.take(r.Waiter)
			if slices.Contains(s.line(), r.Waiter) {
				s.Fatalf("want the holder %s in no line", r.Waiter)
			}
		}
		if diff := cmp.Diff(waiters, served); diff != "" {
			s.Errorf("-want +have:\n%s", diff)
		}
		s.handOff(lease, "")
		if have := s.value(); have != "" {
			s.Errorf("want a free lock, have %q", have)
		}
	})
}

// TestPlaceAndTicketAreKept over refusals, in whatever order the waiters come.
func TestPlaceAndTicketAreKept(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		lease := s.take("")
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
			if busy.Place != i+1 || busy.Ticket != tickets[i] {
				s.Errorf("%s: want place %d and ticket %d, have %d and %d", waiters[i], i+1, tickets[i], busy.Place, busy.Ticket)
			}
			if waited := time.Duration(s.rdb.Time(s.Context()).Val().UnixMicro()-tickets[i]) * time.Microsecond; busy.Waited <= 0 || busy.Waited > waited {
				s.Errorf("%s: want it to have waited up to %v, have %v", waiters[i], waited, busy.Waited)
			}
		}
		s.wantLine(waiters...)
		if _, err := s.Leave(s.Context(), s.res, "w2"); err != nil {
			s.Fatal(err)
		}
		if busy := s.refuse("w3"); busy.Place != 2 || busy.Ticket != tickets[2] {
			s.Errorf("want w3 moved up with its ticket, have place %d and ticket %d", busy.Place, busy.Ticket)
		}
		s.release(lease)
	})
}

// TestTicketsWhenTheClockStepsBack: who comes later stands behind.
func TestTicketsWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		lease := s.take("")
		s.join("w1")
		ahead := float64(time.Now().Add(time.Hour).UnixMicro())
		s.rdb.ZIncrBy(s.Context(), s.row, ahead-s.rdb.ZScore(s.Context(), s.row, "w1").Val(), "w1")
		busy := s.refuse("w2")
		if busy.Place != 2 || busy.Ticket != int64(ahead)+1 || busy.Waited != 0 {
			s.Errorf("want place 2 and the ticket after %.0f, have %+v", ahead, busy)
		}
		s.release(lease)
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
			a, err := lock.Redis(s.rdb).Acquire(s.Context(), store.Claim{
				Key: s.key, Token: "siding:1:" + waiter, TTL: time.Minute, Keep: time.Minute,
				Waiter: waiter, Came: came, Line: store.Line{Nonce: waiter, Grace: time.Minute, Keep: time.Minute},
			})
			if err != nil || a.Place == 0 {
				s.Fatalf("%s: want it in line, have %+v, %v", waiter, a, err)
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

// TestCallersWithoutANameStandInNoLine.
func TestCallersWithoutANameStandInNoLine(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		lease := s.take("")
		_ = s.refuse("")
		s.wantLine()
		s.join("w1")
		s.release(lease)
		// A free lock is theirs, whoever waits, and whoever waits keeps its place.
		lease = s.take("")
		s.wantLine("w1")
		s.handOff(lease, "w1")
	})
}

func TestReleaseReservesForNobody(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		lease := s.take("")
		s.join("w1")
		s.release(lease)
		if have := s.value(); have != "" {
			s.Errorf("want a free lock, have %q", have)
		}
		s.wantLine("w1")
		lease = s.take("w1") // by its own timer
		s.wantLine()
		s.release(lease)
	})
}

func TestLeave(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		lease := s.take("")
		s.join(names(3)...)
		for _, w := range []string{"w1", "w1", "unknown"} {
			if _, err := s.Leave(s.Context(), s.res, w); err != nil {
				s.Fatal(err)
			}
		}
		s.wantLine("w2", "w3")
		first := s.refuse("w2").Ticket
		if busy := s.refuse("w1"); busy.Place != 3 || busy.Ticket <= first {
			s.Errorf("want a waiter that left to join at the end with a new ticket, have %+v", busy)
		}
		s.handOff(lease, "w2")
		if _, err := s.Leave(s.Context(), "never heard of", "w1"); err != nil {
			s.Errorf("want no error for a resource without a line, have %v", err)
		}
	})
}

// TestHolderDiedWithoutALapse: the lock is free, others are in line, and a
// newcomer is first at the door. It is not its turn.
func TestHolderDiedWithoutALapse(t *testing.T) {
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
		if busy.Next.Ticket != tickets["w1"] || busy.Next.Resource != s.res {
			s.Errorf("want the ticket and resource of w1, have %+v", busy.Next)
		}
		if busy.Place != 3 || busy.Holder != "the next in line" || busy.Foreign || !busy.Since.IsZero() {
			s.Errorf("want a place behind the others and a lock kept for the next, have %+v", busy)
		}
		s.wantTTL(s.key, 4*time.Second, 5*time.Second)
		s.wantNext(s.refuse("another").Next, "") // reserved once is enough

		if err := s.Called(s.Context(), busy.Next); err != nil {
			s.Fatal(err)
		}
		s.wantLine("w2", "newcomer", "another")
		lease := s.take("w1")
		if _, ok := lease.HandedOff(); !ok {
			s.Error("want a hand-off")
		}
		s.handOff(lease, "w2")
	})
}

// TestLaterWaiterIsNotServedFirst: somebody in line, but not its head, finds
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
		if busy.Place != 2 || busy.Ticket != second.Ticket {
			s.Errorf("want w2's place and ticket kept, have %+v", busy)
		}
		s.expire()
	})
}

// TestHeadTakesAFreeLock when its own timer was first.
func TestHeadTakesAFreeLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		s.join("w1", "w2")
		s.expire()
		lease := s.take("w1")
		if wait, ok := lease.HandedOff(); ok || wait != 0 {
			s.Errorf("want no hand-off, have %v", wait)
		}
		s.wantLine("w2")
		s.handOff(lease, "w2")
	})
}

// TestLineOutlivesTheLongestTimer: waiters look by themselves only when the
// lock's time is over. The line must be there until then, and so must the mark
// that a reservation leaves.
func TestLineOutlivesTheLongestTimer(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.with(lock.Config{TTL: 24 * time.Hour, Grace: 24 * time.Hour})
		lease := s.take("")
		s.join("w1")
		s.wantTTL(s.row, 25*time.Hour, 100*time.Hour)
		s.rdb.PExpire(s.Context(), s.row, time.Minute)
		s.join("w1") // each refusal prolongs it
		s.wantTTL(s.row, 25*time.Hour, 100*time.Hour)
		s.handOff(lease, "w1")
		s.wantTTL(s.key, 23*time.Hour, 24*time.Hour)
		s.wantTTL(s.fence, 25*time.Hour, 100*time.Hour)
	})
}
