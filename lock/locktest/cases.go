package locktest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

// A feature is what a store may do without.
type feature int

const (
	none feature = iota
	fences
	queue
)

// cases are what Run checks. docs/evidence/lock-cases.md says under the same number what must happen.
var cases = []struct {
	name  string
	run   func(*suite)
	needs feature
}{
	{"02 validity counts from the sending", validityCountsFromTheSending, none},
	{"03 reply lost and sent again", replyLostAndSentAgain, none},
	{"04 reply lost for good", replyLostForGood, none},
	{"05 release on an ended context", releaseOnAnEndedContext, none},
	{"06 context ends while waiting", contextEndsWhileWaiting, none},
	{"07 context ends with a call under way", contextEndsWithACallUnderWay, none},
	{"09 release after expiry", releaseAfterExpiry, none},
	{"09 release of another's lock", releaseOfAnothersLock, none},
	{"10 renewal of a key that is gone", renewalOfAKeyThatIsGone, none},
	{"11 stale lease of the same process", staleLeaseOfTheSameProcess, none},
	{"12 token is compared whole", tokenIsComparedWhole, none},
	{"15 release is sent again after another has come", releaseSentAgain, none},
	{"21 renewal in the work of a lock that was lost", renewalInTheWorkOfALostLock, none},
	{"36 another program holds the lock", anotherProgramHoldsTheLock, none},
	{"37 wake is lost", wakeIsLost, none},
	{"38 waiter leaves the wait queue", waiterLeavesTheQueue, none},
	{"40 work and wait of three ttls", workOfThreeTTLs, none},
	{"42 fence grows", fenceGrows, fences},
	{"47 crowd", crowd, none},
	{"50 wait queue is served in order of arrival", queueIsServedInOrder, queue},
	{"50 position counts from the arrival", positionCountsFromTheArrival, queue},
}

// validityCountsFromTheSending: the holder is cut off after an answer that was slow.
func validityCountsFromTheSending(s *suite) {
	locker, network := s.faulty(brief)
	var lease *lock.Lease
	expect.Eventually(s.T, "the lock before its deadline", func() bool { // on a machine that stands still the answer comes later
		network.Set(Once(Acquire, 1, Slow(500*time.Millisecond)))
		l, err := locker.Acquire(s.Context(), s.res, nil)
		lease = l
		return err == nil
	})
	work := lease.Context(s.Context())
	network.Set(BlackHole)
	rival := s.takeOnceFree()
	if work.Err() == nil || !lease.Deadline().IsZero() {
		s.Error("want the holder told before another has the lock: its validity counts from the sending of the call")
	}
	s.wantLost("cause", expect.Ended(s.T, work))
	s.release(rival)
}

func replyLostAndSentAgain(s *suite) {
	locker, network := s.faulty(lock.Config{})
	network.Set(Resend)
	lease := s.take(locker)
	s.wantFence(lease, 0)
	if err := lease.Renew(s.Context()); err != nil {
		s.Errorf("renew: %v", err)
	}
	_ = s.wantBusy()
	s.release(lease)
	s.wantFree()
}

func replyLostForGood(s *suite) {
	locker, network := s.faulty(lock.Config{})
	network.Set(Once(Acquire, 1, SwallowReply))
	_, err := locker.Acquire(s.Context(), s.res, nil)
	s.wantBroken("acquire", err)
	s.wantFree()
}

// releaseSentAgain: the first release was applied. The second one frees nothing that
// somebody else has taken since.
func releaseSentAgain(s *suite) {
	locker, network := s.faulty(lock.Config{})
	lease, rival := s.take(locker), s.locker(lock.Config{})
	var next *lock.Lease
	network.Set(Once(Release, 1, func(_ context.Context, _ string, act func() error) error {
		_ = act()
		next = s.take(rival) //nolint:contextcheck // the test's own
		return act()
	}))
	if err := lease.Release(s.Context()); err != nil && !errors.Is(err, lock.ErrLost) {
		s.Errorf("want no error, or ErrLost, have %v", err)
	}
	if err := next.Renew(s.Context()); err != nil {
		s.Errorf("want the next holder undisturbed, have %v", err)
	}
	s.release(next)
	s.wantFree()
}

func releaseOnAnEndedContext(s *suite) {
	locker := s.locker(lock.Config{})
	lease := s.take(locker)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if err := lease.Release(ctx); err != nil {
		s.Errorf("release: %v", err)
	}
	s.wantFree()
}

func releaseAfterExpiry(s *suite) {
	late := s.take(s.locker(brief))
	abandon(late)
	rival := s.takeOnceFree()
	if !late.Deadline().IsZero() {
		s.Error("want a lease that is not renewed lost")
	}
	before := s.value()
	s.wantLost("renew", late.Renew(s.Context()))
	s.wantLost("release", late.Release(s.Context()))
	if have := s.value(); have != before || rival.Deadline().IsZero() {
		s.Errorf("want the rival's lock %q untouched, have %q", before, have)
	}
	s.release(rival)
}

// The holder has not noticed that it has lost its lock: the store alone knows.
func releaseOfAnothersLock(s *suite) {
	lease := s.take(s.locker(lock.Config{}))
	s.Put(s.T, s.key(), "another's", time.Minute)
	s.wantLost("release", lease.Release(s.Context()))
	if have := s.value(); have != "another's" {
		s.Errorf("want another's lock untouched, have %q", have)
	}
	s.Put(s.T, s.key(), "", 0)
}

func staleLeaseOfTheSameProcess(s *suite) {
	locker := s.locker(lock.Config{})
	stale := s.take(locker)
	s.Put(s.T, s.key(), "", 0)
	s.wantLost("renew", stale.Renew(s.Context()))
	fresh := s.take(locker) // without a release of the first
	s.wantFence(fresh, stale.Fence())
	s.wantLost("release of the stale one", stale.Release(s.Context()))
	if err := fresh.Renew(s.Context()); err != nil {
		s.Errorf("want the fresh lease untouched, have %v", err)
	}
	s.release(fresh)
}

func tokenIsComparedWhole(s *suite) {
	seen := make(map[string]bool)
	for range 20 {
		lease := s.takeAs(s.locker(lock.Config{}), &lock.Options{Holder: "worker-1"})
		token := s.value()
		if seen[token] {
			s.Fatalf("want a token of its own for each acquisition, have one again")
		}
		seen[token] = true
		_, err := s.locker(lock.Config{}).Acquire(s.Context(), s.res, &lock.Options{Holder: "worker-1"})
		s.wantIs("a second attempt of the same holder", err, lock.ErrBusy)
		// One that begins, or goes on, as ours does is another's.
		for _, other := range []string{token + "2", token[:len(token)-1], strings.ToUpper(token)} {
			s.Put(s.T, s.key(), other, time.Minute)
			s.wantLost("renew", lease.Renew(s.Context()))
			s.wantLost("release", lease.Release(s.Context()))
			if have := s.value(); have != other {
				s.Fatal("want another's lock untouched")
			}
			s.Put(s.T, s.key(), "", 0)
			lease = s.takeAs(s.locker(lock.Config{}), &lock.Options{Holder: "worker-1"})
		}
		s.release(lease)
	}
}

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

func fenceGrows(s *suite) {
	var last int64
	for i := range 50 {
		locker := s.locker(lock.Config{})
		lease := s.take(locker)
		if lease.Fence() <= last {
			s.Fatalf("want a fence above %d, have %d", last, lease.Fence())
		}
		last = lease.Fence()
		work := lease.Context(s.Context())
		if have := lock.Fence(work, s.res); have != last {
			s.Errorf("want the context to carry %d, have %d", last, have)
		}
		if i%2 == 0 {
			s.release(lease)
			continue
		}
		s.Put(s.T, s.key(), "", 0) // as if it had expired
		s.wantLost("renew", lease.Renew(s.Context()))
		_ = lease.Release(s.Context())
	}
}
