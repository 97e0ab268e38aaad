package lock_test

import (
	"errors"
	"fmt"
	"strings"
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
		must(s, err)
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

		s.release(held)
		s.wantFree()
		again := s.take("")
		s.release(held) // a second call does nothing
		if s.value() == "" {
			s.Error("want the later lease untouched by the earlier one")
		}
		s.release(again)
	})
}

// TestHolderIsANote: what a holder notes is what others read, byte by byte. A note of package queue is cut to whole
// characters, one of a caller refused if it is too long.
func TestHolderIsANote(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	onEach(t, func(s *setup) {
		for i, tc := range []struct{ note, want string }{
			{"ann", "ann"},
			{`{"pod": "a:b", "job": [1, 2]}`, `{"pod": "a:b", "job": [1, 2]}`},
			{"two\nlines", "two\nlines"},
			{"größe 赤", "größe 赤"},
			{"\xff\x00", "\xff\x00"},
			{long, long},
			{lease.Note(long + "x"), long},
			{lease.Note(long[1:] + "ü"), long[1:]},
			{"", "(pid "}, // the host and the process
		} {
			one := s.on(fmt.Sprintf("%s-%d", s.res, i))
			held, err := one.Acquire(s.Context(), one.res, &lock.Options{Holder: tc.note})
			must(s, err)
			for who, locker := range map[string]*lock.Locker{"this process": s.Locker, "another": s.stranger().Locker} {
				_, err := locker.Acquire(s.Context(), one.res, nil)
				busy, ok := errors.AsType[*lock.BusyError](err)
				if !ok || busy.Holder != tc.want && (tc.note != "" || !strings.Contains(busy.Holder, tc.want)) {
					s.Errorf("%s: want %q, have %v", who, tc.want, err)
				}
			}
			s.release(held)
		}
		_, err := s.Acquire(s.Context(), s.res, &lock.Options{Holder: long + "x"})
		if want := "lock: holder: want at most 200 bytes, have 201"; err == nil || err.Error() != want {
			s.Errorf("want %q, have %v", want, err)
		}
	})
}

// TestLockOfAnother: our lock ran out and somebody else has it. Neither a renewal nor a release changes its value or its life.
func TestLockOfAnother(t *testing.T) {
	t.Parallel()
	type call = func(*setup, *lease.Lease) error
	onEachOf(t, map[string]call{
		"renew":   func(s *setup, l *lease.Lease) error { return l.Renew(s.Context()) },
		"release": func(s *setup, l *lease.Lease) error { return l.Release(s.Context()) },
	}, func(s *setup, do call) {
		for _, waiters := range [][]string{nil, {"waiter"}} {
			ours := s.take("")
			s.expire()
			theirs := s.take("")
			s.join(waiters...)
			value := s.value()
			s.rdb.PExpire(s.Context(), s.key, 5*time.Second)
			wantLost(s, "call", do(s, ours))
			if have := s.value(); have != value {
				s.Errorf("want their lock untouched as %q, have %q", value, have)
			}
			s.wantTTL(s.key, time.Second, 5*time.Second)
			s.release(theirs)
			for _, w := range waiters {
				s.wantNext(w)
				s.take(w)
				s.expire()
			}
		}
	})
}

// TestRenew prolongs what there is, and makes nothing anew.
func TestRenew(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.rdb.PExpire(s.Context(), s.key, time.Second)
		s.rdb.PExpire(s.Context(), s.fence, time.Second)
		must(s, held.Renew(s.Context()))
		s.wantTTL(s.key, 14*time.Second, 15*time.Second)
		s.wantTTL(s.fence, 74*time.Second, 75*time.Second)

		s.expire()
		s.rdb.Del(s.Context(), s.fence)
		wantLost(s, "renew", held.Renew(s.Context()))
		if n := s.rdb.Exists(s.Context(), s.key, s.fence, s.row).Val(); n != 0 {
			s.Errorf("want no key made, have %d", n)
		}
	})
}

// wantHeldTooLong checks that err says that [lock.Options.MaxHold] is over.
func wantHeldTooLong(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, lock.ErrLost) || !strings.Contains(err.Error(), "held for the longest time allowed") {
		t.Errorf("want the longest hold over, have %v", err)
	}
}

// A lease of its own TTL is trusted and renewed in proportion.
func TestTTLOfOneLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held, err := s.Acquire(s.Context(), s.res, &lock.Options{TTL: 6 * time.Second})
		must(s, err)
		s.wantTTL(s.key, 2*time.Second, 6*time.Second)
		first := held.Deadline()
		if left := time.Until(first); left > 5600*time.Millisecond {
			s.Errorf("want it trusted for 5.6 s, have %v", left)
		}
		poll.Eventually(s.T, "a renewal", func() bool { return held.Deadline().After(first) })
		s.release(held)
	})
}
