package lock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

func TestAcquireBusyRelease(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		ctx := s.Context()
		before := s.rdb.Time(ctx).Val()
		held := expect.Value(s.Acquire(ctx, s.res, &lock.Options{Holder: "warehouse:allocate 77ab09"}))(s)
		after := s.rdb.Time(ctx).Val()
		expect.That(s, !held.Deadline().IsZero() && held.Fence() > 0,
			"want a valid lease with a fence, have valid %v, fence %d", !held.Deadline().IsZero(), held.Fence())
		s.wantTTL(s.key, 14*time.Second, 15*time.Second)

		busy := s.refuse("")
		expect.That(s, busy.Resource == s.res && busy.Holder == "warehouse:allocate 77ab09" && !busy.Foreign,
			"want resource and holder named, have %+v", busy)
		s.wantLeft("the held lock", 14*time.Second, 15*time.Second, busy.Remaining)
		expect.That(s, !busy.Since.Before(before.Truncate(time.Microsecond)) && !busy.Since.After(after),
			"want held since %v to %v, have %v", before, after, busy.Since)
		expect.That(s, busy.Position == 0, "want a caller without a name in no wait queue, have %+v", busy)
		want := "lock " + s.res + " is held by warehouse:allocate 77ab09 (1"
		expect.That(s, strings.HasPrefix(busy.Error(), want), "want %q..., have %q", want, busy.Error())

		s.release(held)
		s.wantFree()
		again := s.take("")
		s.release(held) // a second call does nothing
		expect.That(s, s.value() != "", "want the later lease untouched by the earlier one")
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
			held := expect.Value(one.Acquire(s.Context(), one.res, &lock.Options{Holder: tc.note}))(s)
			for who, locker := range map[string]*lock.Locker{"this process": s.Locker, "another": s.stranger().Locker} {
				_, err := locker.Acquire(s.Context(), one.res, nil)
				busy, ok := errors.AsType[*lock.BusyError](err)
				expect.That(s, ok && (busy.Holder == tc.want || tc.note == "" && strings.Contains(busy.Holder, tc.want)),
					"%s: want %q, have %v", who, tc.want, err)
			}
			s.release(held)
		}
		_, err := s.Acquire(s.Context(), s.res, &lock.Options{Holder: long + "x"})
		expect.Equal(s, "error", fmt.Sprint(err), "lock: holder: want at most 200 bytes, have 201")
	})
}

// TestRenew prolongs what there is, and makes nothing anew.
func TestRenew(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.rdb.PExpire(s.Context(), s.key, time.Second)
		s.rdb.PExpire(s.Context(), s.fence, time.Second)
		expect.OK(s, held.Renew(s.Context()))
		s.wantTTL(s.key, 14*time.Second, 15*time.Second)
		s.wantTTL(s.fence, 74*time.Second, 75*time.Second)

		s.expire()
		s.rdb.Del(s.Context(), s.fence)
		wantLost(s, "renew", held.Renew(s.Context()))
		expect.Equal(s, "keys made", s.rdb.Exists(s.Context(), s.key, s.fence, s.row).Val(), 0)
	})
}

// wantHeldTooLong checks that err says that [lock.Options.MaxHold] is over.
func wantHeldTooLong(tb testing.TB, err error) {
	tb.Helper()
	expect.That(tb, errors.Is(err, lock.ErrLost) && strings.Contains(err.Error(), "held for the longest time allowed"),
		"want the longest hold over, have %v", err)
}

// A lease of its own TTL is trusted and renewed in proportion.
func TestTTLOfOneLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := expect.Value(s.Acquire(s.Context(), s.res, &lock.Options{TTL: 6 * time.Second}))(s)
		s.wantTTL(s.key, 2*time.Second, 6*time.Second)
		first := held.Deadline()
		left := time.Until(first)
		expect.That(s, left <= 5600*time.Millisecond, "want it trusted for 5.6 s, have %v", left)
		expect.Eventually(s.T, "a renewal", func() bool { return held.Deadline().After(first) })
		s.release(held)
	})
}

// compareAndDelete is how a program on the plain protocol releases.
const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

// takePlain is how such a program acquires.
func (s *setup) takePlain(token string, ttl time.Duration) bool {
	s.Helper()
	err := s.rdb.SetArgs(s.Context(), s.key, token, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.Fatal(err)
	}
	return err == nil
}

func (s *setup) releasePlain(token string) {
	s.Helper()
	n, err := s.rdb.Eval(s.Context(), compareAndDelete, []string{s.key}, token).Int()
	expect.That(s, err == nil && n == 1, "want the plain program's own lock deleted, have %d, %v", n, err)
}

// TestPlainProtocol excludes both ways, lock by lock, by the resource with a prefix or by the very name.
func TestPlainProtocol(t *testing.T) {
	t.Parallel()
	onEachOf(t, map[string]string{"a prefix": "", "no prefix": lock.NoPrefix}, func(s *setup, prefix string) {
		s = s.with(lock.Config{Prefix: prefix}).on(s.res)
		expect.Equal(s, "the key is the resource", s.key == s.res, prefix == lock.NoPrefix)
		expect.Need(s, s.takePlain("c0ffee", 10*time.Second), "want a free lock taken")
		busy := s.refuse("waiter")
		expect.That(s, busy.Foreign && busy.Holder == "another program" && busy.Since.IsZero() && busy.Position == 1,
			"want a foreign holder of unknown age and a position, have %+v", busy)
		s.wantLeft("the other program's lock", 9*time.Second, 10*time.Second, busy.Remaining)
		expect.That(s, !strings.Contains(busy.Error(), "c0ffee"), "want the token kept secret, have %v", busy)
		s.releasePlain("c0ffee")

		held := s.take("waiter")
		expect.That(s, !s.takePlain("c0ffee", time.Second), "want the plain program excluded by a holder")
		s.join("next")
		s.handOff(held, "next")
		expect.That(s, !s.takePlain("c0ffee", time.Second), "want the plain program excluded by a reservation")
		s.leave("next")
		expect.That(s, s.takePlain("c0ffee", time.Minute), "want a free lock taken")
		if busy := s.refuse(""); !busy.Since.IsZero() { // what is remembered of our last lease says nothing of it
			s.Errorf("want no age of a foreign holder, have %v", busy.Since)
		}
	})
}

// TestForeignValueWithoutTTL never ends, and is never ours to end.
func TestForeignValueWithoutTTL(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for _, value := range []string{"1", "", "siding", "siding-reserved"} {
			expect.OK(s, s.rdb.Set(s.Context(), s.key, value, 0).Err())
			busy := s.refuse("waiter")
			expect.That(s, busy.Foreign && busy.Remaining == 0, "%q: want a foreign holder without an end, have %+v", value, busy)
			expect.Equal(s, "the foreign value", s.rdb.Get(s.Context(), s.key).Val(), value)
			expect.Equal(s, fmt.Sprintf("ttl of %q, which stays", value), s.rdb.PTTL(s.Context(), s.key).Val(), -1)
		}
	})
}

// TestWrongTypeOfKey is an error of its own, and nothing is overwritten.
func TestWrongTypeOfKey(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		ctx := s.Context()
		held := s.take("")
		s.expire()
		s.rdb.HSet(ctx, s.key, "field", "value")
		for what, call := range map[string]func() error{
			"acquire":           func() error { _, err := s.Acquire(ctx, s.res, nil); return err },
			"acquire as waiter": func() error { _, err := s.ask("w"); return err },
			"renew":             func() error { return held.Renew(ctx) },
		} {
			if err := call(); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || errors.Is(err, lock.ErrBusy) || errors.Is(err, lock.ErrLost) {
				s.Errorf("%s: want WRONGTYPE that is neither busy nor lost, have %v", what, err)
			}
		}
		wantBroken(s, "release", held.Release(ctx))
		expect.Equal(s, "the hash", s.rdb.HGet(ctx, s.key, "field").Val(), "value")
		expect.Equal(s, "queues for a lock that is none", s.rdb.Exists(ctx, s.row).Val(), 0)
	})
}

// TestWrongTypeOfCompanion: a companion key that is not ours is replaced, so that the lock works.
func TestWrongTypeOfCompanion(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		ctx := s.Context()
		for _, companion := range []string{s.fence, s.row, "{" + s.key + "}:lines", "{" + s.key + "}:freed"} {
			s.rdb.HSet(ctx, companion, "field", "value")
			held := s.take("w1")
			s.join("w2")
			s.handOff(held, "w2")
			s.release(s.take("w2"))
		}
	})
}
