package lock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
			s.release(held)
			_, next, _ := strings.Cut(s.value(), s.name("w"))
			served = append(served, "w"+next)
			held = s.take("w" + next)
			if slices.Contains(s.queue(), "w"+next) {
				s.Fatalf("want the holder w%s in no wait queue", next)
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
		s.leave("w2")
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
		s.rdb.ZIncrBy(s.Context(), s.row, ahead-s.rdb.ZScore(s.Context(), s.row, s.name("w1")).Val(), s.name("w1"))
		busy := s.refuse("w2")
		if busy.Position != 2 || busy.Ticket != int64(ahead)+1 {
			s.Errorf("want position 2 and the ticket after %.0f, have %+v", ahead, busy)
		}
		s.release(held)
	})
}

// TestCallersWithoutANameAreNotQueued.
func TestCallersWithoutANameAreNotQueued(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		_ = s.refuse("")
		s.wantQueue()
		s.join("w1")
		s.expire()
		// A free lock is theirs, whoever waits, and whoever waits keeps its position.
		held := s.take("")
		s.wantQueue("w1")
		s.handOff(held, "w1")
	})
}

func TestLeave(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.join(names(3)...)
		for _, w := range []string{"w1", "w1", "unknown", ""} {
			s.leave(w)
		}
		s.wantQueue("w2", "w3")
		first := s.refuse("w2").Ticket
		if busy := s.refuse("w1"); busy.Position != 3 || busy.Ticket <= first {
			s.Errorf("want a waiter that left to join at the end with a new ticket, have %+v", busy)
		}
		s.handOff(held, "w2")
		s.on("never heard of").leave("w1") // no error
	})
}

// TestHolderDiedAndANewcomerIsFirst: the lock is free, others are queued, and a
// newcomer is first on arrival. The lock is not for it, nor for one who is queued behind others.
func TestHolderDiedAndANewcomerIsFirst(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		s.join("w1")
		second := s.refuse("w2")
		s.expire()
		if busy := s.refuse("w2"); busy.Position != 1 || busy.Ticket != second.Ticket {
			s.Errorf("want w2's ticket kept, and its position behind w1 who is called, have %+v", busy)
		}
		s.wantNext("w1")
		s.wantTTL(s.key, 59*time.Second, time.Minute)
		busy := s.refuse("newcomer")
		if busy.Position != 2 || busy.Holder != "the next in the wait queue" || busy.Foreign || !busy.Since.IsZero() {
			s.Errorf("want a position behind the others and a lock kept for the next, have %+v", busy)
		}
		s.wantNext("w1")
		s.take("w1")
		s.expire()
		_ = s.refuse("another")
		s.wantNext("w2")
		s.wantQueue("newcomer", "another")
		s.take("w2")
		s.expire()
		held := s.take("newcomer") // the head, whose fallback time came first
		s.wantQueue("another")
		s.handOff(held, "another")
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
