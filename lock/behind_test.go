package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
)

// TestReleaseWakesBehindThoseWhoAreGone: a goroutine stands behind many waiters with names, for
// whom nobody listens. The goroutine is woken at once, and the others keep their positions.
func TestReleaseWakesBehindThoseWhoAreGone(t *testing.T) {
	t.Parallel()
	for _, ahead := range []int{99, 100, 101, 1700} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				s = s.with(lock.Config{TTL: time.Hour}) // no fallback time comes in the test
				held, err := s.Acquire(s.Context(), s.res, nil)
				if err != nil {
					s.Fatal(err)
				}
				for n := range ahead {
					name := []string{"siding-task:nobody:%d", "siding-task:none:%d", "stepwise %d"}[n%3]
					s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: float64(n + 1), Member: fmt.Sprintf(name, n)})
				}
				got := make(chan error, 1)
				go func() {
					next, err := s.stranger().Acquire(s.Context(), s.res, &lock.Options{Wait: lock.Forever})
					if err == nil {
						err = next.Release(s.Context())
					}
					got <- err
				}()
				poll.Eventually(s.T, "a queued waiter", func() bool { return len(s.queue()) == ahead+1 })
				s.release(held)
				poll.Eventually(s.T, "the waiter to have had the lock", func() bool { return len(got) > 0 })
				if err := <-got; err != nil {
					s.Error(err)
				}
				if have := len(s.queue()); have != ahead {
					s.Errorf("want the %d others queued, have %d", ahead, have)
				}
			})
		})
	}
}
