package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// lockerOn returns a locker of a process of its own, with the default configuration.
func lockerOn(t *testing.T, store lock.Store) *lock.Locker {
	t.Helper()
	locker, err := lock.New(store, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	return locker
}

// acquire takes the lock, which is not renewed.
func acquire(t *testing.T, locker *lock.Locker, opts *lock.Options) *lock.Lease {
	t.Helper()
	held, err := locker.Acquire(t.Context(), "order:1", opts)
	if err != nil {
		t.Fatal(err)
	}
	abandon(held)
	return held
}

// waits are the two ways to wait.
var waits = map[string]lock.Options{"queued": {Wait: lock.Forever}, "by retry": {Wait: lock.Forever, Retry: lock.Fixed(100 * time.Millisecond)}}

// TestWaitEnduresAnOutage that is shorter than the TTL, whatever kind of
// trouble it is, and gives up in a longer one.
func TestWaitEnduresAnOutage(t *testing.T) {
	t.Parallel()
	passing := map[string]error{"connection": locktest.ErrNetwork, "deadline": context.DeadlineExceeded}
	for _, code := range []string{"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "ASK", "MOVED", "NOREPLICAS"} {
		passing[code] = serverError(code + " try later")
	}
	passing["too many clients"] = serverError("ERR max number of clients reached")
	for way, wait := range waits {
		for kind, trouble := range passing {
			t.Run(way+" "+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFake()
					locker := lockerOn(t, f.Store)
					how := &wait
					fail := func(context.Context, string, func() error) error { return trouble }
					f.Set(fail)
					time.AfterFunc(10*time.Second, func() { f.Set(locktest.Fine) })
					if err := acquire(t, locker, how).Release(t.Context()); err != nil {
						t.Error(err)
					}

					f.Set(fail)
					start := time.Now()
					_, err := locker.Acquire(t.Context(), "order:1", how)
					if !errors.Is(err, trouble) || errors.Is(err, lock.ErrBusy) || errors.Is(err, lock.ErrLost) {
						t.Errorf("want %v, neither busy nor lost, have %v", trouble, err)
					}
					if took := time.Since(start); took < 15*time.Second || took > 20*time.Second {
						t.Errorf("want it given up after the TTL of 15s, have %v", took)
					}
				})
			})
		}
	}
}

// A serverError is one that Redis answers with.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

var _ redis.Error = serverError("")

// TestWaitGivesUpAtOnce when another try cannot mend what is wrong.
func TestWaitGivesUpAtOnce(t *testing.T) {
	t.Parallel()
	for how, wait := range waits {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.Set(func(context.Context, string, func() error) error { return serverError("NOPERM no permission") })
				start := time.Now()
				_, err := lockerOn(t, f.Store).Acquire(t.Context(), "order:1", &wait)
				if err == nil || time.Since(start) != 0 {
					t.Errorf("want an error at once, have %v after %v", err, time.Since(start))
				}
			})
		})
	}
}

// TestOddRetryIsNoBusyLoop: a Retry without delays tries once in a millisecond.
func TestOddRetryIsNoBusyLoop(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			holder := acquire(t, lockerOn(t, f.memory), nil)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := lockerOn(t, f.Store).Acquire(ctx, "order:1", &lock.Options{Wait: lock.Forever, Retry: lock.Fixed(delay)})
			if !errors.Is(err, lock.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("want ErrBusy and the context's error, have %v", err)
			}
			if have := len(f.SentAt(locktest.Acquire, time.Time{})); have > 101 {
				t.Errorf("want at most a try every millisecond, have %d in 100", have)
			}
			_ = holder.Release(t.Context())
		})
	}
}

// TestOrderWithinOneProcess: its goroutines get the lock in the order in which they came. Never
// more than one of them is in the wait queue.
func TestOrderWithinOneProcess(t *testing.T) {
	t.Parallel()
	for how, wait := range waits {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const goroutines = 30
				f := newFake()
				locker := lockerOn(t, f.Store)
				holder := acquire(t, locker, nil)
				var served []int
				var all sync.WaitGroup
				for i := range goroutines {
					all.Go(func() {
						if err := locker.Do(t.Context(), "order:1", &wait, func(context.Context) error {
							served = append(served, i)
							return nil
						}); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait()
					if queued := f.memory.Waiters("lock:order:1"); len(queued) > 1 {
						t.Errorf("want one contender queued, have %q", queued)
					}
				}
				_ = holder.Release(t.Context())
				all.Wait()
				for i, have := range served {
					if have != i {
						t.Fatalf("want them in order, have %v", served)
					}
				}
				if have := len(f.SentAt(locktest.Acquire, time.Time{})); how == "queued" && have > 2*goroutines+1 {
					t.Errorf("want two calls for each of %d, have %d", goroutines, have)
				}
			})
		})
	}
}

// TestCallerGoesDuringASharedAttempt: what was got on its behalf is given back,
// and the others have another try.
func TestCallerGoesDuringASharedAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		locker := lockerOn(t, f.Store)
		holder := acquire(t, lockerOn(t, f.memory), nil)
		f.Set(locktest.Only(locktest.Acquire, locktest.Slow(time.Second)))
		ctx, cancel := context.WithCancel(t.Context())
		refused, gone, got := make(chan error, 1), make(chan error, 1), make(chan *lock.Lease, 1)
		go func() { _, err := locker.Acquire(t.Context(), "order:1", nil); refused <- err }()
		synctest.Wait()
		go func() { _, err := locker.Acquire(ctx, "order:1", nil); gone <- err }()
		synctest.Wait()
		go func() {
			held, err := locker.Acquire(t.Context(), "order:1", nil)
			if err != nil {
				t.Error(err)
			}
			got <- held
		}()
		synctest.Wait()
		_ = holder.Release(t.Context()) // the first is busy already, and the answer is on its way
		if err := <-refused; !errors.Is(err, lock.ErrBusy) {
			t.Errorf("the first: want ErrBusy, have %v", err)
		}
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that goes: want context.Canceled at once, have %v", err)
		}
		if held := <-got; held != nil {
			_ = held.Release(t.Context())
		}
	})
}

// TestPositionCountsFromArrival: a waiter's position counts from its arrival, not from when it
// could join. Others of its process were in front, or a wake-up was lost.
func TestPositionCountsFromArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		here, there := lockerOn(t, f.Store), lockerOn(t, f.memory)
		holder := acquire(t, here, nil)
		served := make(chan string, 10)
		var all sync.WaitGroup
		wait := func(name string, locker *lock.Locker) {
			all.Go(func() {
				if err := locker.Do(t.Context(), "order:1", &lock.Options{Wait: lock.Forever}, func(context.Context) error {
					served <- name
					time.Sleep(time.Second)
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		wait("first here", here)
		wait("second here", here) // joins when the first has the lock
		wait("there", there)
		_ = holder.Release(t.Context())
		all.Wait()
		close(served)
		var have []string
		for name := range served {
			have = append(have, name)
		}
		if want := "[first here second here there]"; fmt.Sprint(have) != want {
			t.Errorf("want %s, have %v", want, have)
		}
	})
}

// TestQueuedWithoutWaking polls a store that cannot call anybody.
func TestQueuedWithoutWaking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		holder := acquire(t, lockerOn(t, f.memory), nil)
		time.AfterFunc(3*time.Second, func() { _ = holder.Release(t.Context()) })
		start := time.Now()
		held := acquire(t, lockerOn(t, struct{ lock.Store }{f.Store}), &lock.Options{Wait: lock.Forever})
		if took := time.Since(start); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("want the lock within a second of its release after 3s, have %v", took)
		}
		_ = held.Release(t.Context())
	})
}

// TestHolderDiedBeforeAWaitQueue: the first takes the lock as it expires.
func TestHolderDiedBeforeAWaitQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		_ = acquire(t, lockerOn(t, f.memory), nil) // and is never heard of again
		start := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := lockerOn(t, f.Store).Do(t.Context(), "order:1", &lock.Options{Wait: lock.Forever}, func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took < 15*time.Second || took > 16*time.Second {
			t.Errorf("want all served as soon as the TTL of 15s is over, have %v", took)
		}
		if have := len(f.SentAt(locktest.Acquire, time.Time{})); have > 20 {
			t.Errorf("want few calls while they wait, have %d", have)
		}
	})
}

// TestClose ends those who wait, waits for what is under way, and lets leases live.
func TestClose(t *testing.T) {
	t.Parallel()
	for how, wait := range waits {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				locker := lockerOn(t, f.Store)
				held, err := locker.Acquire(t.Context(), "order:1", nil)
				if err != nil {
					t.Fatal(err)
				}
				work := held.Context(t.Context())
				failed := make(chan error, 2)
				for range 2 { // one asks the store, the other waits for it
					go func() {
						_, err := locker.Acquire(t.Context(), "order:1", &wait)
						failed <- err
					}()
				}
				synctest.Wait()
				f.Set(locktest.Only(locktest.Leave, locktest.Slow(time.Second)))
				locker.Close()
				for range 2 {
					if err := <-failed; !errors.Is(err, lock.ErrClosed) || !errors.Is(err, lock.ErrBusy) {
						t.Errorf("want ErrClosed and ErrBusy, have %v", err)
					}
				}
				if queued := f.memory.Waiters("lock:order:1"); queued != nil {
					t.Errorf("want nobody queued when Close returns, have %q", queued)
				}
				if _, err := locker.Acquire(t.Context(), "order:2", nil); !errors.Is(err, lock.ErrClosed) {
					t.Errorf("want ErrClosed, have %v", err)
				}
				time.Sleep(time.Minute)
				if work.Err() != nil {
					t.Errorf("want the lease renewed, have %v", context.Cause(work))
				}
				if err := held.Release(t.Context()); err != nil {
					t.Error(err)
				}
				locker.Close() // does no harm
			})
		})
	}
}

// TestNothingIsKeptOfLocksThatAreOver, nor of leases that nobody releases, such
// as those of a program that lets them expire.
func TestNothingIsKeptOfLocksThatAreOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		locker := lockerOn(t, f.Store)
		for i := range 100 {
			resource := fmt.Sprintf("order:%d", i)
			held, err := locker.Acquire(t.Context(), resource, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := locker.Acquire(t.Context(), resource, nil); !errors.Is(err, lock.ErrBusy) {
				t.Fatalf("want ErrBusy, have %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := locker.Acquire(ctx, resource, &lock.Options{Wait: lock.Forever}); !errors.Is(err, lock.ErrBusy) {
				t.Fatalf("want ErrBusy, have %v", err)
			}
			cancel()
			abandon(held)
			if i%2 == 0 {
				if err := held.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if have := locker.Contenders(); have != 0 {
			t.Errorf("want no contenders kept, have %d", have)
		}
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	locker := lockerOn(t, locktest.NewMemory())
	for name, opts := range map[string]lock.Options{
		"wait: want 0 or more, have -1ns":                                    {Wait: -1},
		"wait: want more than 0 with a retry, such as lock.Forever, have 0s": {Retry: lock.Fixed(time.Second)},
		"tries: want 0, or more with a retry, have 3":                        {Wait: time.Second, Tries: 3},
		"tries: want 0, or more with a retry, have -1":                       {Wait: time.Second, Tries: -1, Retry: lock.Fixed(time.Second)},
		"ttl: want 0, or 100ms to 24h, have 99ms":                            {TTL: 99 * time.Millisecond},
		"ttl: want 0, or 100ms to 24h, have 24h0m0.001s":                     {TTL: 24*time.Hour + time.Millisecond},
		"max hold: want 0 or more, have -1s":                                 {MaxHold: -time.Second},
	} {
		_, err := locker.Acquire(t.Context(), "order:1", &opts)
		if want := "lock: " + name; err == nil || err.Error() != want {
			t.Errorf("want %q, have %v", want, err)
		}
	}
}

// TestFailedLeaveIsTriedAgain: otherwise the lock would be reserved for a waiter that has given up,
// as its process still listens.
func TestFailedLeaveIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		holder := acquire(t, lockerOn(t, f.memory), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f.Set(locktest.Only(locktest.Leave, locktest.Refuse))
		_, err := lockerOn(t, f.Store).Acquire(ctx, "order:1", &lock.Options{Wait: lock.Forever})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("want context.DeadlineExceeded, have %v", err)
		}
		time.Sleep(5 * time.Second)
		f.Set(locktest.Fine)
		time.Sleep(1500 * time.Millisecond) // it tries every second
		if queued := f.memory.Waiters("lock:order:1"); len(queued) > 0 {
			t.Errorf("want nobody queued, have %q", queued)
		}
		_ = holder.Release(t.Context())
	})
}

// A unreachableStore never hears a call, as where no channel may be subscribed to.
type unreachableStore struct{ lock.Store }

func (unreachableStore) Listen(ctx context.Context, _ string, _ func(), _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestHearingIsAwaitedOnce: a process that cannot hear takes free locks at once
// after the first hand-off timeout.
func TestHearingIsAwaitedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := lockerOn(t, unreachableStore{locktest.NewMemory()})
		start := time.Now()
		for range 3 {
			if err := acquire(t, locker, &lock.Options{Wait: lock.Forever}).Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("want one hand-off timeout of 5s for three free locks, have %v", took)
		}
	})
}

// TestWaitSaysWhatIsWrong: a wait that is too short for any answer says why there was none.
func TestWaitSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	ended := func(way lock.Options) lock.Options { way.Wait = time.Second; return way }
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			wait := ended(waits["queued"])
			_, err := lockerOn(t, unreachableStore{locktest.NewMemory()}).Acquire(t.Context(), "order:1", &wait)
			const want = "lock: acquire order:1: the wait is over: the store has not answered yet"
			if err == nil || err.Error() != want {
				t.Errorf("want %q, have %v", want, err)
			}
		})
	})
	for how, wait := range waits {
		wait = ended(wait)
		t.Run(how+", no answer in time", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.Set(func(ctx context.Context, _ string, _ func() error) error {
					<-ctx.Done()
					return locktest.ErrNetwork
				})
				_, err := lockerOn(t, f.Store).Acquire(t.Context(), "order:1", &wait)
				if want := "lock: acquire order:1: the wait is over: " + locktest.ErrNetwork.Error(); err == nil || err.Error() != want {
					t.Errorf("want %q, have %v", want, err)
				}
			})
		})
		t.Run(how+", busy, answered late", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				acquire(t, lockerOn(t, f.memory), nil)
				f.Set(func(ctx context.Context, _ string, send func() error) error {
					<-ctx.Done()
					return send()
				})
				_, err := lockerOn(t, f.Store).Acquire(t.Context(), "order:1", &wait)
				if !errors.Is(err, lock.ErrBusy) || !strings.HasPrefix(err.Error(), "lock: acquire order:1: the wait is over: lock order:1 is held by ") {
					t.Errorf("want the end of the wait and the holder, have %v", err)
				}
			})
		})
	}
}

// TestNoStore: what stands for no store is refused at once.
func TestNoStore(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		store lock.Store
		have  string
	}{
		"nil":             {nil, "none"},
		"of no client":    {lock.Redis(nil), "none"},
		"of a nil client": {lock.Redis((*redis.Client)(nil)), "none"},
		"a nil pointer":   {(*locktest.Memory)(nil), "a nil *locktest.Memory"},
	} {
		want := "lock: store: want one, such as that of Redis with a client, have " + tt.have
		if _, err := lock.New(tt.store, lock.Config{}); err == nil || err.Error() != want {
			t.Errorf("%s: want %q, have %v", name, want, err)
		}
	}
}

// An endingContext ends as soon as somebody has asked whether it has.
type endingContext struct {
	context.Context //nolint:containedctx // it is one

	end func()
}

func (c endingContext) Err() error {
	defer c.end()
	return c.Context.Err()
}

// TestEndDuringTheQuestion: the error matches the context's, whenever it ends.
func TestEndDuringTheQuestion(t *testing.T) {
	t.Parallel()
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	locker := lockerOn(t, locktest.NewMemory())
	_, err := locker.Acquire(endingContext{ctx, func() { cancel(why) }}, "order:1", nil)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Errorf("want context.Canceled and its cause, have %v", err)
	}
}

// TestLeaveOfNobody leaves a held lock alone.
func TestLeaveOfNobody(t *testing.T) {
	t.Parallel()
	locker := lockerOn(t, locktest.NewMemory())
	held := acquire(t, locker, nil)
	client, err := lease.New(locktest.NewMemory(), lease.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Leave(t.Context(), lease.Request{Resource: "order:1", Waiter: ""}); err != nil {
		t.Error(err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("want the lock still held, have %v", err)
	}
}

// TestLateTryOfAWaiterThatHasLeft: the last try of a waiter reaches the store after the waiter has left the
// wait queue. A lock that is reserved for that waiter is passed on at once.
func TestLateTryOfAWaiterThatHasLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		holder := acquire(t, lockerOn(t, f.memory), nil)
		late := make(chan error, 1)
		f.Set(locktest.Once(locktest.Acquire, 1, func(ctx context.Context, _ string, try func() error) error {
			<-ctx.Done()
			time.AfterFunc(time.Millisecond, func() { late <- try() })
			return ctx.Err()
		}))
		if _, err := lockerOn(t, f.Store).Acquire(t.Context(), "order:1", &lock.Options{Wait: 20 * time.Millisecond}); err == nil {
			t.Fatal("want no lock")
		}
		if err := <-late; err != nil {
			t.Fatal(err)
		}
		released := make(chan time.Time, 1)
		time.AfterFunc(10*time.Millisecond, func() {
			released <- time.Now()
			_ = holder.Release(t.Context())
		})
		_ = acquire(t, lockerOn(t, f.memory), &lock.Options{Wait: lock.Forever}).Release(t.Context())
		if took := time.Since(<-released); took > 100*time.Millisecond {
			t.Errorf("want the lock at once, have it after %v", took)
		}
	})
}
