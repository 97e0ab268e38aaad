package lock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
)

// In one process, callers that poll and callers in the wait queue do not wait for one another.
func TestPollersDoNotSlowDownTheQueued(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		const want = 40
		locker := s.stranger()
		ctx, cancel := context.WithCancel(s.Context())
		over := make(chan struct{}, 3)
		var holds atomic.Int32
		for _, opts := range []*lock.Options{{Wait: lock.Forever}, {Wait: lock.Forever}, {Wait: lock.Forever, Retry: lock.Fixed(10 * time.Second)}} {
			go func() {
				defer func() { over <- struct{}{} }()
				for ctx.Err() == nil {
					_ = locker.Do(ctx, s.res, opts, func(ctx context.Context) error {
						holds.Add(1)
						return sleep.For(ctx, 5*time.Millisecond)
					})
				}
			}()
		}
		// Those in the wait queue need some ms each; behind the one that polls it would be seconds each, and minutes in all.
		poll.Eventually(s.T, "the lock to be held often", func() bool { return holds.Load() >= want })
		cancel()
		for range 3 {
			<-over
		}
	})
}
