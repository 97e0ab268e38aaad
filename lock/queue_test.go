package lock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

// wantQueue checks who is in the wait queue, the head first.
func (s *setup) wantQueue(want ...string) {
	s.Helper()
	have := s.queue()
	expect.That(s, slices.Equal(have, want), "want in the wait queue %q, have %q", want, have)
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
		ticket := s.rdb.ZScore(s.Context(), s.row, s.name("w2")).Val()
		expect.That(s, busy.Position == 2 && ticket == ahead+1, "want position 2 and the ticket after %.0f, have %+v and %.0f", ahead, busy, ticket)
		s.release(held)
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
		busy := s.refuse("w2")
		expect.That(s, busy.Holder == "the next in the wait queue" && !busy.Foreign, "want it kept for the next in the wait queue, have %+v", busy)
		s.wantTTL(s.fence, 25*time.Hour, 100*time.Hour)
	})
}

// reserved takes the lock, lets waiters join, and hands it off to the first.
func (s *setup) reserved(waiters ...string) {
	s.Helper()
	held := s.take("")
	s.join(waiters...)
	s.handOff(held, waiters[0])
}

// TestReservationExpires: nobody comes within the hand-off timeout. Then the next who asks
// takes the lock, whoever is queued. The release of that one wakes the first again.
func TestReservationExpires(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.with(lock.Config{HandoffTimeout: 500 * time.Millisecond}) // and a slow machine sees the last one
		s.reserved("w1", "w2")
		var held *lease.Lease
		err := expect.Until(s.Context(), func() error {
			var err error
			held, err = s.ask("newcomer")
			return err
		})
		expect.OK(s, err)
		s.wantQueue("w2") // the newcomer had joined, and holds now
		s.handOff(held, "w2")
	})
}

// TestReleasePastTheDeadline: Redis still has the key. So the first waiter is woken at once, and
// not after the TTL. The holder hears of its loss.
func TestReleasePastTheDeadline(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.with(lock.Config{TTL: 20 * time.Second, SafetyMargin: 17 * time.Second, RenewEvery: 200 * time.Millisecond})
		held := s.take("")
		s.join("w1")
		abandon(held)
		expect.Eventually(s.T, "the deadline past", func() bool { return held.Deadline().IsZero() })
		wantLost(s, "release", held.Release(s.Context()))
		s.wantNext("w1")
	})
}
