package lock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
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
func (f *fake) last(tb testing.TB) locktest.Sent {
	tb.Helper()
	sent := f.Sent()
	expect.Need(tb, len(sent) != 0, "want a step, have none")
	return sent[len(sent)-1]
}

// wantFree checks that nobody has the lock.
func (f *fake) wantFree(tb testing.TB) {
	tb.Helper()
	expect.Equal(tb, "what a free lock holds", f.get(), "")
}

// lockerOn returns a locker of a process of its own, with the default configuration.
func lockerOn(tb testing.TB, store lock.Store) *lock.Locker {
	tb.Helper()
	locker := expect.Value(lock.New(store, lock.Config{}))(tb)
	tb.Cleanup(locker.Close)
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

func newLeased(tb testing.TB) *leased {
	tb.Helper()
	return newLeasedAs(tb, nil)
}

func newLeasedAs(tb testing.TB, opts *lock.Options) *leased {
	tb.Helper()
	f := newFake()
	l := &leased{redis: f, start: time.Now(), locker: lockerOn(tb, f.Store)}
	var err error
	l.Lease, err = l.locker.Acquire(tb.Context(), "order:1", opts)
	expect.OK(tb, err)
	return l
}

// newAbandoned is newLeased for a lease that is not renewed.
func newAbandoned(tb testing.TB) *leased {
	tb.Helper()
	l := newLeased(tb)
	abandon(l.Lease)
	return l
}

// release releases the lease, which must still be held.
func (l *leased) release(tb testing.TB) {
	tb.Helper()
	expect.OK(tb, l.Release(tb.Context()))
}

// wantEnd waits until work ends and checks when it does and why.
func (l *leased) wantEnd(tb testing.TB, work context.Context, after time.Duration) { //nolint:revive // tb first, as in every helper
	tb.Helper()
	timer := time.NewTimer(10 * time.Minute)
	defer timer.Stop()
	select {
	case <-work.Done():
	case <-timer.C:
		tb.Fatal("want the context ended, have it alive")
	}
	expect.Equal(tb, "time until the end of the context", time.Since(l.start), after)
	wantLost(tb, "cause", context.Cause(work))
	expect.That(tb, l.Deadline().IsZero(), "want a lost lease, have a valid one")
}

// wantTrustedFor checks that the lease, which is not renewed, is valid for so long from now on.
func (l *leased) wantTrustedFor(tb testing.TB, d time.Duration) {
	tb.Helper()
	time.Sleep(d - 1)
	expect.That(tb, !l.Deadline().IsZero(), "want a valid lease just before %v", time.Since(l.start))
	time.Sleep(time.Nanosecond)
	expect.That(tb, l.Deadline().IsZero(), "want no valid lease after %v", time.Since(l.start))
}

// wantRenewals checks when renewals were sent.
func (l *leased) wantRenewals(tb testing.TB, want ...time.Duration) {
	tb.Helper()
	have := l.redis.SentAt(locktest.Renew, l.start)
	expect.That(tb, slices.Equal(have, want), "renewals: want %v, have %v", want, have)
}

// wantAlive checks that work goes on.
func (l *leased) wantAlive(tb testing.TB, work context.Context) { //nolint:revive // tb first, as in every helper
	tb.Helper()
	if err := context.Cause(work); err != nil {
		tb.Errorf("want the context alive after %v, have %v", time.Since(l.start), err)
	}
	expect.That(tb, !l.Deadline().IsZero(), "want a valid lease after %v", time.Since(l.start))
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
