package lock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
)

// A counter counts the commands that a client sends. Each takes a while: all that are wanted meanwhile can go together, also on
// a busy machine.
type counter struct{ n atomic.Int64 }

func (c *counter) count() {
	c.n.Add(1)
	timer := time.NewTimer(20 * time.Millisecond)
	<-timer.C
}

func (*counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count()
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count()
		return next(ctx, cmds)
	}
}

// TestManyLocksNeedFewCalls: those that are wanted, renewed or released at the same time go together.
func TestManyLocksNeedFewCalls(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		var count counter
		s.rdb.AddHook(&count)
		s = s.with(lock.Config{TTL: 4 * time.Second, RenewEvery: time.Second})
		const locks, few = 100, 25
		leases := make([]*lock.Lease, locks)
		each := func(what string, do func(i int) error) {
			before := count.n.Load()
			var all sync.WaitGroup
			for i := range locks {
				all.Go(func() {
					if err := do(i); err != nil {
						s.Errorf("%s %d: %v", what, i, err)
					}
				})
			}
			all.Wait()
			if n := count.n.Load() - before; n > few {
				s.Errorf("%s: want at most %d calls for %d locks, have %d", what, few, locks, n)
			}
		}
		each("acquire", func(i int) (err error) {
			leases[i], err = s.Acquire(s.Context(), fmt.Sprint(s.res, i), nil)
			return err
		})
		first, before := leases[0].Deadline(), count.n.Load()
		poll.Eventually(s.T, "all to be renewed", func() bool {
			for _, l := range leases {
				if !l.Deadline().After(first.Add(time.Second / 2)) {
					return false
				}
			}
			return true
		})
		if n := count.n.Load() - before; n > few {
			s.Errorf("want at most %d calls to renew %d locks, have %d", few, locks, n)
		}
		each("release", func(i int) error { return leases[i].Release(s.Context()) })
	})
}
