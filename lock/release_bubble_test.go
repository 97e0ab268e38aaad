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
		if have := l.redis.SentAt(locktest.Release, l.start); len(have) != 1 || have[0] < 7*time.Second {
			t.Errorf("want one release after the renewal had ended at 7s, have %v", have)
		}
		time.Sleep(time.Minute)
		if have := l.redis.last(t).Step; have != locktest.Release {
			t.Errorf("want nothing sent after the release, have %s", have)
		}
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
			if have := time.Since(l.start); have < 14*time.Second {
				t.Errorf("want the renewal joined after 14s, have %v", have)
			}
			if cause := context.Cause(work); !errors.Is(cause, context.Canceled) {
				t.Errorf("want the context ended by the release, have %v", cause)
			}
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
			if have := l.redis.last(t).Step; have != locktest.Release {
				t.Errorf("want nothing sent after the release, have %s", have)
			}
			if have := l.redis.get(); have != "" {
				t.Errorf("want a free lock, have %q", have)
			}
		})
	}
}

func TestReleaseIsSentAfterTheCallersContextEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Release(ctx); err != nil {
			t.Errorf("want no error, have %v", err)
		}
		if have := l.redis.get(); have != "" {
			t.Errorf("want a free lock, have %q", have)
		}
		if have := l.redis.last(t); have.Dead || have.Bound <= 0 || have.Bound > 5*time.Second {
			t.Errorf("want a live and bounded call, have %+v", have)
		}
	})
}

// TestReleaseThatFails reports the failure, which is not a loss, and tries again until the store
// answers. The next then has the lock at once.
func TestReleaseThatFails(t *testing.T) {
	t.Parallel()
	for _, network := range []locktest.Fault{locktest.Refuse, locktest.BlackHole} {
		synctest.Test(t, func(t *testing.T) {
			l := newLeased(t)
			l.redis.Set(network)
			start := time.Now()
			if err := l.Release(t.Context()); err == nil || errors.Is(err, lock.ErrLost) {
				t.Errorf("want an error of the network, have %v", err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("want a bounded release, have %v", took)
			}
			if err := l.Release(t.Context()); err == nil || errors.Is(err, lock.ErrLost) {
				t.Errorf("again: want an error of the network, have %v", err)
			}
			time.Sleep(3 * time.Second)
			l.redis.Set(locktest.Fine)
			time.Sleep(4 * time.Second) // a call that is not answered takes three
			if have := l.redis.get(); have != "" {
				t.Errorf("want the lock free as soon as the store answers again, have %q", have)
			}
			l.release(t) // which does nothing
			sent := len(l.redis.SentAt(locktest.Release, l.start))
			time.Sleep(time.Minute)
			if have := len(l.redis.SentAt(locktest.Release, l.start)); have != sent {
				t.Errorf("want no release sent after the one that was answered, have %d more", have-sent)
			}
		})
	}
}

// TestReleaseIsTriedAgainByTheCaller: a release is not tried again in the background after an error
// that does not pass by itself. Nor is any once the Locker is closed. The caller's second call does
// it.
func TestReleaseIsTriedAgainByTheCaller(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault  locktest.Fault
		closed bool
	}{
		"does not pass": {func(context.Context, string, func() error) error { return permanentError{} }, false},
		"closed":        {locktest.Refuse, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newAbandoned(t)
				if tc.closed {
					l.locker.Close()
				}
				l.redis.Set(tc.fault)
				for range 2 {
					if err := l.Release(t.Context()); err == nil || errors.Is(err, lock.ErrLost) {
						t.Errorf("want an error of the store, have %v", err)
					}
				}
				l.redis.Set(locktest.Fine)
				l.release(t)
				if have := l.redis.get(); have != "" {
					t.Errorf("want a free lock, have %q", have)
				}
				l.release(t)
				if have := len(l.redis.SentAt(locktest.Release, l.start)); have != 3 {
					t.Errorf("want no release sent after the one that was answered, have %d", have)
				}
			})
		})
	}
}

// TestStoreExecutesAnOldAcquire: the store stands still for twice the TTL. Then it executes an acquire
// whose caller has given up, after all the releases of that caller. One more release frees the lock.
func TestStoreExecutesAnOldAcquire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		locker, err := lock.New(f.Store, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(locker.Close)
		var acquire func() error
		f.Set(func(ctx context.Context, step string, act func() error) error {
			if step == locktest.Acquire {
				acquire = act
			}
			return locktest.BlackHole(ctx, step, act)
		})
		if _, err := locker.Acquire(t.Context(), "order:1", nil); err == nil || errors.Is(err, lock.ErrBusy) {
			t.Fatalf("want an error of the network, have %v", err)
		}
		time.Sleep(30 * time.Second)
		f.Set(locktest.Fine)
		if err := acquire(); err != nil || f.get() == "" {
			t.Fatalf("want the lock taken, have %q, error %v", f.get(), err)
		}
		time.Sleep(4 * time.Second) // a call that is not answered takes three
		if have := f.get(); have != "" {
			t.Errorf("want a free lock, have %q", have)
		}
	})
}

type permanentError struct{}

func (permanentError) Error() string { return "no permission" }
func (permanentError) Passing() bool { return false }

// TestReleaseIsTriedAgainForAMinute: a release is sent again until the lock has run out and a minute
// has passed, or until the Locker is closed.
func TestReleaseIsTriedAgainForAMinute(t *testing.T) {
	t.Parallel()
	for _, closes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newAbandoned(t)
			l.redis.Set(locktest.Refuse)
			if err := l.Release(t.Context()); err == nil {
				t.Error("want an error of the network, have none")
			}
			if closes {
				l.locker.Close()
			} else {
				time.Sleep(time.Minute)
			}
			sent := len(l.redis.SentAt(locktest.Release, l.start))
			if !closes && sent < 100 {
				t.Errorf("want it tried all the while, have %d releases sent", sent)
			}
			time.Sleep(time.Minute)
			if have := len(l.redis.SentAt(locktest.Release, l.start)); have != sent {
				t.Errorf("want no release sent any more, have %d more", have-sent)
			}
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
					t.Errorf("want no error, have %v", err)
				}
			})
		}
		all.Wait()
		if have := len(l.redis.SentAt(locktest.Release, l.start)); have != 1 {
			t.Errorf("want one release sent, have %d", have)
		}
	})
}

// TestLateRelease frees the key, which may still be there, and says that the
// lease had ended.
func TestLateRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newAbandoned(t)
		time.Sleep(14500 * time.Millisecond)
		if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("want ErrLost, have %v", err)
		}
		if have := l.redis.get(); have != "" {
			t.Errorf("want a free lock, have %q", have)
		}
	})
}

func TestHold(t *testing.T) {
	t.Parallel()
	failed := errors.New("no stock")
	for _, tc := range []struct {
		name string
		work func(context.Context, *fake) error
		want []error
	}{
		{"success", func(context.Context, *fake) error { return nil }, nil},
		{"its own error", func(context.Context, *fake) error { return failed }, []error{failed}},
		{
			"lost, and it says success",
			func(ctx context.Context, f *fake) error {
				f.Set(locktest.BlackHole)
				<-ctx.Done()
				f.Set(locktest.Fine)
				return nil
			},
			[]error{lock.ErrLost},
		},
		{
			"lost, and it fails",
			func(ctx context.Context, f *fake) error { f.put("another"); <-ctx.Done(); return failed },
			[]error{lock.ErrLost, failed},
		},
		{
			"lost before anybody noticed",
			func(_ context.Context, f *fake) error { f.put("another"); return nil },
			[]error{lock.ErrLost},
		},
		{
			"lost, and the release fails, too",
			func(ctx context.Context, f *fake) error { f.Set(locktest.BlackHole); <-ctx.Done(); return nil },
			[]error{lock.ErrLost, context.DeadlineExceeded},
		},
		{
			"lost, and both fail",
			func(ctx context.Context, f *fake) error { f.Set(locktest.Refuse); <-ctx.Done(); return failed },
			[]error{lock.ErrLost, locktest.ErrNetwork, failed},
		},
		{
			"held for too long, and the release fails, too",
			func(ctx context.Context, f *fake) error { <-ctx.Done(); f.Set(locktest.Refuse); return nil },
			[]error{lock.ErrLost, locktest.ErrNetwork},
		},
		{
			"a release that fails is not the work's failure",
			func(_ context.Context, f *fake) error { f.Set(locktest.Refuse); return nil },
			nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				locker, err := lock.New(f, lock.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer locker.Close()
				err = locker.Do(t.Context(), "order:1", &lock.Options{MaxHold: 2 * time.Minute}, func(ctx context.Context) error {
					if lock.Fence(ctx, "order:1") == 0 {
						t.Error("want a fencing token")
					}
					return tc.work(ctx, f)
				})
				if tc.want == nil && err != nil {
					t.Errorf("want no error, have %v", err)
				}
				for _, want := range tc.want {
					if !errors.Is(err, want) {
						t.Errorf("want %v, have %v", want, err)
					}
				}
				if err != nil && len(tc.want) > 1 {
					said := err.Error()
					if loss := strings.Index(said, "lease lost"); loss < 0 || loss > strings.Index(said, tc.want[len(tc.want)-1].Error()) {
						t.Errorf("want the loss first, have %q", said)
					}
				}
			})
		})
	}
}

// TestHoldReleasesWhateverHappens leaves fn by all its ways out.
func TestHoldReleasesWhateverHappens(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(){
		"panic":  func() { panic("boom") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				locker, err := lock.New(f, lock.Config{})
				if err != nil {
					t.Fatal(err)
				}
				var gone sync.WaitGroup
				gone.Go(func() {
					defer func() { _ = recover() }()
					_ = locker.Do(t.Context(), "order:1", nil, func(context.Context) error { leave(); return nil })
				})
				gone.Wait()
				if have := f.get(); have != "" {
					t.Errorf("want a free lock, have %q", have)
				}
			})
		})
	}
}

func TestHoldOfABusyLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newAbandoned(t)
		err := l.locker.Do(t.Context(), "order:1", nil, func(context.Context) error {
			t.Error("want the work not to run")
			return nil
		})
		if !errors.Is(err, lock.ErrBusy) {
			t.Errorf("want ErrBusy, have %v", err)
		}
		l.release(t)
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
			locker, err := lock.New(g, lock.Config{HandoffTimeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			held, err := locker.Acquire(t.Context(), "order:1", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := held.Release(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("want the store's error, have %v", err)
			}
			time.Sleep(time.Second)
			locker.Close()
			if all := []time.Duration{timeout, want}; !slices.Equal(g.seen, all) {
				t.Errorf("want timeouts of %v, have %v", all, g.seen)
			}
		})
	}
}
