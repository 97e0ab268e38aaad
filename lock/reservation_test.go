package lock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
)

// reserved takes the lock, lets waiters join, and hands it off to the first.
func (s *setup) reserved(waiters ...string) *store.Reservation {
	s.Helper()
	held := s.take("")
	s.join(waiters...)
	return s.handOff(held, waiters[0])
}

// passOn drops the waiter of r and checks who is next, "" for nobody.
func (s *setup) passOn(r *store.Reservation, want string) *store.Reservation {
	s.Helper()
	next, err := s.Drop(s.Context(), r, false)
	if err != nil {
		s.Fatal(err)
	}
	s.wantNext(next, want)
	return next
}

func (s *setup) confirmed(r *store.Reservation) {
	s.Helper()
	if err := s.Confirm(s.Context(), r); err != nil {
		s.Fatal(err)
	}
}

// TestReservationExcludes newcomers, those who are queued, and callers without a
// name, until its waiter comes.
func TestReservationExcludes(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.reserved("w1", "w2")
		for _, w := range []string{"newcomer", "w2", "", "w", "w11"} {
			if busy := s.refuse(w); busy.Holder != "the next in the wait queue" || busy.Foreign || busy.Next != nil {
				s.Errorf("%q: want it refused for the next in the wait queue, have %+v", w, busy)
			}
		}
		s.wantTTL(s.key, time.Second, time.Minute)
		held := s.take("w1")
		s.wantQueue("w2", "newcomer", "w", "w11")
		s.handOff(held, "w2")
	})
}

// TestReservationIsForAnyName that a waiter may have.
func TestReservationIsForAnyName(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for _, name := range []string{"7:default:5f1c2a", "::", " ", "a\nb", "%d*", "Größe", "siding-reserved:x:1:y", "{x}", "\xff"} {
			s.reserved(name)
			s.join("other")
			held := s.take(name)
			if _, ok := held.HandedOff(); !ok {
				s.Errorf("%q: want a hand-off", name)
			}
			s.wantQueue("other")
			if _, err := s.Leave(s.Context(), lease.Request{Resource: s.res, Waiter: "other"}); err != nil {
				s.Fatal(err)
			}
			s.release(held)
		}
	})
}

// TestReservationExpires: nobody comes within the hand-off timeout. Then the next who asks
// takes the lock, whoever is queued. The release of that one wakes the first again.
func TestReservationExpires(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.with(lock.Config{HandoffTimeout: 50 * time.Millisecond})
		s.reserved("w1", "w2")
		var held *lease.Lease
		err := poll.Until(s.Context(), func() error {
			var err error
			held, err = s.ask("newcomer")
			var busy *lease.BusyError
			if errors.As(err, &busy) && busy.Next != nil {
				s.Errorf("want no second reservation for an absent waiter, have one for %s", busy.Next.Waiter)
			}
			return err
		})
		if err != nil {
			s.Fatal(err)
		}
		if _, ok := held.HandedOff(); ok {
			s.Error("want no hand-off to a waiter that was not woken")
		}
		s.wantQueue("w1", "w2") // the newcomer had joined, and holds now
		s.join("w2")            // the mark is used up
		s.handOff(held, "w1")
	})
}

// TestExpiredReservationIsForOneOnly: the mark that an expired reservation leaves ends with the next
// acquisition, in whatever way that one ends.
func TestExpiredReservationIsForOneOnly(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for _, first := range []string{"newcomer", "w2", ""} {
			s.reserved("w1", "w2")
			s.expire()
			s.take(first)
			s.join("w2")
			s.expire() // it died
			s.wantNext(s.refuse("late").Next, "w1")
			s.rdb.Del(s.Context(), s.key, s.fence, s.row)
		}
	})
}

// TestReservationOnArrivalExpires like one that a release has made.
func TestReservationOnArrivalExpires(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		s.join("absent")
		s.expire()
		s.wantNext(s.refuse("newcomer").Next, "absent")
		s.expire()
		held := s.take("newcomer")
		s.wantQueue("absent")
		s.handOff(held, "absent")
	})
}

// TestCalledWhileReserved takes the waiter out of the wait queue; if it comes too
// late it joins at the end.
func TestCalledWhileReserved(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		r := s.reserved("w1", "w2")
		s.confirmed(r)
		s.confirmed(r) // does no harm
		s.wantQueue("w2")
		s.join("w2") // still kept for w1
		s.expire()
		held := s.take("w2")
		if busy := s.refuse("w1"); busy.Position != 1 || busy.Ticket <= r.Ticket {
			s.Errorf("want w1 to have joined anew, have %+v", busy)
		}
		s.release(held)
	})
}

// TestCalledTooLate leaves the waiter its position: it was not woken in time.
func TestCalledTooLate(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for _, meanwhile := range []func(){
			func() {},
			func() { s.take("newcomer") },
			func() { s.handOff(s.take(""), "w1") }, // reserved again, for the same
		} {
			r := s.reserved("w1", "w2")
			s.expire()
			meanwhile()
			s.confirmed(r)
			s.wantQueue("w1", "w2")
			s.rdb.Del(s.Context(), s.key, s.fence, s.row)
		}
	})
}

// TestDrop drops absent waiters one by one until somebody can come.
func TestDrop(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		r := s.reserved(names(4)...)
		first := r.Ticket
		r = s.passOn(r, "w2")
		if r.Key != s.key || r.Ticket <= first {
			s.Errorf("want the ticket and resource of w2, have %+v", r)
		}
		s.wantQueue("w2", "w3", "w4")
		s.join("w1") // dropped: it joins at the end
		s.wantTTL(s.key, 59*time.Second, time.Minute)
		r = s.passOn(r, "w3")
		s.confirmed(r)
		held := s.take("w3")
		s.wantQueue("w4", "w1")
		r = s.handOff(held, "w4")
		r = s.passOn(r, "w1")
		s.passOn(r, "")
		if have := s.value(); have != "" {
			s.Errorf("want a free lock, have %q", have)
		}
		s.wantQueue()
	})
}

// TestDropTooLate does nothing: the waiter may have come meanwhile, and kept
// its position.
func TestDropTooLate(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for _, tc := range []struct {
			name      string
			meanwhile func()
		}{
			{"expired", func() {}},
			{"expired and taken by another", func() { s.take("newcomer"); s.join("w1") }},
			{"expired, taken and reserved again", func() { s.handOff(s.take(""), "w1") }},
		} {
			r := s.reserved("w1", "w2")
			s.expire()
			tc.meanwhile()
			before := s.value()
			s.passOn(r, "")
			if have := s.value(); have != before {
				s.Errorf("%s: want the lock left as %q, have %q", tc.name, before, have)
			}
			s.wantQueue("w1", "w2")
			s.rdb.Del(s.Context(), s.key, s.fence, s.row)
		}

		r := s.reserved("w1")
		held := s.take("w1")
		s.passOn(r, "")
		s.join("w2")
		s.handOff(held, "w2")
	})
}

// TestDropWithNobodyElse frees the lock, and the mark of the reservation ends with
// the next acquisition.
func TestDropWithNobodyElse(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.passOn(s.reserved("w1"), "")
		held := s.take("w2")
		s.join("w3")
		s.expire()
		s.wantNext(s.refuse("w4").Next, "w3")
		_ = held
	})
}

// TestHandOffOfALostLock reserves nothing. That is an error if somebody else has held the lock
// since, even if that one has released it.
func TestHandOffOfALostLock(t *testing.T) {
	t.Parallel()
	for name, since := range map[string]func(*setup){
		"nobody since":       func(*setup) {},
		"held by another":    func(s *setup) { s.take("") },
		"another has been":   func(s *setup) { s.take(""); s.expire() },
		"a foreign holder":   func(s *setup) { s.rdb.Set(s.Context(), s.key, "8f3a60", time.Minute) },
		"the fence is gone":  func(s *setup) { s.rdb.Del(s.Context(), s.fence) },
		"kept for a waiter":  func(s *setup) { s.take(""); s.expire(); _ = s.refuse("w2") },
		"kept, nobody since": func(s *setup) { _ = s.refuse("w2") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				held := s.take("")
				s.join("w1")
				s.expire()
				since(s)
				before := s.value()
				r, err := held.HandOff(s.Context())
				if nobody := strings.HasSuffix(name, "nobody since"); errors.Is(err, lock.ErrLost) == nobody || nobody && err != nil {
					s.Errorf("want ErrLost if somebody has held it since, have %v", err)
				}
				s.wantNext(r, "")
				if have := s.value(); have != before {
					s.Errorf("want the lock left as it was, %q, have %q", before, have)
				}
			})
		})
	}
}

// TestHandOffPastTheDeadline: Redis still has the key. So the first waiter is woken at once, and
// not after the TTL. The holder hears of its loss.
func TestHandOffPastTheDeadline(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		first := s.take("")
		s.join("w1")
		// The same lock, as one has it whose last call was sent a trust window ago.
		held, err := s.Take(s.Context(), store.Grant{
			Resource: s.res, Token: s.value(), Fence: first.Fence(), HandOff: -1, Start: time.Now().Add(time.Second - 14*time.Second),
		})
		if err != nil {
			s.Fatal(err)
		}
		held.Detach() // else it is renewed at once
		_ = sleep.For(s.Context(), time.Second)
		if !held.Deadline().IsZero() {
			s.Error("want no valid lease past its deadline")
		}
		r, err := held.HandOff(s.Context())
		if !errors.Is(err, lock.ErrLost) {
			s.Errorf("want ErrLost, have %v", err)
		}
		s.wantNext(r, "w1")
	})
}

// TestHandedOff measures by the server's clock.
func TestHandedOff(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		before := s.rdb.Time(s.Context()).Val()
		s.reserved("w1")
		held := s.take("w1")
		took := s.rdb.Time(s.Context()).Val().Sub(before)
		if wait, ok := held.HandedOff(); !ok || wait <= 0 || wait > took {
			s.Errorf("want a hand-off of up to %v, have %v, %v", took, wait, ok)
		}
		s.release(held)
	})
}

// TestHandedOffWhenTheClockStepsBack is still a hand-off.
func TestHandedOffWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		ahead := time.Now().Add(time.Hour).UnixMicro()
		s.rdb.Set(s.Context(), s.key, fmt.Sprintf("siding-reserved:nonce:%d:w1", ahead), time.Minute)
		held := s.take("w1")
		if wait, ok := held.HandedOff(); !ok || wait != 0 {
			s.Errorf("want a hand-off without a duration, have %v, %v", wait, ok)
		}
		s.release(held)
	})
}
