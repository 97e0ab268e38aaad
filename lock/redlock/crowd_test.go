package redlock_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
)

// believers are all who think that they hold the lock.
type believers struct {
	mu    sync.Mutex
	lease *lock.Lease
	count int
}

// enter notes a holder, and returns an error if there is one already. A holder that comes late, and
// whose lease has ended since, does not count.
func (b *believers) enter(lease *lock.Lease) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lease != nil && !b.lease.Deadline().IsZero() && !lease.Deadline().IsZero() {
		return errors.New("want one holder at a time, have two")
	}
	b.lease = lease
	b.count++
	return nil
}

func (b *believers) leave(lease *lock.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lease == lease {
		b.lease = nil
	}
}

// below returns a random time that is shorter than limit.
func below(rng *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(limit)))
}

// TestCrowdUnderFaults: nodes are killed, restarted at once and stopped, sometimes most of them. At
// most one of many processes believes that it holds the lock. Afterwards each gets it.
func TestCrowdUnderFaults(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	const processes, faults = 4, 8
	seed := verify.Seed(t)
	f := startFleet(t, 5)
	f.voteForLocksOf(brief.TTL)
	quick := careful // so that much happens
	quick.NodeTimeout = 200 * time.Millisecond
	ctx, over := ctxOf(t), make(chan struct{})
	var b believers
	var all sync.WaitGroup
	for number := range processes {
		locker := lockerOn(t, f.store(quick), brief)
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(number)))
			for last := false; !last; {
				select {
				case <-over:
					last = true // once more, without faults
				default:
				}
				lease, err := locker.Acquire(ctx, f.Name(), &lock.Options{Wait: lock.Forever, Retry: lock.Fixed(5 * time.Millisecond)})
				if err != nil {
					expect.That(t, !last, "want the lock after all faults, have %v", err)
					continue
				}
				if err := b.enter(lease); err != nil {
					t.Error(err)
				}
				takes := below(rng, 30*time.Millisecond)
				if rng.IntN(10) == 0 {
					takes = brief.TTL + below(rng, brief.TTL)
				}
				_ = sleep.For(lease.Context(ctx), takes)
				b.leave(lease)
				_ = lease.Release(ctx)
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, processes))
	for range faults {
		i := rng.IntN(len(f.servers))
		if rng.IntN(2) == 0 {
			expect.OK(t, f.servers[i].Revive(ctx))
		}
		f.servers[i].Pause()
		_ = sleep.For(ctx, below(rng, brief.TTL))
		f.servers[i].Resume()
		_ = sleep.For(ctx, below(rng, brief.TTL))
	}
	f.voteForLocksOf(brief.TTL)
	close(over)
	all.Wait()
	expect.That(t, b.count > processes, "want locks taken between the faults, have none")
	t.Logf("taken %d times", b.count)
}
