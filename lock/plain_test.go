package lock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
)

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
	if n, err := s.rdb.Eval(s.Context(), compareAndDelete, []string{s.key}, token).Int(); err != nil || n != 1 {
		s.Errorf("want the plain program's own lock deleted, have %d, %v", n, err)
	}
}

// TestPlainProtocol excludes both ways, lock by lock.
func TestPlainProtocol(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		if !s.takePlain("c0ffee", 10*time.Second) {
			s.Fatal("want a free lock taken")
		}
		busy := s.refuse("waiter")
		if !busy.Foreign || busy.Holder != "another program" || !busy.Since.IsZero() || busy.Position != 1 {
			s.Errorf("want a foreign holder of unknown age and a position, have %+v", busy)
		}
		s.wantLeft("the other program's lock", 9*time.Second, 10*time.Second, busy.Remaining)
		if strings.Contains(busy.Error(), "c0ffee") {
			s.Errorf("want the token kept secret, have %v", busy)
		}
		s.releasePlain("c0ffee")

		held := s.take("waiter")
		if s.takePlain("c0ffee", time.Second) {
			s.Error("want the plain program excluded by a holder")
		}
		s.join("next")
		s.handOff(held, "next")
		if s.takePlain("c0ffee", time.Second) {
			s.Error("want the plain program excluded by a reservation")
		}
		s.leave("next")
		if !s.takePlain("c0ffee", time.Minute) {
			s.Error("want a free lock taken")
		}
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
			must(s, s.rdb.Set(s.Context(), s.key, value, 0).Err())
			busy := s.refuse("waiter")
			if !busy.Foreign || busy.Remaining != 0 {
				s.Errorf("%q: want a foreign holder without an end, have %+v", value, busy)
			}
			if have := s.rdb.Get(s.Context(), s.key).Val(); have != value {
				s.Errorf("want %q left alone, have %q", value, have)
			}
			if ttl := s.rdb.PTTL(s.Context(), s.key).Val(); ttl != -1 {
				s.Errorf("%q: want it to stay without expiry, have %v", value, ttl)
			}
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
		if err := held.Release(ctx); err == nil || errors.Is(err, lock.ErrLost) {
			s.Errorf("release: want an error that is not a loss, have %v", err)
		}
		if have := s.rdb.HGet(ctx, s.key, "field").Val(); have != "value" {
			s.Errorf("want the hash left as it was, have %q", have)
		}
		if n := s.rdb.Exists(ctx, s.row).Val(); n != 0 {
			s.Error("want nobody queued for a lock that is none")
		}
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
