package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock/locktest"
)

func acquire(t *testing.T, client *lease.Client, r lease.Request) *lease.Lease {
	t.Helper()
	held, busy, err := client.Ask(t.Context(), r)
	expect.Need(t, busy == nil && err == nil, "want the lock, have %v and %v", busy, err)
	held.Start(func() {})
	return held
}

// A lease that is not renewed may be held for a day, and have a context for each request. It keeps those that have not ended.
func TestContextsThatHaveEnded(t *testing.T) {
	t.Parallel()
	client := expect.Value(lease.New(locktest.NewMemory(), lease.Config{}))(t)
	t.Cleanup(client.Close)
	held := acquire(t, client, lease.Request{Resource: "order:1", TTL: time.Hour, NoRenew: true})
	for n := range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		_ = held.Context(ctx)
		if n%100 != 0 {
			cancel()
		}
		defer cancel() // ten are to live until the end
	}
	expect.Eventually(t, "only the 10 contexts that have not ended", func() bool { return held.Works() == 10 })
	expect.OK(t, held.Release(t.Context()))
}

// Work that goes on after the end of an adopted lease, and then releases what it took again, is one like any other still.
func TestReleaseAfterTheEndOfAnAdoptedLease(t *testing.T) {
	t.Parallel()
	client := expect.Value(lease.New(locktest.NewMemory(), lease.Config{}))(t)
	t.Cleanup(client.Close)
	adopted := client.Adopt("order:1", client.Key("order:1"), "siding:token:holder", 1, func() time.Time { return time.Now().Add(time.Minute) })
	ctx := context.WithoutCancel(adopted.Context(t.Context()))
	again := expect.Value(client.Reenter(ctx, "order:1", true))(t)
	adopted.End()
	_ = again.Release(t.Context())
	held, err := client.Reenter(ctx, "order:1", true)
	expect.That(t, held == nil && err == nil, "want it to be asked for, have %v, %v", held, err)
}
