package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// acquire takes the lock, which is not renewed.
func acquire(tb testing.TB, locker *lock.Locker, opts *lock.Options) *lock.Lease {
	tb.Helper()
	held := expect.Value(locker.Acquire(tb.Context(), "order:1", opts))(tb)
	abandon(held)
	return held
}

// waits are the two ways to wait.
var waits = map[string]lock.Options{"queued": {Wait: lock.Forever}, "by retry": {Wait: lock.Forever, Retry: lock.Fixed(100 * time.Millisecond)}}

// TestWaitEnduresAnOutage that is shorter than the TTL, and gives up in a longer one. Which answers of Redis are one,
// package redisreply knows.
func TestWaitEnduresAnOutage(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]error{
		"connection": locktest.ErrNetwork, "deadline": context.DeadlineExceeded,
		"an answer":            serverError("LOADING try later"),
		"as the store says so": tellingError{serverError("NOPERM of one of three"), true},
	}, func(t bubble, trouble error) {
		for _, how := range waits {
			f := newFake()
			locker := lockerOn(t, f.Store)
			fail := func(context.Context, string, func() error) error { return trouble }
			f.Set(fail)
			time.AfterFunc(10*time.Second, func() { f.Set(locktest.Fine) })
			expect.OK(t, acquire(t, locker, &how).Release(t.Context()))

			f.Set(fail)
			start := time.Now()
			_, err := locker.Acquire(t.Context(), "order:1", &how)
			wantBroken(t, "acquire", err)
			if took := time.Since(start); !errors.Is(err, trouble) || took < 15*time.Second || took > 20*time.Second {
				t.Errorf("want %v after the TTL of 15s, have %v after %v", trouble, err, took)
			}
		}
	})
}

// A serverError is one that Redis answers with.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

var _ redis.Error = serverError("")

// A tellingError says by itself whether it may pass.
type tellingError struct {
	error

	passing bool
}

func (e tellingError) Passing() bool { return e.passing }
func (e tellingError) Unwrap() error { return e.error }

// TestWaitGivesUpAtOnce when another try cannot mend what is wrong.
func TestWaitGivesUpAtOnce(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]error{
		"no permission":        serverError("NOPERM no permission"),
		"as the store says so": tellingError{locktest.ErrNetwork, false},
	}, func(t bubble, trouble error) {
		for _, wait := range waits {
			f := newFake()
			f.Set(locktest.Only(locktest.Acquire, func(context.Context, string, func() error) error { return trouble }))
			start := time.Now()
			_, err := lockerOn(t, f.Store).Acquire(t.Context(), "order:1", &wait)
			expect.That(t, errors.Is(err, trouble) && time.Since(start) == 0, "want an error at once, have %v after %v", err, time.Since(start))
		}
	})
}

// TestOddRetryIsNoBusyLoop: a Retry without delays tries once in a millisecond.
func TestOddRetryIsNoBusyLoop(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			holder := acquire(t, lockerOn(t, f.memory), nil)
			_, err := lockerOn(t, f.Store).Acquire(t.Context(), "order:1", &lock.Options{Wait: 100 * time.Millisecond, Retry: lock.Fixed(delay)})
			wantBusy(t, "acquire", err)
			have := len(f.SentAt(locktest.Acquire, time.Time{}))
			expect.That(t, have <= 101, "want at most a try every millisecond, have %d in 100", have)
			_ = holder.Release(t.Context())
		})
	}
}

// TestOrderWithinOneProcess: its goroutines get the lock in the order in which they came, also from a
// store without wait queues. Never more than one of them is in the wait queue.
func TestOrderWithinOneProcess(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]bool{"queued": true, "without wait queues": false}, func(t bubble, queued bool) {
		const goroutines = 30
		f := newFake()
		locker := lockerOn(t, f.Store)
		if !queued {
			locker = lockerOn(t, struct{ lock.Store }{f.Store})
		}
		holder := acquire(t, locker, nil)
		var served []int
		var all sync.WaitGroup
		for i := range goroutines {
			all.Go(func() {
				if err := locker.Do(t.Context(), "order:1", &lock.Options{Wait: lock.Forever}, func(context.Context) error {
					served = append(served, i)
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			queued := f.memory.Waiters("lock:order:1")
			expect.That(t, len(queued) <= 1, "want one contender queued, have %q", queued)
		}
		_ = holder.Release(t.Context())
		all.Wait()
		expect.Need(t, slices.IsSorted(served) && len(served) == goroutines, "want them in order, have %v", served)
		have := len(f.SentAt(locktest.Acquire, time.Time{}))
		expect.That(t, !queued || have <= 2*goroutines+1, "want two calls for each of %d, have %d", goroutines, have)
	})
}

// TestPollersKeepToTheirOwnTimes: none waits for the end of another's pause, nor does one in the wait queue. Those who ask at
// the same time share a call.
func TestPollersKeepToTheirOwnTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pollers, call = 100, 4 * time.Millisecond
		f := newFake().with(locktest.Slow(call))
		holder := acquire(t, lockerOn(t, f.memory), nil)
		locker, start := lockerOn(t, f.Store), time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		poll := func(ctx context.Context, every, wait time.Duration) (*lock.Lease, error) {
			return locker.Acquire(ctx, "order:1", &lock.Options{Wait: wait, Retry: lock.Fixed(every)})
		}
		all.Go(func() { expect.Is(t, "the slowest", expect.Err(poll(ctx, time.Hour, lock.Forever)), context.Canceled) })
		synctest.Wait()
		for range pollers {
			all.Go(func() { wantBusy(t, "acquire", expect.Err(poll(t.Context(), 10*time.Millisecond, time.Second))) })
		}
		time.Sleep(2 * time.Second)
		have := len(f.SentAt(locktest.Acquire, time.Time{}))
		expect.That(t, have >= 60 && have <= 255, "want at most one call at a time in the second of %d pollers, have %d", pollers, have)
		time.AfterFunc(time.Second, func() { _ = holder.Release(t.Context()) })
		held := expect.Value(poll(t.Context(), 10*time.Millisecond, 5*time.Second))(t)
		soonAfter := func(free time.Duration) {
			took := time.Since(start)
			expect.That(t, took >= free && took <= free+20*time.Millisecond, "want the lock as soon as it is free after %v, have it after %v", free, took)
		}
		soonAfter(3 * time.Second)
		time.AfterFunc(time.Second, func() { _ = held.Release(t.Context()) })
		held = expect.Value(locker.Acquire(t.Context(), "order:1", &lock.Options{Wait: 5 * time.Second}))(t)
		soonAfter(4 * time.Second)
		_ = held.Release(t.Context())
		cancel()
		all.Wait()
	})
}

// TestTriesAreCounted for each caller of a Retry that they share.
func TestTriesAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opts := &lock.Options{Wait: lock.Forever, Retry: lock.Fixed(time.Millisecond), Tries: 3}
		for range 2 {
			f := newFake()
			acquire(t, lockerOn(t, f.memory), nil)
			wantBusy(t, "acquire", expect.Err(lockerOn(t, f.Store).Acquire(t.Context(), "order:1", opts)))
			expect.Equal(t, "calls", len(f.SentAt(locktest.Acquire, time.Time{})), opts.Tries)
		}
	})
}

// TestOneAttemptForMany: those who come while another tries share the attempt after that one. One of them gets a free lock. That
// the first goes away concerns nobody else.
func TestOneAttemptForMany(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]int{"free": 49, "held by another process": 50}, func(t bubble, refused int) {
		f := newFake().with(locktest.Slow(time.Second))
		if refused == 50 {
			acquire(t, lockerOn(t, f.memory), nil)
		}
		locker := lockerOn(t, f.Store)
		first, leave := context.WithCancel(t.Context())
		var busy atomic.Int32
		var all sync.WaitGroup
		all.Go(func() {
			expect.That(t, expect.Err(locker.Acquire(first, "order:1", nil)) != nil, "want no lock for the first")
		})
		synctest.Wait()
		for range 50 {
			all.Go(func() {
				if held, err := locker.Acquire(t.Context(), "order:1", nil); err == nil {
					abandon(held)
				} else if errors.Is(err, lock.ErrBusy) {
					busy.Add(1)
				}
			})
		}
		synctest.Wait()
		leave()
		all.Wait()
		expect.Equal(t, "callers who are told that it is busy", int(busy.Load()), refused)
		have := len(f.SentAt(locktest.Acquire, time.Time{}))
		expect.That(t, have <= 3, "want few calls for 51 goroutines, have %d", have)
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
		took := time.Since(start)
		expect.That(t, took >= 3*time.Second && took <= 4*time.Second, "want the lock within a second of its release after 3s, have %v", took)
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
		took := time.Since(start)
		expect.That(t, took >= 15*time.Second && took <= 16*time.Second, "want all served as soon as the TTL of 15s is over, have %v", took)
		have := len(f.SentAt(locktest.Acquire, time.Time{}))
		expect.That(t, have <= 20, "want few calls while they wait, have %d", have)
	})
}

// TestClose ends those who wait, waits for what is under way, and lets leases live.
func TestClose(t *testing.T) {
	t.Parallel()
	inBubbles(t, waits, func(t bubble, wait lock.Options) {
		l := newLeased(t)
		work := l.Context(t.Context())
		failed := make(chan error, 2)
		for range 2 { // one asks the store, the other waits for it
			go func() {
				_, err := l.locker.Acquire(t.Context(), "order:1", &wait)
				failed <- err
			}()
		}
		synctest.Wait()
		l.redis.Set(locktest.Only(locktest.Leave, locktest.Slow(time.Second)))
		l.locker.Close()
		for range 2 {
			err := <-failed
			expect.That(t, errors.Is(err, lock.ErrClosed) && errors.Is(err, lock.ErrBusy), "want ErrClosed and ErrBusy, have %v", err)
		}
		if queued := l.redis.memory.Waiters("lock:order:1"); queued != nil {
			t.Errorf("want nobody queued when Close returns, have %q", queued)
		}
		expect.Is(t, "acquire", expect.Err(l.locker.Acquire(t.Context(), "order:2", nil)), lock.ErrClosed)
		time.Sleep(time.Minute)
		l.wantAlive(t, work)
		l.release(t)
		l.locker.Close() // does no harm
	})
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
			held := expect.Value(locker.Acquire(t.Context(), resource, nil))(t)
			for _, wait := range []time.Duration{0, time.Millisecond} {
				wantBusy(t, resource, expect.Err(locker.Acquire(t.Context(), resource, &lock.Options{Wait: wait})))
			}
			abandon(held)
			if i%2 == 0 {
				expect.OK(t, held.Release(t.Context()))
			}
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		expect.Equal(t, "contenders kept", locker.Contenders(), 0)
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
		want := "lock: " + name
		expect.That(t, err != nil && err.Error() == want, "want %q, have %v", want, err)
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
		expect.Need(t, errors.Is(err, context.DeadlineExceeded), "want context.DeadlineExceeded, have %v", err)
		time.Sleep(5 * time.Second)
		f.Set(locktest.Fine)
		time.Sleep(1500 * time.Millisecond) // it tries every second
		queued := f.memory.Waiters("lock:order:1")
		expect.That(t, len(queued) == 0, "want nobody queued, have %q", queued)
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
			expect.OK(t, acquire(t, locker, &lock.Options{Wait: lock.Forever}).Release(t.Context()))
		}
		took := time.Since(start)
		expect.That(t, took <= time.Second, "want one hand-off timeout of 1s for three free locks, have %v", took)
	})
}

// TestLookEndsWithItsCaller: after a wait a caller asks whether the store is there, but not beyond the end of its context. That says
// nothing about the store: the lock is busy still.
func TestLookEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	wait := &lock.Options{Wait: time.Second}
	nothing := func(context.Context) error { return nil }
	inBubbles(t, map[string]func(context.Context, *lock.Locker) error{
		"one": func(ctx context.Context, l *lock.Locker) error { return l.Do(ctx, "order:1", wait, nothing) },
		"all": func(ctx context.Context, l *lock.Locker) error {
			return l.DoAll(ctx, []string{"order:1"}, wait, nothing)
		},
	}, func(t bubble, do func(context.Context, *lock.Locker) error) {
		f := newFake()
		acquire(t, lockerOn(t, f.memory), nil)
		f.Set(func(ctx context.Context, step string, send func() error) error {
			if step == locktest.Acquire {
				return send()
			}
			<-ctx.Done()
			return locktest.ErrNetwork
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		err := do(ctx, lockerOn(t, f.Store))
		took := time.Since(start)
		expect.That(t, errors.Is(err, context.DeadlineExceeded) && errors.Is(err, lock.ErrBusy) && took == 2*time.Second,
			"want the end of the context and ErrBusy, after 2s, have %v after %v", err, took)
	})
}

// TestWaitSaysWhatIsWrong: a wait that is too short for any answer says why there was none, also behind another one.
func TestWaitSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	ended := func(way lock.Options) lock.Options { way.Wait = time.Second; return way }
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			wait := ended(waits["queued"])
			wait.Wait /= 2 // of the time that it waits for the listener
			_, err := lockerOn(t, unreachableStore{locktest.NewMemory()}).Acquire(t.Context(), "order:1", &wait)
			const want = "lock: acquire order:1: the wait is over: the store has not answered yet"
			expect.That(t, err != nil && err.Error() == want, "want %q, have %v", want, err)
		})
	})
	type row struct{ busy, behind bool }
	for how, wait := range waits {
		wait = ended(wait)
		inBubbles(t, map[string]row{how + ", free": {}, how + ", busy": {busy: true}, how + ", behind another": {behind: true}}, func(t bubble, tc row) {
			f := newFake()
			if tc.busy {
				acquire(t, lockerOn(t, f.memory), nil)
			}
			f.Set(func(ctx context.Context, _ string, send func() error) error {
				<-ctx.Done()
				if tc.busy { // answered late
					return send()
				}
				return locktest.ErrNetwork
			})
			locker := lockerOn(t, f.Store)
			var all sync.WaitGroup
			if tc.behind { // whose call has no answer
				longer := wait
				longer.Wait *= 10
				all.Go(func() {
					expect.Is(t, "the first", expect.Err(locker.Acquire(t.Context(), "order:1", &longer)), locktest.ErrNetwork)
				})
				synctest.Wait()
			}
			want := locktest.ErrNetwork.Error()
			switch {
			case tc.busy:
				want = "lock order:1 is held by "
			case tc.behind:
				want = "look at order:1: " + want
			}
			_, err := locker.Acquire(t.Context(), "order:1", &wait)
			expect.That(t, errors.Is(err, lock.ErrBusy) == tc.busy && strings.HasPrefix(fmt.Sprint(err), "lock: acquire order:1: the wait is over: "+want),
				"want the end of the wait and %s, have %v", want, err)
			all.Wait()
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
		expect.Equal(t, name, fmt.Sprint(expect.Err(lock.New(tt.store, lock.Config{}))), want)
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
		_, err := lockerOn(t, f.Store).Acquire(t.Context(), "order:1", &lock.Options{Wait: 20 * time.Millisecond})
		expect.Need(t, err != nil, "want no lock")
		expect.OK(t, <-late)
		released := make(chan time.Time, 1)
		time.AfterFunc(10*time.Millisecond, func() {
			released <- time.Now()
			_ = holder.Release(t.Context())
		})
		_ = acquire(t, lockerOn(t, f.memory), &lock.Options{Wait: lock.Forever}).Release(t.Context())
		took := time.Since(<-released)
		expect.That(t, took <= 100*time.Millisecond, "want the lock at once, have it after %v", took)
	})
}

// An endless store has a lock that somebody else holds, and whose key has lost its TTL.
type endless struct {
	*locktest.Memory

	asked atomic.Int32
}

func (e *endless) Acquire(context.Context, store.Request) (store.Result, error) {
	e.asked.Add(1)
	return store.Result{Holder: "siding:1:somebody", Left: -time.Millisecond, Position: 1}, nil
}

// The first waiter asks for such a lock about once a second, and not each millisecond.
func TestEndlessLockIsNotPolledHard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &endless{Memory: locktest.NewMemory()}
		wantBusy(t, "acquire", expect.Err(lockerOn(t, e).Acquire(t.Context(), "order:1", &lock.Options{Wait: 10 * time.Second})))
		have := e.asked.Load()
		expect.That(t, have >= 10 && have <= 30, "want it asked for 10 to 30 times, have %d", have)
	})
}

// A lock is held for half a day, and free before. Who waits for it has it then, and nobody passes. If nobody tells that it is free, as
// it was deleted, or a rate kept it for so long, who waits finds out.
func TestWaitForALongLock(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]bool{"released": true, "deleted": false}, func(t bubble, released bool) {
		f := newFake()
		held, got := acquire(t, lockerOn(t, f.Store), &lock.Options{TTL: 12 * time.Hour, NoRenew: true}), make(chan time.Time, 1)
		go func() {
			_ = lockerOn(t, f.Store).Do(t.Context(), "order:1", &lock.Options{Wait: lock.Forever}, func(ctx context.Context) error {
				got <- time.Now()
				return sleep.For(ctx, time.Second)
			})
		}()
		time.Sleep(4 * time.Hour)
		free, longest := time.Now(), time.Duration(0)
		if released {
			expect.OK(t, held.Release(t.Context()))
			passed, err := lockerOn(t, f.Store).Acquire(t.Context(), "order:1", nil)
			if expect.Is(t, "who comes now", err, lock.ErrBusy); err == nil {
				expect.OK(t, passed.Release(t.Context()))
			}
		} else {
			f.put("")
			longest = 16 * time.Second
		}
		took := (<-got).Sub(free)
		expect.That(t, took <= longest, "want it %v later at most, have it after %v", longest, took)
	})
}

// A task that has waited in its line for an hour comes before the goroutines of its process that came since, but for the first.
func TestWaitedElsewhereWithinOneProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := lockerOn(t, newFake().Store)
		held := acquire(t, locker, nil)
		var order []int
		var all sync.WaitGroup
		for n, waited := range []time.Duration{0, 0, 0, time.Hour} {
			all.Go(func() {
				ctx := lease.WithWaited(t.Context(), waited)
				expect.OK(t, locker.Do(ctx, "order:1", &lock.Options{Wait: lock.Forever}, func(context.Context) error {
					order = append(order, n)
					return nil
				}))
			})
			synctest.Wait()
		}
		expect.OK(t, held.Release(t.Context()))
		all.Wait()
		expect.Same(t, "order", order, []int{0, 3, 1, 2})
	})
}
