package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

func contextEndsWhileWaiting(s *suite) {
	holder := s.take(s.locker(lock.Config{}))
	for _, opts := range []lock.Options{inQueue, polled(5 * time.Millisecond)} {
		w := s.waitsAs(lock.Config{}, opts)
		w.leave()
		s.wantIs("cancelled", within(s, "the end of the wait", w.err), context.Canceled, lock.ErrBusy)
		// Long enough for the first answer on a busy machine.
		ctx, cancel := context.WithTimeout(s.Context(), 2*time.Second)
		_, err := s.locker(lock.Config{}).Acquire(ctx, s.res, &opts)
		cancel()
		s.wantIs("in time", err, context.DeadlineExceeded, lock.ErrBusy)
		opts.Wait = 2 * time.Second
		start := time.Now()
		_, err = s.locker(lock.Config{}).Acquire(s.Context(), s.res, &opts)
		if took := time.Since(start); errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lock.ErrBusy) || took < opts.Wait {
			s.Errorf("a wait of %v: want ErrBusy alone, have %v after %v", opts.Wait, err, took)
		}
	}
	s.release(holder)
	expect.Eventually(s.T, "a free lock", func() bool { return s.value() == "" })
}

func contextEndsWithACallUnderWay(s *suite) {
	for _, opts := range []lock.Options{{}, inQueue, polled(time.Second)} {
		locker, network := s.faulty(lock.Config{})
		// The store takes the lock, but the answer comes after the caller has gone.
		gone, leave := context.WithCancelCause(s.Context())
		why := errors.New("shutting down")
		network.Set(Once(Acquire, 1, func(_ context.Context, _ string, act func() error) error {
			defer leave(why)
			return act()
		}))
		if _, err := locker.Acquire(gone, s.res, &opts); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			s.Errorf("cancelled: want context.Canceled and its cause, have %v", err)
		}
		expect.Eventually(s.T, "a free lock", func() bool { return s.value() == "" })

		// The store does not answer at all, nor later to what cleans up.
		network.Set(BlackHole)
		ctx, cancel := context.WithTimeout(s.Context(), 100*time.Millisecond)
		start := time.Now()
		_, err := locker.Acquire(ctx, s.res, &opts)
		cancel()
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
			s.Errorf("silent: want an error at the deadline of 100ms, have %v after %v", err, took)
		}
		network.Set(Fine)
	}
}

func anotherProgramHoldsTheLock(s *suite) {
	for _, value := range []string{"8f3a60", "siding", "0"} {
		s.Put(s.T, s.key(), value, time.Minute)
		if busy := s.wantBusy(); !busy.Foreign || busy.Remaining <= 0 || busy.Remaining > time.Minute {
			s.Errorf("want a foreign holder with up to a minute left, have %+v", busy)
		}
		if have := s.value(); have != value {
			s.Errorf("want %q untouched, have %q", value, have)
		}
		// That program wakes nobody, but waiters ask again.
		w := s.waits(lock.Config{})
		s.Put(s.T, s.key(), "", 0)
		s.release(within(s, "the lock", w.lease))
	}
}

func wakeIsLost(s *suite) {
	holder := s.take(s.locker(brief))
	locker, network := s.faulty(brief)
	network.Set(Only(Wake, Refuse))
	w := s.waitsOn(locker, inQueue)
	s.tried(network, 1)
	s.release(holder)
	s.release(within(s, "the lock, at the waiter's own fallback time", w.lease))
	s.wantFree()
}

func waiterLeavesTheQueue(s *suite) {
	holder := s.take(s.locker(lock.Config{}))
	var waiters []*waiting
	for range 4 {
		waiters = append(waiters, s.waits(lock.Config{}))
	}
	for _, w := range waiters[:3] {
		w.leave()
		s.wantIs("the end of the wait", within(s, "the end of the wait", w.err), context.Canceled, lock.ErrBusy)
	}
	start := time.Now()
	s.release(holder)
	lease := within(s, "the lock", waiters[3].lease)
	if took := time.Since(start); took >= 5*time.Second {
		s.Errorf("want the lock at once, have it after %v", took)
	}
	s.release(lease)
	s.wantFree()
}

func retryIsShared(s *suite) {
	const goroutines, limit = 20, 3
	retry := lock.Fixed(time.Millisecond)
	var all sync.WaitGroup
	for i := range goroutines {
		one := s.on(fmt.Sprint(i))
		holder := one.take(one.locker(lock.Config{}))
		locker, network := one.faulty(lock.Config{})
		all.Go(func() {
			_, err := locker.Acquire(s.Context(), one.res, &lock.Options{Wait: lock.Forever, Retry: retry, Tries: limit})
			if have := len(network.SentAt(Acquire, time.Time{})); !errors.Is(err, lock.ErrBusy) || have != limit {
				s.Errorf("want ErrBusy after %d attempts, have %v after %d", limit, err, have)
			}
			if err := holder.Release(s.Context()); err != nil {
				s.Error(err)
			}
		})
	}
	all.Wait()
}

func waitIsLongerThanTheTTL(s *suite) {
	holder, work := s.hold(s.locker(brief))
	w := s.waits(brief)
	_ = sleep.For(s.Context(), 3*brief.TTL/2)
	if work.Err() != nil {
		s.Fatalf("want the holder undisturbed, have %v", context.Cause(work))
	}
	s.release(holder)
	s.release(within(s, "the lock", w.lease))
}

func oneAttemptForMany(s *suite) {
	const goroutines = 50
	locker, network := s.faulty(lock.Config{})
	sent, answer := make(chan struct{}), make(chan struct{})
	network.Set(Once(Acquire, 1, func(_ context.Context, _ string, act func() error) error {
		close(sent)
		<-answer
		return act()
	}))
	// The first goes away while its call is under way.
	ctx, cancel := context.WithCancel(s.Context())
	gone, failed := make(chan error, 1), make(chan error, goroutines)
	leases := make(chan *lock.Lease, goroutines)
	go func() { _, err := locker.Acquire(ctx, s.res, nil); gone <- err }()
	<-sent
	var started sync.WaitGroup
	for range goroutines {
		started.Add(1)
		go func() {
			started.Done()
			lease, err := locker.Acquire(s.Context(), s.res, nil)
			if err != nil {
				failed <- err
			} else {
				leases <- lease
			}
		}()
	}
	started.Wait()
	cancel()
	close(answer)
	s.wantIs("the first", within(s, "the first", gone), context.Canceled)
	lease := within(s, "a lease", leases)
	for range goroutines - 1 {
		s.wantIs("acquire", within(s, "a busy lock", failed), lock.ErrBusy)
	}
	if have := len(network.SentAt(Acquire, time.Time{})); have > 3 {
		s.Errorf("want few calls for %d goroutines, as the first in the wait queue asks for all, have %d", goroutines+1, have)
	}
	s.release(lease)
}

func queueIsServedInOrder(s *suite) {
	holder := s.take(s.locker(lock.Config{}))
	var waiters []*waiting
	for range 10 {
		waiters = append(waiters, s.waits(lock.Config{}))
	}
	last := holder
	for i, w := range waiters {
		s.release(last)
		last = within(s, fmt.Sprintf("the lock for number %d", i+1), w.lease)
		for _, later := range waiters[i+1:] {
			if len(later.lease) > 0 {
				s.Fatalf("want number %d alone, have a later one, too", i+1)
			}
		}
	}
	s.release(last)
	s.wantFree()
}

// positionCountsFromTheArrival: only one goroutine of a process is in the wait queue at a
// time. The next one is not put behind those who came to other processes later.
func positionCountsFromTheArrival(s *suite) {
	holder := s.take(s.locker(lock.Config{}))
	locker, network := s.faulty(lock.Config{})
	first := s.waitsOn(locker, inQueue)
	s.tried(network, 1)
	second := s.waitsOn(locker, inQueue)
	_ = sleep.For(s.Context(), 100*time.Millisecond) // it contends in its own process
	other := s.waits(lock.Config{})
	s.release(holder)
	lease := within(s, "the lock for the first", first.lease)
	s.tried(network, 3)
	s.release(lease)
	s.release(within(s, "the lock for the second", second.lease))
	s.release(within(s, "the lock for the other", other.lease))
	s.wantFree()
}

// crowd is many processes with many goroutines each, by all ways to wait.
func crowd(s *suite) {
	const processes, goroutines, rounds = 4, 5, 4
	ways := []lock.Options{inQueue, inQueue, {Wait: lock.Forever, Retry: lock.Exponential(time.Millisecond, 20*time.Millisecond)}}
	var inside, last atomic.Int64
	var all sync.WaitGroup
	for p := range processes {
		locker := s.locker(lock.Config{})
		for g := range goroutines {
			opts := ways[(p+g)%len(ways)]
			all.Go(func() {
				for range rounds {
					if err := locker.Do(s.Context(), s.res, &opts, func(ctx context.Context) error {
						defer inside.Add(-1)
						if n := inside.Add(1); n != 1 {
							return fmt.Errorf("want one holder, have %d", n)
						}
						if before := last.Swap(lock.Fence(ctx, s.res)); before >= lock.Fence(ctx, s.res) && !s.NoFence {
							return fmt.Errorf("want a fence above %d, have %d", before, lock.Fence(ctx, s.res))
						}
						again := opts
						again.Reentrant = true
						return locker.Do(ctx, s.res, &again, func(context.Context) error { return nil })
					}); err != nil {
						s.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	// A release that a busy node has not answered in time is sent again.
	expect.Eventually(s.T, "a free lock", func() bool { return s.value() == "" })
}
