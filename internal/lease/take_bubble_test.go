package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock/locktest"
)

// A renewals notes when a lock is renewed.
type renewals struct {
	*locktest.Memory

	at    []time.Duration // since begin
	begin time.Time
}

func (r *renewals) Renew(ctx context.Context, key, token string, ttl, fenceTTL time.Duration) error {
	r.at = append(r.at, time.Since(r.begin))
	return r.Memory.Renew(ctx, key, token, ttl, fenceTTL)
}

// A lock that came with a prefetched task was taken some time before its handler starts. The first
// renewal, by which the holder learns of a revocation, does not come later for that.
func TestRenewalOfALockTakenBefore(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]time.Duration{
		"at once": 0, "prefetched": 200 * time.Millisecond, "after the first renewal was due": 6 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &renewals{Memory: locktest.NewMemory(), begin: time.Now()}
				client, err := lease.New(r, lease.Config{}) // renews every 5 s
				if err != nil {
					t.Fatal(err)
				}
				const token = "siding:1:a task"
				taken, err := r.Acquire(t.Context(), store.Request{Key: client.Key("order:1"), Token: token, TTL: 15 * time.Second, FenceTTL: time.Minute})
				if err != nil || !taken.Taken {
					t.Fatalf("want the lock, have %+v, %v", taken, err)
				}
				start := time.Now()
				time.Sleep(late)
				held, err := client.Take(t.Context(), store.Grant{Resource: "order:1", Token: token, Fence: taken.Fence, HandOff: -1, Start: start})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(max(0, 5*time.Second-late) + time.Millisecond)
				synctest.Wait()
				if want := max(5*time.Second, late); len(r.at) != 1 || r.at[0] != want {
					t.Errorf("want a renewal after %v, have %v", want, r.at)
				}
				if err := held.Release(t.Context()); err != nil {
					t.Error(err)
				}
				client.Close()
			})
		})
	}
}
