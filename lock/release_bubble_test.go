package lock_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// TestReleaseJoinsTheRenewal releases while a renewal is under way, which has
// reached Redis and is answered 2 s later.
func TestReleaseJoinsTheRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		l.redis.Set(locktest.Once(locktest.Renew, 1, locktest.Slow(2*time.Second)))
		time.Sleep(6 * time.Second)
		l.release(t)
		have := l.redis.SentAt(locktest.Release, l.start)
		expect.That(t, len(have) == 1 && have[0] >= 7*time.Second, "want one release after the renewal had ended at 7s, have %v", have)
		time.Sleep(time.Minute)
		expect.Equal(t, "the last step", l.redis.last(t).Step, locktest.Release)
	})
}

// TestReleaseInTimeOfAHangingRenewal: the work ended within the lease, which is what counts. The
// deadline passes during the wait for the renewal. That is no loss, as Redis then finds the lock
// still ours.
func TestReleaseInTimeOfAHangingRenewal(t *testing.T) {
	t.Parallel()
	for _, network := range []locktest.Fault{locktest.BlackHole, locktest.OwnTimeout(9500 * time.Millisecond), locktest.Slow(9500 * time.Millisecond)} {
		synctest.Test(t, func(t *testing.T) {
			l := newLeased(t)
			l.redis.Set(locktest.Once(locktest.Renew, 1, network))
			work := l.Context(t.Context())
			time.Sleep(13 * time.Second)
			l.wantAlive(t, work)
			l.release(t)
			have := time.Since(l.start)
			expect.That(t, have >= 14*time.Second, "want the renewal joined after 14s, have %v", have)
			cause := context.Cause(work)
			expect.That(t, errors.Is(cause, context.Canceled), "want the context ended by the release, have %v", cause)
		})
	}
}

// TestReleaseRacesRenewal meets every order of a release and a renewal of the
// same instant.
func TestReleaseRacesRenewal(t *testing.T) {
	t.Parallel()
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			l := newLeased(t)
			time.Sleep(5 * time.Second)
			l.release(t)
			time.Sleep(time.Minute)
			expect.Equal(t, "the last step", l.redis.last(t).Step, locktest.Release)
			l.redis.wantFree(t)
		})
	}
}

// TestReleaseThatFails reports the failure, which is not a loss, and tries again until the store
// answers. The next then has the lock at once.
func TestReleaseThatFails(t *testing.T) {
	t.Parallel()
	full := func(context.Context, string, func() error) error { return serverError("MISCONF no disk") }
	for _, network := range []locktest.Fault{locktest.Refuse, locktest.BlackHole, full} {
		synctest.Test(t, func(t *testing.T) {
			l := newLeased(t)
			l.redis.Set(network)
			start := time.Now()
			wantBroken(t, "release", l.Release(t.Context()))
			took := time.Since(start)
			expect.That(t, took <= 5*time.Second, "want a bounded release, have %v", took)
			wantBroken(t, "again", l.Release(t.Context()))
			time.Sleep(3 * time.Second)
			l.redis.Set(locktest.Fine)
			time.Sleep(4 * time.Second) // a call that is not answered takes three
			l.redis.wantFree(t)
			l.release(t) // which does nothing
			sent := len(l.redis.SentAt(locktest.Release, l.start))
			time.Sleep(time.Minute)
			expect.Equal(t, "releases, as none is sent after the one that was answered", len(l.redis.SentAt(locktest.Release, l.start)), sent)
		})
	}
}

// TestReleaseIsTriedAgainByTheCaller: a release is not tried again in the background after an error
// that does not pass by itself. Nor is any once the Locker is closed. The caller's second call does
// it.
func TestReleaseIsTriedAgainByTheCaller(t *testing.T) {
	t.Parallel()
	type row struct {
		fault  locktest.Fault
		closed bool
	}
	inBubbles(t, map[string]row{
		"does not pass": {func(context.Context, string, func() error) error { return permanentError{} }, false},
		"closed":        {locktest.Refuse, true},
	}, func(t bubble, tc row) {
		l := newAbandoned(t)
		if tc.closed {
			l.locker.Close()
		}
		l.redis.Set(tc.fault)
		for range 2 {
			wantBroken(t, "release", l.Release(t.Context()))
		}
		l.redis.Set(locktest.Fine)
		l.release(t)
		l.redis.wantFree(t)
		l.release(t)
		expect.Equal(t, "releases, as none is sent after the one that was answered", len(l.redis.SentAt(locktest.Release, l.start)), 3)
	})
}

type permanentError struct{}

func (permanentError) Error() string { return "no permission" }
func (permanentError) Passing() bool { return false }

// TestStoreExecutesAnOldAcquire: the store stands still for twice the TTL. Then it executes an acquire
// whose caller has given up, after all the releases of that caller. One more release frees the lock.
func TestStoreExecutesAnOldAcquire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var acquire func() error
		f.Set(func(ctx context.Context, step string, act func() error) error {
			if step == locktest.Acquire {
				acquire = act
			}
			return locktest.BlackHole(ctx, step, act)
		})
		_, err := lockerOn(t, f.Store).Acquire(t.Context(), "order:1", nil)
		wantBroken(t, "acquire", err)
		time.Sleep(30 * time.Second)
		f.Set(locktest.Fine)
		if err := acquire(); err != nil || f.get() == "" {
			t.Fatalf("want the lock taken, have %q, error %v", f.get(), err)
		}
		time.Sleep(4 * time.Second) // a call that is not answered takes three
		f.wantFree(t)
	})
}

// TestReleaseIsTriedAgainForAMinute: a release is sent again until the lock has run out and a minute
// has passed, or until the Locker is closed.
func TestReleaseIsTriedAgainForAMinute(t *testing.T) {
	t.Parallel()
	for _, closes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newAbandoned(t)
			l.redis.Set(locktest.Refuse)
			wantBroken(t, "release", l.Release(t.Context()))
			if closes {
				l.locker.Close()
			} else {
				time.Sleep(time.Minute)
			}
			sent := len(l.redis.SentAt(locktest.Release, l.start))
			expect.That(t, closes || sent >= 100, "want it tried all the while, have %d releases sent", sent)
			time.Sleep(time.Minute)
			expect.Equal(t, "releases, as none is sent any more", len(l.redis.SentAt(locktest.Release, l.start)), sent)
		})
	}
}

// TestReleaseFromManyGoroutines sends one release.
func TestReleaseFromManyGoroutines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		l.redis.Set(locktest.Slow(10 * time.Millisecond))
		time.Sleep(5 * time.Second)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		expect.Equal(t, "releases sent", len(l.redis.SentAt(locktest.Release, l.start)), 1)
	})
}

// TestHold: Do tells of a loss whatever its function says, before all else, and of no failure of the release alone.
func TestHold(t *testing.T) {
	t.Parallel()
	failed := errors.New("no stock")
	type row struct {
		work func(context.Context, *fake) error
		want []error // the last one is said after the loss
	}
	inBubbles(t, map[string]row{
		"success":       {func(context.Context, *fake) error { return nil }, nil},
		"its own error": {func(context.Context, *fake) error { return failed }, []error{failed}},
		"lost, and it says success": {func(ctx context.Context, f *fake) error {
			f.Set(locktest.BlackHole)
			<-ctx.Done()
			f.Set(locktest.Fine)
			return nil
		}, []error{lock.ErrLost}},
		"lost, and it fails": {
			func(ctx context.Context, f *fake) error { f.put("another"); <-ctx.Done(); return failed },
			[]error{lock.ErrLost, failed},
		},
		"lost before anybody noticed": {
			func(_ context.Context, f *fake) error { f.put("another"); return nil },
			[]error{lock.ErrLost},
		},
		"lost, and the release fails, too": {
			func(ctx context.Context, f *fake) error { f.Set(locktest.BlackHole); <-ctx.Done(); return nil },
			[]error{lock.ErrLost, context.DeadlineExceeded},
		},
		"lost, and both fail": {
			func(ctx context.Context, f *fake) error { f.Set(locktest.Refuse); <-ctx.Done(); return failed },
			[]error{lock.ErrLost, locktest.ErrNetwork, failed},
		},
		"held for too long, and the release fails, too": {
			func(ctx context.Context, f *fake) error { <-ctx.Done(); f.Set(locktest.Refuse); return nil },
			[]error{lock.ErrLost, locktest.ErrNetwork},
		},
		"a release that fails is not the work's failure": {
			func(_ context.Context, f *fake) error { f.Set(locktest.Refuse); return nil },
			nil,
		},
	}, func(t bubble, tc row) {
		f := newFake()
		locker := lockerOn(t, f)
		defer locker.Close()
		err := locker.Do(t.Context(), "order:1", &lock.Options{MaxHold: 2 * time.Minute}, func(ctx context.Context) error {
			expect.That(t, lock.Fence(ctx, "order:1") != 0, "want a fencing token")
			return tc.work(ctx, f)
		})
		expect.That(t, tc.want != nil || err == nil, "want no error, have %v", err)
		for _, want := range tc.want {
			expect.That(t, errors.Is(err, want), "want %v, have %v", want, err)
		}
		if err != nil && len(tc.want) > 1 {
			said := err.Error()
			loss := strings.Index(said, "lease lost")
			expect.That(t, loss >= 0 && loss <= strings.Index(said, tc.want[len(tc.want)-1].Error()), "want the loss first, have %q", said)
		}
	})
}

// TestHoldReleasesWhateverHappens leaves fn by all its ways out.
func TestHoldReleasesWhateverHappens(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]func(){
		"panic":  func() { panic("boom") },
		"goexit": runtime.Goexit,
	}, func(t bubble, leave func()) {
		f := newFake()
		locker := lockerOn(t, f)
		var gone sync.WaitGroup
		gone.Go(func() {
			defer func() { _ = recover() }()
			_ = locker.Do(t.Context(), "order:1", nil, func(context.Context) error { leave(); return nil })
		})
		gone.Wait()
		f.wantFree(t)
	})
}

// timeouts fails the first release, and remembers for how long each was to keep the lock for the next.
type timeouts struct {
	lock.Store

	mu   sync.Mutex
	seen []time.Duration
}

func (g *timeouts) Release(ctx context.Context, key, token string, how store.Release) error {
	g.mu.Lock()
	g.seen = append(g.seen, how.Timeout)
	first := len(g.seen) == 1
	g.mu.Unlock()
	if first {
		return io.ErrUnexpectedEOF
	}
	return g.Store.Release(ctx, key, token, how)
}

// TestHandoffTimeoutOfAReleaseThatIsSentAgain: nobody may hear the wake-up of such a release. So
// the lock is not reserved for the whole hand-off timeout.
func TestHandoffTimeoutOfAReleaseThatIsSentAgain(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{5 * time.Second: time.Second, 200 * time.Millisecond: 200 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			g := &timeouts{Store: locktest.NewMemory()}
			locker := expect.Value(lock.New(g, lock.Config{HandoffTimeout: timeout}))(t)
			held := expect.Value(locker.Acquire(t.Context(), "order:1", nil))(t)
			expect.Is(t, "release", held.Release(t.Context()), io.ErrUnexpectedEOF)
			time.Sleep(time.Second)
			locker.Close()
			all := []time.Duration{timeout, want}
			expect.That(t, slices.Equal(g.seen, all), "want timeouts of %v, have %v", all, g.seen)
		})
	}
}
