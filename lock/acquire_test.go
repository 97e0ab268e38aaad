package lock_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
)

func TestAcquireBusyRelease(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		ctx := s.Context()
		before := s.rdb.Time(ctx).Val()
		held, err := s.Acquire(ctx, s.res, &lock.Options{Holder: "warehouse:allocate 77ab09"})
		if err != nil {
			s.Fatal(err)
		}
		after := s.rdb.Time(ctx).Val()
		if held.Deadline().IsZero() || held.Fence() <= 0 {
			s.Errorf("want a valid lease with a fence, have valid %v, fence %d", !held.Deadline().IsZero(), held.Fence())
		}
		s.wantTTL(s.key, 14*time.Second, 15*time.Second)

		busy := s.refuse("")
		if busy.Resource != s.res || busy.Holder != "warehouse:allocate 77ab09" || busy.Foreign {
			s.Errorf("want resource and holder named, have %+v", busy)
		}
		s.wantLeft("the held lock", 14*time.Second, 15*time.Second, busy.Remaining)
		if busy.Since.Before(before.Truncate(time.Microsecond)) || busy.Since.After(after) {
			s.Errorf("want held since %v to %v, have %v", before, after, busy.Since)
		}
		if busy.Position != 0 || busy.Ticket != 0 {
			s.Errorf("want a caller without a name in no wait queue, have %+v", busy)
		}
		if want := "lock " + s.res + " is held by warehouse:allocate 77ab09 (1"; !strings.HasPrefix(busy.Error(), want) {
			s.Errorf("want %q..., have %q", want, busy.Error())
		}
		if !errors.Is(error(busy), lock.ErrBusy) || errors.Is(error(busy), lock.ErrLost) {
			s.Errorf("want busy and not lost, have %v", busy)
		}

		s.release(held)
		if have := s.value(); have != "" {
			s.Errorf("want a free lock, have %q", have)
		}
		again := s.take("")
		s.release(held) // a second call does nothing
		if s.value() == "" {
			s.Error("want the later lease untouched by the earlier one")
		}
		s.release(again)
	})
}

// TestHolderLabels are shown to others: bounded, whole characters, with a default.
func TestHolderLabels(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for _, tc := range []struct{ holder, want string }{
			{"a:b:c", "a:b:c"},
			{strings.Repeat("x", 300), strings.Repeat("x", 200)},
			{strings.Repeat("x", 199) + "ü", strings.Repeat("x", 199)},
		} {
			held, err := s.Acquire(s.Context(), s.res, &lock.Options{Holder: lease.Note(tc.holder)}) // as package queue does
			if err != nil {
				s.Fatal(err)
			}
			if have := s.refuse("").Holder; have != tc.want {
				s.Errorf("want %q, have %q", tc.want, have)
			}
			s.release(held)
		}
		held, err := s.Acquire(s.Context(), s.res, nil)
		if err != nil {
			s.Fatal(err)
		}
		if have := s.refuse("").Holder; !strings.Contains(have, "(pid ") {
			s.Errorf("want host and process id, have %q", have)
		}
		s.release(held)
	})
}

func TestSingleWinner(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		var all sync.WaitGroup
		var won, lost atomic.Int64
		start := make(chan struct{})
		for range 100 {
			all.Go(func() {
				<-start
				switch _, err := s.Acquire(s.Context(), s.res, nil); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, lock.ErrBusy):
					lost.Add(1)
				default:
					s.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		if won.Load() != 1 || lost.Load() != 99 {
			s.Errorf("want 1 winner and 99 refused, have %d and %d", won.Load(), lost.Load())
		}
	})
}

// TestTokensAreUnique: each acquisition by the same holder and waiter has another token. A task may
// run again while its former attempt still does.
func TestTokensAreUnique(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		seen := make(map[string]bool)
		for range 200 {
			held := s.take("task 1")
			token := s.value()
			if seen[token] {
				s.Fatalf("want a new token each time, have %q again", token)
			}
			seen[token] = true
			s.release(held)
		}
		held := s.take("task 1")
		s.join("task 1")
		s.release(held)
	})
}

// TestReleaseOfAnothersLock: our lock ran out and somebody else has it.
func TestReleaseOfAnothersLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for _, waited := range []bool{false, true} {
			ours := s.take("")
			s.expire()
			theirs := s.take("")
			if waited {
				s.join("waiter")
			}
			value := s.value()
			if err := ours.Release(s.Context()); !errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrBusy) {
				s.Errorf("want ErrLost, have %v", err)
			}
			if have := s.value(); have != value {
				s.Errorf("want their lock untouched as %q, have %q", value, have)
			}
			s.wantTTL(s.key, 14*time.Second, 15*time.Second)
			if waited {
				s.handOff(theirs, "waiter")
			} else {
				s.release(theirs)
			}
		}
	})
}

func TestRenewProlongs(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.rdb.PExpire(s.Context(), s.key, time.Second)
		s.rdb.PExpire(s.Context(), s.fence, time.Second)
		if err := held.Renew(s.Context()); err != nil {
			s.Fatal(err)
		}
		s.wantTTL(s.key, 14*time.Second, 15*time.Second)
		s.wantTTL(s.fence, 74*time.Second, 75*time.Second)
		s.release(held)
	})
}

func TestRenewNeverRecreates(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.expire()
		s.rdb.Del(s.Context(), s.fence)
		if err := held.Renew(s.Context()); !errors.Is(err, lock.ErrLost) {
			s.Errorf("want ErrLost, have %v", err)
		}
		if n := s.rdb.Exists(s.Context(), s.key, s.fence, s.row).Val(); n != 0 {
			s.Errorf("want no key made, have %d", n)
		}
		if !held.Deadline().IsZero() {
			s.Error("want a lost lease, have a valid one")
		}
	})
}

// TestRenewLeavesAnothersLock: neither its value nor its life changes.
func TestRenewLeavesAnothersLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		ours := s.take("")
		s.expire()
		theirs := s.take("")
		value := s.value()
		s.rdb.PExpire(s.Context(), s.key, 5*time.Second)
		if err := ours.Renew(s.Context()); !errors.Is(err, lock.ErrLost) {
			s.Errorf("want ErrLost, have %v", err)
		}
		s.wantTTL(s.key, time.Second, 5*time.Second)
		if have := s.value(); have != value {
			s.Errorf("want %q, have %q", value, have)
		}
		s.release(theirs)
	})
}

func TestPrefixSeparates(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		a, b := s.take(""), s.with(lock.Config{Prefix: "other:"}).take("")
		if have := s.rdb.Exists(s.Context(), "lock:"+s.res, "other:"+s.res).Val(); have != 2 {
			s.Errorf("want one key under each prefix, have %d", have)
		}
		s.release(a)
		s.release(b)
	})
}

// TestLeaseThatEndsAtOnce: a lease may be over as soon as it has begun. The timer that ends the
// lease must not race with the goroutine that sets the timer.
func TestLeaseThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	locker, err := lock.New(newFake().Store, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		longest := time.Duration(i) * 10 * time.Nanosecond
		held, err := locker.Acquire(t.Context(), "order:1", &lock.Options{MaxHold: max(1, longest)})
		if err != nil {
			continue // it was over even sooner
		}
		if cause := ended(t, held.Context(t.Context())); !heldTooLong(cause) {
			t.Errorf("want the longest hold over, have %v", cause)
		}
		if err := held.Release(t.Context()); !heldTooLong(err) {
			t.Errorf("want the longest hold over, have %v", err)
		}
	}
}

// heldTooLong reports whether err says that [lock.Options.MaxHold] is over.
func heldTooLong(err error) bool {
	return errors.Is(err, lock.ErrLost) && strings.Contains(err.Error(), "held for the longest time allowed")
}

// A lease of its own TTL is trusted and renewed in proportion.
func TestTTLOfOneLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held, err := s.Acquire(s.Context(), s.res, &lock.Options{TTL: 6 * time.Second})
		if err != nil {
			s.Fatal(err)
		}
		s.wantTTL(s.key, 2*time.Second, 6*time.Second)
		first := held.Deadline()
		if left := time.Until(first); left > 5600*time.Millisecond {
			s.Errorf("want it trusted for 5.6 s, have %v", left)
		}
		poll.Eventually(s.T, "a renewal", func() bool { return held.Deadline().After(first) })
		s.release(held)
	})
}
