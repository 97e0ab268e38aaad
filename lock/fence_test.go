package lock_test

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

// TestFenceWhenTheClockStepsBack: what was granted last counts, not the time.
func TestFenceWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		last := time.Now().Add(time.Hour).UnixMicro()
		s.rdb.Set(s.Context(), s.fence, last, time.Minute)
		for _, handedOff := range []bool{false, true, true, false} {
			held := s.take("w")
			expect.Need(s, held.Fence() == last+1, "want %d, have %d", last+1, held.Fence())
			last = held.Fence()
			if handedOff {
				s.join("w")
				s.handOff(held, "w")
			} else {
				s.release(held)
			}
		}
		// A holder that died while others were queued.
		held := s.take("w")
		s.join("first")
		s.expire()
		_ = s.refuse("second")
		s.wantNext("first")
		expect.Equal(s, "fence", s.take("first").Fence(), held.Fence()+1)
	})
}

// TestFenceSurvivesTheLossOfAll is the one test that a counter (INCR) fails.
func TestFenceSurvivesTheLossOfAll(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := setUp(t, server.Client(t), lock.Config{})
	last := s.take("").Fence()
	for range 20 {
		s.rdb.FlushAll(t.Context())
		held := s.take("")
		expect.That(t, held.Fence() > last, "after FLUSHALL: want more than %d, have %d", last, held.Fence())
		last = held.Fence()
	}
	server.Restart(t)
	held := s.take("")
	expect.That(t, held.Fence() > last, "after a restart without data: want more than %d, have %d", last, held.Fence())
}

// TestFenceThatIsGone, as somebody deleted it, or Redis evicted it: a holder whose acquire is sent again gets a new one.
func TestFenceThatIsGone(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		request := store.Request{Key: s.key, Token: "siding:1:x", TTL: time.Minute, FenceTTL: time.Hour}
		for range 2 {
			have := expect.Value(lock.Redis(s.rdb).Acquire(s.Context(), request))(s)
			expect.That(s, have.Taken && have.Fence > 0, "want the lock and a fence, have %+v", have)
			s.rdb.Del(s.Context(), s.fence)
		}
	})
}

// TestFenceIsKeptInDigits: Lua would write 1.79e+15, and lose what follows.
func TestFenceIsKeptInDigits(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		stored := func(form string) {
			s.Helper()
			have := s.rdb.Get(s.Context(), s.fence).Val()
			expect.That(s, regexp.MustCompile(form).MatchString(have), "want it to match %s, have %q", form, have)
		}
		held := s.take("")
		stored("^" + strconv.FormatInt(held.Fence(), 10) + "$")
		s.join("w")
		ticket := s.rdb.ZScore(s.Context(), s.row, s.name("w")).Val()
		expect.That(s, ticket >= float64(held.Fence()), "want a ticket of the time, have %f", ticket)
		s.handOff(held, "w")
		stored("^" + strconv.FormatInt(held.Fence(), 10) + `\*$`)
	})
}

// TestFenceRetention is how long an idle resource is remembered at least,
// reserved or not, and the fence expires.
func TestFenceRetention(t *testing.T) {
	t.Parallel()
	onEachOf(t, map[string]time.Duration{"1s": time.Second, "1m": time.Minute, "24h": 24 * time.Hour}, func(s *setup, retention time.Duration) {
		s = s.with(lock.Config{FenceRetention: retention})
		held := s.take("")
		s.wantTTL(s.fence, retention+14*time.Second, retention+15*time.Second)
		s.release(held)
		s.wantTTL(s.fence, retention, retention+15*time.Second)

		held = s.take("")
		s.join("w")
		s.handOff(held, "w")
		s.wantTTL(s.fence, retention, retention+4*time.Hour)
		s.expire()
		s.take("other")
		s.join("w")
		s.expire()
		_ = s.refuse("third")
		s.wantNext("w")
		s.wantTTL(s.fence, retention, retention+4*time.Hour)
	})
}
