package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock/locktest"
)

// suspend makes it look as if the machine had slept for d since the lease's last renewal. The wall
// clock went on, and the monotonic one stood still. No function of package time makes such a time.
// So suspend turns back the seconds in the first word of the time, which has them if there is a
// monotonic reading.
func suspend(t *testing.T, held *lease.Lease, d time.Duration) {
	t.Helper()
	before := held.StartedAt()
	start := before
	*(*uint64)(unsafe.Pointer(&start)) -= uint64(d/time.Second) << 30
	expect.Need(t, start.Sub(before) == 0 && start.Round(0).Sub(before.Round(0)) == -d, "package time keeps its times in another way now")
	held.SetStart(start)
}

// TestSuspendedMachine: the machine sleeps for longer than the TTL, which the monotonic clock does
// not show. The lease is then not trusted.
func TestSuspendedMachine(t *testing.T) {
	t.Parallel()
	client := expect.Value(lease.New(locktest.NewMemory(), lease.Config{TTL: time.Hour}))(t)
	for _, tc := range []struct {
		name string
		end  func(*testing.T, *lease.Lease) error
	}{
		{"renew", func(t *testing.T, l *lease.Lease) error { t.Helper(); return l.Renew(t.Context()) }},
		{"release", func(t *testing.T, l *lease.Lease) error { t.Helper(); return l.Release(t.Context()) }},
		{"context", func(t *testing.T, l *lease.Lease) error { t.Helper(); return context.Cause(l.Context(t.Context())) }},
	} {
		held := acquire(t, client, lease.Request{Resource: "order:1"})
		suspend(t, held, 30*time.Minute)
		expect.That(t, !held.Deadline().IsZero(), "%s: want a lease that is still good after half its TTL", tc.name)
		suspend(t, held, 30*time.Minute)
		expect.That(t, held.Deadline().IsZero(), "%s: want no valid lease after its TTL", tc.name)
		if err := tc.end(t, held); !errors.Is(err, store.ErrLost) {
			t.Errorf("%s: want ErrLost, have %v", tc.name, err)
		}
		_ = held.Release(t.Context())
	}
}

// TestSuspendedMachineWithWork: the context of the work ends with the next renewal, or when that would be. A long TTL of the lease
// alone changes nothing for one that is not renewed.
func TestSuspendedMachineWithWork(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ttl     time.Duration // of the Client
		request lease.Request
	}{
		"renewed":     {time.Hour, lease.Request{}},
		"not renewed": {time.Minute, lease.Request{TTL: time.Hour, NoRenew: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := expect.Value(lease.New(locktest.NewMemory(), lease.Config{TTL: tc.ttl, RenewEvery: 200 * time.Millisecond}))(t)
			tc.request.Resource = "order:1"
			held := acquire(t, client, tc.request)
			work := held.Context(t.Context())
			suspend(t, held, time.Hour)
			expect.Is(t, "cause", expect.Ended(t, work), store.ErrLost)
			_ = held.Release(t.Context())
		})
	}
}
