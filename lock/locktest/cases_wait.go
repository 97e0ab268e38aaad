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

// workOfThreeTTLs is renewed, and so is the place of who waits for its end.
func workOfThreeTTLs(s *suite) {
	var w *waiting
	err := s.locker(brief).Do(s.Context(), s.res, nil, func(ctx context.Context) error {
		w = s.waits(brief) //nolint:contextcheck // another process
		_ = sleep.For(ctx, 3*brief.TTL)
		return context.Cause(ctx)
	})
	if err != nil {
		s.Errorf("want three TTLs of work done under the lock, have %v", err)
	}
	s.release(within(s, "the lock", w.lease))
	s.wantFree()
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
