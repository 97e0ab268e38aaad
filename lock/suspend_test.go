package lock_test

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/sidingq/siding/lock"
)

// suspend makes it look as if the machine had slept for d since the lease's
// last renewal: the wall clock went on, the monotonic one stood still. No
// function of package time makes such a time, so this one turns back the
// seconds in its first word, where those of a time with a monotonic reading are.
func suspend(t *testing.T, lease *lock.Lease, d time.Duration) {
	t.Helper()
	before := lease.Start()
	start := before
	*(*uint64)(unsafe.Pointer(&start)) -= uint64(d/time.Second) << 30
	if start.Sub(before) != 0 || start.Round(0).Sub(before.Round(0)) != -d {
		t.Fatal("package time keeps its times in another way now")
	}
	lease.SetStart(start)
}

// TestSuspendedMachine: after a sleep that is longer than the TTL, of which
// the monotonic clock knows nothing, the lease is not trusted.
func TestSuspendedMachine(t *testing.T) {
	t.Parallel()
	locker, err := lock.New(newFake().Store, lock.Config{TTL: time.Hour, RenewEvery: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		end  func(*testing.T, *lock.Lease) error
	}{
		{"renew", func(t *testing.T, l *lock.Lease) error { t.Helper(); return l.Renew(t.Context()) }},
		{"release", func(t *testing.T, l *lock.Lease) error { t.Helper(); return l.Release(t.Context()) }},
		{"keep", func(t *testing.T, l *lock.Lease) error { t.Helper(); return ended(t, l.Keep(t.Context())) }},
	} {
		lease, err := locker.Acquire(t.Context(), "order:1", nil)
		if err != nil {
			t.Fatal(err)
		}
		suspend(t, lease, 30*time.Minute)
		if !lease.Valid() {
			t.Errorf("%s: want a lease that is still good after half its TTL", tc.name)
		}
		suspend(t, lease, 30*time.Minute)
		if lease.Valid() {
			t.Errorf("%s: want no valid lease after its TTL", tc.name)
		}
		if err := tc.end(t, lease); !errors.Is(err, lock.ErrLost) {
			t.Errorf("%s: want ErrLost, have %v", tc.name, err)
		}
		_ = lease.Release(t.Context())
	}
}
