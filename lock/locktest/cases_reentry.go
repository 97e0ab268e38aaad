package locktest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

func reentryCountsOnce(s *suite) {
	locker, network := s.faulty(lock.Config{})
	network.Set(Resend)
	outer, work := s.hold(locker)
	network.Set(Fine)
	token, steps := s.value(), len(network.Sent())
	for _, opts := range []lock.Options{{}, inQueue, polled(time.Second)} {
		opts.Reentrant = true
		inner := s.takeIn(work, locker, &opts)
		if inner.Fence() != outer.Fence() || lock.Fence(inner.Context(work), s.res) != outer.Fence() {
			s.Errorf("want the fence %d kept, have %d", outer.Fence(), inner.Fence())
		}
		s.release(inner)
		if outer.Deadline().IsZero() || work.Err() != nil {
			s.Error("want the outer lease to live on")
		}
	}
	if have := s.value(); have != token || len(network.Sent()) != steps {
		s.Error("want nothing asked of the store, and the token kept")
	}
	s.release(outer)
	s.wantFree()
}

func releaseCountsOnce(s *suite) {
	locker := s.locker(lock.Config{})
	outer, work := s.hold(locker)
	again := &lock.Options{Reentrant: true}
	inner := s.takeIn(work, locker, again)
	s.release(inner)
	s.release(inner)
	if outer.Deadline().IsZero() || s.value() == "" {
		s.Error("want the lock held until the outer lease is released")
	}
	// In the other order, too, the last one frees it.
	inner = s.takeIn(work, locker, again)
	s.release(outer)
	if inner.Deadline().IsZero() || s.value() == "" {
		s.Error("want the lock held until the inner lease is released")
	}
	s.release(inner)
	s.wantFree()
}

func reentryAfterALoss(s *suite) {
	locker, network := s.faulty(brief)
	lease, work := s.hold(locker)
	network.Set(BlackHole)
	_ = expect.Ended(s.T, work)
	network.Set(Fine)
	for what, ctx := range map[string]context.Context{"its context": work, "one that outlives it": context.WithoutCancel(work)} {
		for _, reentrant := range []bool{true, false} {
			_, err := locker.Acquire(ctx, s.res, &lock.Options{Reentrant: reentrant})
			s.wantLost(fmt.Sprintf("acquire with %s, reentrant %t", what, reentrant), err)
		}
	}
	_ = lease.Release(s.Context())
}

func reentryAndTheDeadline(s *suite) {
	locker := s.locker(brief)
	outer, work := s.hold(locker)
	short := s.takeIn(work, locker, &lock.Options{MaxHold: time.Millisecond, Reentrant: true})
	_ = sleep.For(s.Context(), 3*brief.TTL/2)
	if outer.Deadline().IsZero() || short.Deadline().IsZero() {
		s.Error("want the first lease's limits for all that follow")
	}
	s.release(short)
	_ = sleep.For(s.Context(), 3*brief.TTL/2)
	if outer.Deadline().IsZero() || work.Err() != nil {
		s.Error("want it renewed after the release of an inner lease")
	}
	s.release(outer)
}

func holderIsAContext(s *suite) {
	locker := s.locker(lock.Config{})
	lease, work := s.hold(locker)
	// In another goroutine it is the context that counts.
	failed := make(chan error, 2)
	go func() { _, err := locker.Acquire(s.Context(), s.res, nil); failed <- err }()
	s.wantIs("without the holder's context", within(s, "an answer", failed), lock.ErrBusy)
	again := &lock.Options{Reentrant: true}
	go func() { failed <- locker.Do(work, s.res, again, func(context.Context) error { return nil }) }()
	if err := within(s, "an answer", failed); err != nil {
		s.Errorf("with the holder's context: %v", err)
	}
	// The context is the holder of this resource, and of no other.
	other := s.on("another")
	held := other.take(other.locker(lock.Config{}))
	_, err := locker.Acquire(work, other.res, nil)
	s.wantIs("another resource", err, lock.ErrBusy)
	other.release(held)
	s.release(lease)
}

// twoGoroutinesWithOneContext: only one of them may be at work, and none waits for a lock of its
// own.
func twoGoroutinesWithOneContext(s *suite) {
	locker, network := s.faulty(lock.Config{})
	lease, work := s.hold(locker)
	token, steps := s.value(), len(network.Sent())
	for _, opts := range []*lock.Options{nil, {Wait: lock.Forever}, {Wait: lock.Forever, Retry: lock.Fixed(time.Millisecond)}} {
		failed := make(chan error, 1)
		go func() {
			failed <- locker.Do(work, s.res, opts, func(context.Context) error { return errors.New("two at work") })
		}()
		err := within(s, "an answer", failed)
		if !errors.Is(err, lock.ErrReentry) || errors.Is(err, lock.ErrBusy) || errors.Is(err, lock.ErrLost) {
			s.Errorf("%+v: want ErrReentry, and neither busy nor lost, have %v", opts, err)
		}
	}
	if have := s.value(); have != token || len(network.Sent()) != steps || lease.Deadline().IsZero() {
		s.Error("want nothing asked of the store, and the lock still held")
	}
	s.release(lease)
	s.release(s.takeIn(context.WithoutCancel(work), locker, nil)) // it is free for all after its release
	s.wantFree()
}
