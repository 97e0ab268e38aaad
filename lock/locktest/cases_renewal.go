package locktest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

func renewalOfAKeyThatIsGone(s *suite) {
	lease := s.take(s.locker(lock.Config{}))
	s.Put(s.T, s.key(), "", 0)
	s.wantLost("renew", lease.Renew(s.Context()))
	s.wantFree()
	if !lease.Deadline().IsZero() {
		s.Error("want the lease lost")
	}
	s.wantLost("release", lease.Release(s.Context()))
}

func renewalEndsBeforeTheRelease(s *suite) {
	locker, network := s.faulty(brief)
	for range 5 {
		lease := s.take(locker)
		network.Set(Only(Renew, Slow(50*time.Millisecond)))
		renewals := len(network.SentAt(Renew, time.Time{}))
		expect.Eventually(s.T, "a renewal", func() bool { return len(network.SentAt(Renew, time.Time{})) > renewals })
		s.release(lease)
		sent := network.Sent()
		if last := sent[len(sent)-1]; last.Step != Release {
			s.Errorf("want the release last, have %s", last.Step)
		}
		s.wantFree()
	}
}

func renewalFailsOnce(s *suite) {
	locker, network := s.faulty(brief)
	lease, work := s.hold(locker)
	network.Set(Once(Renew, 2, Refuse))
	_ = sleep.For(s.Context(), 3*brief.TTL/2)
	if work.Err() != nil || lease.Deadline().IsZero() {
		s.Errorf("want the lease to live on, have %v", context.Cause(work))
	}
	s.release(lease)
}

func renewalInTheWorkOfALostLock(s *suite) {
	lease := s.take(s.locker(lock.Config{}))
	work, lose := context.WithCancelCause(lease.Context(s.Context()))
	lose(lock.ErrLost) // another one, that was taken within
	if err := lease.Renew(work); errors.Is(err, lock.ErrLost) || lease.Deadline().IsZero() {
		s.Errorf("want the lease not to be lost, have %v", err)
	}
	s.release(lease)
	s.wantFree()
}

func longestHold(s *suite) {
	const longest = 500 * time.Millisecond
	locker, network := s.faulty(brief)
	start := time.Now()
	lease := s.takeAs(locker, &lock.Options{MaxHold: longest})
	work := lease.Context(s.Context())
	cause := expect.Ended(s.T, work)
	s.wantLost("cause", cause)
	if held := time.Since(start); held < longest || !strings.Contains(cause.Error(), "longest time allowed") {
		s.Errorf("want it held for %v, and the reason, have %v and %v", longest, held, cause)
	}
	if s.value() == "" {
		s.Error("want others kept out while the work winds down")
	}
	renewals := len(network.SentAt(Renew, time.Time{}))
	s.release(s.takeOnceFree())
	if have := len(network.SentAt(Renew, time.Time{})); have != renewals {
		s.Errorf("want no renewal after that, have %d", have-renewals)
	}
	s.wantLost("release", lease.Release(s.Context()))
}

func workWithRenewal(s *suite) {
	err := s.locker(brief).Do(s.Context(), s.res, nil, func(ctx context.Context) error {
		_ = sleep.For(ctx, 3*brief.TTL)
		_ = s.wantBusy() //nolint:contextcheck // another process
		return context.Cause(ctx)
	})
	if err != nil {
		s.Errorf("want three TTLs of work done under the lock, have %v", err)
	}
	s.wantFree()
}

func workWithoutRenewal(s *suite) {
	lease := s.take(s.locker(brief))
	abandon(lease)
	_ = sleep.For(s.Context(), 3*brief.TTL)
	if !lease.Deadline().IsZero() {
		s.Error("want a lease that is not renewed lost")
	}
	s.release(s.takeOnceFree())
	s.wantLost("release", lease.Release(s.Context()))
}
