package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// A fake is a store in memory, behind a network that fails. The tests in bubbles use its lock of
// order:1.
type fake struct {
	lock.Store
	*locktest.Network

	memory *locktest.Memory
}

func newFake() *fake {
	f := &fake{memory: locktest.NewMemory()}
	f.Store, f.Network = locktest.Faulty(f.memory)
	return f
}

// with sets the fault of the network.
func (f *fake) with(network locktest.Fault) *fake {
	f.Set(network)
	return f
}

// put stores a value as somebody else would; "" deletes the key.
func (f *fake) put(value string) { f.memory.Put("lock:order:1", value, time.Hour) }

// get returns the value, "" when there is none or its time has passed.
func (f *fake) get() string { return f.memory.Value("lock:order:1") }

// last returns the last step of all.
func (f *fake) last(t *testing.T) locktest.Sent {
	t.Helper()
	sent := f.Sent()
	if len(sent) == 0 {
		t.Fatal("want a step, have none")
	}
	return sent[len(sent)-1]
}

// wantFree checks that nobody has the lock.
func (f *fake) wantFree(t *testing.T) {
	t.Helper()
	if have := f.get(); have != "" {
		t.Errorf("want a free lock, have %q", have)
	}
}

// lockerOn returns a locker of a process of its own, with the default configuration.
func lockerOn(t *testing.T, store lock.Store) *lock.Locker {
	t.Helper()
	locker, err := lock.New(store, lock.Config{})
	must(t, err)
	t.Cleanup(locker.Close)
	return locker
}

// leased is a lease from a fake, taken at start with the default configuration. It is trusted for
// 14 s, renewed every 5 s, and expires after 15 s.
type leased struct {
	*lock.Lease
	redis  *fake
	locker *lock.Locker
	start  time.Time
}

func newLeased(t *testing.T) *leased {
	t.Helper()
	return newLeasedAs(t, nil)
}

func newLeasedAs(t *testing.T, opts *lock.Options) *leased {
	t.Helper()
	f := newFake()
	l := &leased{redis: f, start: time.Now(), locker: lockerOn(t, f.Store)}
	var err error
	l.Lease, err = l.locker.Acquire(t.Context(), "order:1", opts)
	must(t, err)
	return l
}

// newAbandoned is newLeased for a lease that is not renewed.
func newAbandoned(t *testing.T) *leased {
	t.Helper()
	l := newLeased(t)
	abandon(l.Lease)
	return l
}

// release releases the lease, which must still be held.
func (l *leased) release(t *testing.T) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatalf("release: %v", err)
	}
}

// wantEnd waits until work ends and checks when it does and why.
func (l *leased) wantEnd(t *testing.T, work context.Context, after time.Duration) { //nolint:revive // t first, as in every helper
	t.Helper()
	timer := time.NewTimer(10 * time.Minute)
	defer timer.Stop()
	select {
	case <-work.Done():
	case <-timer.C:
		t.Fatal("want the context ended, have it alive")
	}
	if have := time.Since(l.start); have != after {
		t.Errorf("want the context ended after %v, have %v", after, have)
	}
	wantLost(t, "cause", context.Cause(work))
	if !l.Deadline().IsZero() {
		t.Error("want a lost lease, have a valid one")
	}
}

// wantTrustedFor checks that the lease, which is not renewed, is valid for so long from now on.
func (l *leased) wantTrustedFor(t *testing.T, d time.Duration) {
	t.Helper()
	time.Sleep(d - 1)
	if l.Deadline().IsZero() {
		t.Errorf("want a valid lease just before %v", time.Since(l.start))
	}
	time.Sleep(time.Nanosecond)
	if !l.Deadline().IsZero() {
		t.Errorf("want no valid lease after %v", time.Since(l.start))
	}
}

// wantRenewals checks when renewals were sent.
func (l *leased) wantRenewals(t *testing.T, want ...time.Duration) {
	t.Helper()
	if diff := cmp.Diff(want, l.redis.SentAt(locktest.Renew, l.start)); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
}

// wantAlive checks that work goes on.
func (l *leased) wantAlive(t *testing.T, work context.Context) { //nolint:revive // t first, as in every helper
	t.Helper()
	if err := context.Cause(work); err != nil {
		t.Errorf("want the context alive after %v, have %v", time.Since(l.start), err)
	}
	if l.Deadline().IsZero() {
		t.Errorf("want a valid lease after %v", time.Since(l.start))
	}
}

// abandon leaves a lease as a holder does that has died: nobody renews or releases it.
func abandon(held interface {
	Context(ctx context.Context) context.Context
},
) {
	ctx, end := context.WithCancel(context.Background())
	end()
	held.Context(ctx)
}
