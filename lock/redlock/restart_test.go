package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/redlock"
)

// careful are nodes that vote only once all that they may have forgotten has expired.
var careful = redlock.Config{NodeTimeout: patient.NodeTimeout}

// seldom renews so seldom that a rival comes before the holder learns of its loss.
var seldom = lock.Config{TTL: 2 * time.Second, RenewEvery: 900 * time.Millisecond, SafetyMargin: 200 * time.Millisecond}

// bare takes the lock on no more of three nodes than it needs, the first two.
func (f *fleet) bare(cfg redlock.Config) *lock.Lease {
	f.Helper()
	locker := lockerOn(f.T, f.store(cfg), seldom)
	f.servers[2].Kill()
	lease := f.take(locker)
	f.servers[2].Restart(f.T)
	return lease
}

// TestRestartDelay: one of a holder's two nodes forgets the lock, and could vote for a rival while the lease lasts. The rival
// has to wait until the lease has ended.
func TestRestartDelay(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]bool{"kept": true, "not renewed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, 3)
			rival := lockerOn(t, f.store(careful), seldom)
			f.voteForLocksOf(seldom.TTL)
			lease := f.bare(careful)
			if !keep {
				abandon(lease)
			}
			f.servers[0].Restart(t)
			var held *lock.Lease
			err := expect.Until(t.Context(), func() (err error) { // the wait itself gives up after a TTL of errors
				held, err = rival.Acquire(t.Context(), f.Name(), &lock.Options{Wait: lock.Forever, Retry: lock.Fixed(time.Millisecond)})
				return err
			})
			expect.OK(t, err)
			expect.That(t, lease.Deadline().IsZero() || held.Deadline().IsZero(), "want one holder at a time, have two")
			f.release(held)
			_ = lease.Release(t.Context())
		})
	}
}

// TestNewNodes do not vote, and are not changed; a longer delay than the TTL counts.
func TestNewNodes(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	for name, tc := range map[string]struct {
		delay time.Duration
		cfg   lock.Config
	}{"by the ttl": {0, lock.Config{}}, "by the delay": {time.Hour, brief}} {
		cfg := careful
		cfg.RestartDelay = tc.delay
		_, err := lockerOn(t, f.store(cfg), tc.cfg).Acquire(t.Context(), f.Name(), nil)
		wantBroken(t, name, err)
		expect.That(t, err == nil || strings.Count(err.Error(), "started too short a time ago to vote") == 3, "%s: want each node's reason, have %v", name, err)
		f.wantFree()
	}
	f.voteForLocksOf(brief.TTL)
	f.release(f.take(lockerOn(t, f.store(careful), brief)))
}

// TestRestartsOneByOne: a node that restarts does not get the lock back, so when most have,
// the holder is told.
func TestRestartsOneByOne(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	lease := f.take(lockerOn(t, f.store(patient), brief))
	work := lease.Context(t.Context())
	f.servers[0].Restart(t)
	expect.OK(t, lease.Renew(t.Context())) // after one restart
	f.servers[1].Restart(t)
	cause := expect.Ended(t, work)
	expect.That(t, errors.Is(cause, lock.ErrLost) && !errors.Is(cause, context.Canceled), "want ErrLost after two, have %v", cause)
	f.wantFree(0, 1)
	_ = lease.Release(t.Context())
}
