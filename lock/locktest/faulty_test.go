package locktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// A wake-up that is lost, or late, holds up neither the next one nor Close.
func TestFaultyWakeUpHoldsUpNothing(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]locktest.Fault{
		"black hole": locktest.BlackHole, "own timeout": locktest.OwnTimeout(time.Hour), "slow": locktest.Slow(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := locktest.NewMemory()
				holder := expect.Value(lock.New(memory, lock.Config{}))(t)
				defer holder.Close()
				store, network := locktest.Faulty(memory)
				locker := expect.Value(lock.New(store, lock.Config{}))(t)
				network.Set(locktest.Once(locktest.Wake, 1, fault))
				start, served := time.Now(), make(chan time.Duration, 2)
				for _, resource := range []string{"a", "b"} {
					lease := expect.Value(holder.Acquire(t.Context(), resource, nil))(t)
					go func() {
						_, err := locker.Acquire(t.Context(), resource, &lock.Options{Wait: lock.Forever})
						expect.That(t, err == nil, "%s: %v", resource, err)
						served <- time.Since(start)
					}()
					synctest.Wait()
					expect.OK(t, lease.Release(t.Context()))
					synctest.Wait()
				}
				expect.Equal(t, "time until the first has its lock", <-served, 0)
				<-served // at the time of its own fallback
				start = time.Now()
				locker.Close()
				expect.Equal(t, "time of Close", time.Since(start), 0)
			})
		})
	}
}
