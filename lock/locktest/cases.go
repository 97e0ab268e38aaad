package locktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidingq/siding/lock"
)

// cases are what Run checks; docs/lock-cases.md tells the story behind each.
var cases = []struct {
	name string
	run  func(*suite)
}{
	{"01 holder is cut off", holderIsCutOff},
	{"02 validity counts from the sending", validityCountsFromTheSending},
	{"03 reply lost and sent again", replyLostAndSentAgain},
	{"04 reply lost for good", replyLostForGood},
	{"05 release on an ended context", releaseOnAnEndedContext},
	{"06 context ends while waiting", contextEndsWhileWaiting},
	{"07 context ends with a call under way", contextEndsWithACallUnderWay},
	{"09 release after expiry", releaseAfterExpiry},
	{"10 renewal of a key that is gone", renewalOfAKeyThatIsGone},
	{"11 stale lease of the same process", staleLeaseOfTheSameProcess},
	{"12 token is compared whole", tokenIsComparedWhole},
	{"13 second attempt of the same holder", secondAttemptOfTheSameHolder},
	{"14 re-entry counts once", reentryCountsOnce},
	{"15 release counts once", releaseCountsOnce},
	{"16 re-entry after a loss", reentryAfterALoss},
	{"17 re-entry and the deadline", reentryAndTheDeadline},
	{"18 holder is a context", holderIsAContext},
	{"19 renewal ends before the release", renewalEndsBeforeTheRelease},
	{"21 renewal fails once", renewalFailsOnce},
	{"22 longest hold", longestHold},
	{"35 operator deletes the key", operatorDeletesTheKey},
	{"36 another program holds the lock", anotherProgramHoldsTheLock},
	{"37 call is lost", callIsLost},
	{"38 waiter leaves the line", waiterLeavesTheLine},
	{"39 retry is shared", retryIsShared},
	{"40 wait is longer than the ttl", waitIsLongerThanTheTTL},
	{"41 one attempt for many", oneAttemptForMany},
	{"42 fence grows", fenceGrows},
	{"49 lock again after a loss", lockAgainAfterALoss},
	{"50 line is served in order of arrival", lineIsServedInOrder},
	{"50 place in line counts from the arrival", placeCountsFromTheArrival},
	{"work of three ttls with renewal", workWithRenewal},
	{"work of three ttls without renewal", workWithoutRenewal},
	{"crowd", crowd},
}

func holderIsCutOff(s *suite) {
	locker, network := s.faulty(brief)
	lease := s.take(locker)
	work := lease.Keep(s.Context())
	network.Set(BlackHole)
	rival := s.takeOnceFree()
	if work.Err() == nil || lease.Valid() {
		s.Error("want the holder told before another has the lock")
	}
	s.wantLost("cause", s.ended(work))
	s.release(rival)
}

func validityCountsFromTheSending(s *suite) {
	locker, network := s.faulty(brief)
	network.Set(Once(Acquire, 1, Slow(500*time.Millisecond)))
	lease := s.take(locker)
	work := lease.Keep(s.Context())
	network.Set(BlackHole)
	rival := s.takeOnceFree()
	if work.Err() == nil || lease.Valid() {
		s.Error("want the validity counted from the sending of the call, not from its answer")
	}
	s.release(rival)
}

func replyLostAndSentAgain(s *suite) {
	locker, network := s.faulty(lock.Config{})
	network.Set(Resend)
	lease := s.take(locker)
	if lease.Fence() <= 0 {
		s.Errorf("want a fence above 0, have %d", lease.Fence())
	}
	if err := lease.Renew(s.Context()); err != nil {
		s.Errorf("renew: %v", err)
	}
	_ = s.refuse()
	network.Set(Fine)
	s.release(lease)
	s.wantFree()
}

func replyLostForGood(s *suite) {
	locker, network := s.faulty(lock.Config{})
	network.Set(Once(Acquire, 1, SwallowReply))
	_, err := locker.Acquire(s.Context(), s.res)
	s.wantBroken("acquire", err)
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

func contextEndsWhileWaiting(s *suite) {
	holder := s.take(s.locker(lock.Config{}))
	for _, wait := range []lock.Wait{lock.InLine(), lock.Fixed(5 * time.Millisecond)} {
		ctx, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
		_, err := s.locker(lock.Config{}).With(lock.Options{Wait: wait}).Acquire(ctx, s.res)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lock.ErrBusy) {
			s.Errorf("want the context's error and ErrBusy, have %v", err)
		}
	}
	s.release(holder)
	s.eventually("a free lock", func() bool { return s.value() == "" })
}

func contextEndsWithACallUnderWay(s *suite) {
	for _, wait := range []lock.Wait{nil, lock.InLine(), lock.Fixed(time.Second)} {
		locker, network := s.faulty(lock.Config{})
		// The store takes the lock, but the answer comes after the caller has gone.
		ctx, cancel := context.WithCancel(s.Context())
		network.Set(Once(Acquire, 1, func(_ context.Context, _ string, act func() error) error {
			defer cancel()
			return act()
		}))
		if _, err := locker.With(lock.Options{Wait: wait}).Acquire(ctx, s.res); !errors.Is(err, context.Canceled) {
			s.Errorf("cancelled: want context.Canceled, have %v", err)
		}
		s.eventually("a free lock", func() bool { return s.value() == "" })

		// The store does not answer at all, nor later to what cleans up.
		network.Set(BlackHole)
		ctx, cancel = context.WithTimeout(s.Context(), 100*time.Millisecond)
		start := time.Now()
		_, err := locker.With(lock.Options{Wait: wait}).Acquire(ctx, s.res)
		cancel()
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
			s.Errorf("silent: want an error at the deadline of 100ms, have %v after %v", err, took)
		}
		network.Set(Fine)
	}
}

func releaseAfterExpiry(s *suite) {
	late := s.take(s.locker(brief))
	rival := s.takeOnceFree()
	before := s.value()
	s.wantLost("renew", late.Renew(s.Context()))
	s.wantLost("release", late.Release(s.Context()))
	if have := s.value(); have != before || !rival.Valid() {
		s.Errorf("want the rival's lock %q untouched, have %q", before, have)
	}
	s.release(rival)
}

func renewalOfAKeyThatIsGone(s *suite) {
	lease := s.take(s.locker(lock.Config{}))
	s.Put(s.T, s.key(), "", 0)
	s.wantLost("renew", lease.Renew(s.Context()))
	s.wantFree()
	if lease.Valid() {
		s.Error("want the lease lost")
	}
	s.wantLost("release", lease.Release(s.Context()))
}

func staleLeaseOfTheSameProcess(s *suite) {
	locker := s.locker(lock.Config{})
	stale := s.take(locker)
	s.Put(s.T, s.key(), "", 0)
	s.wantLost("renew", stale.Renew(s.Context()))
	fresh := s.take(locker)
	s.wantLost("release of the stale one", stale.Release(s.Context()))
	if err := fresh.Renew(s.Context()); err != nil {
		s.Errorf("want the fresh lease untouched, have %v", err)
	}
	s.release(fresh)
}

func tokenIsComparedWhole(s *suite) {
	seen := make(map[string]bool)
	for range 20 {
		lease := s.take(s.locker(lock.Config{}).With(lock.Options{Holder: "worker-1"}))
		token := s.value()
		if seen[token] {
			s.Fatalf("want a token of its own for each acquisition, have one again")
		}
		seen[token] = true
		// One that begins, or goes on, as ours does is another's.
		for _, other := range []string{token + "2", token[:len(token)-1], strings.ToUpper(token)} {
			s.Put(s.T, s.key(), other, time.Minute)
			s.wantLost("renew", lease.Renew(s.Context()))
			s.wantLost("release", lease.Release(s.Context()))
			if have := s.value(); have != other {
				s.Fatal("want another's lock untouched")
			}
			s.Put(s.T, s.key(), "", 0)
			lease = s.take(s.locker(lock.Config{}).With(lock.Options{Holder: "worker-1"}))
		}
		s.release(lease)
	}
}

func secondAttemptOfTheSameHolder(s *suite) {
	first := s.take(s.locker(lock.Config{}).With(lock.Options{Holder: "task 7", Waiter: "task 7"}))
	_, err := s.locker(lock.Config{}).With(lock.Options{Holder: "task 7", Waiter: "task 7"}).Acquire(s.Context(), s.res)
	if !errors.Is(err, lock.ErrBusy) {
		s.Errorf("want the second attempt refused while the first runs, have %v", err)
	}
	s.release(first)
}

func reentryCountsOnce(s *suite) {
	locker, network := s.faulty(lock.Config{})
	network.Set(Resend)
	outer := s.take(locker)
	work := outer.Keep(s.Context())
	network.Set(Fine)
	token, steps := s.value(), len(network.Sent())
	for _, wait := range []lock.Wait{nil, lock.InLine(), lock.Fixed(time.Second)} {
		inner, err := locker.With(lock.Options{Wait: wait}).Acquire(work, s.res)
		if err != nil {
			s.Fatalf("acquire again: %v", err)
		}
		if inner.Fence() != outer.Fence() || lock.Fence(inner.Keep(work)) != outer.Fence() {
			s.Errorf("want the fence %d kept, have %d", outer.Fence(), inner.Fence())
		}
		s.release(inner)
		if !outer.Valid() || work.Err() != nil {
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
	outer := s.take(locker)
	work := outer.Keep(s.Context())
	inner, err := locker.Acquire(work, s.res)
	if err != nil {
		s.Fatal(err)
	}
	s.release(inner)
	s.release(inner)
	if !outer.Valid() || s.value() == "" {
		s.Error("want the lock held until the outer lease is released")
	}
	// In the other order, too, the last one frees it.
	if inner, err = locker.Acquire(work, s.res); err != nil {
		s.Fatal(err)
	}
	s.release(outer)
	if !inner.Valid() || s.value() == "" {
		s.Error("want the lock held until the inner lease is released")
	}
	s.release(inner)
	s.wantFree()
}

func reentryAfterALoss(s *suite) {
	locker, network := s.faulty(brief)
	lease := s.take(locker)
	work := lease.Keep(s.Context())
	network.Set(BlackHole)
	_ = s.ended(work)
	network.Set(Fine)
	for what, ctx := range map[string]context.Context{"its context": work, "one that outlives it": context.WithoutCancel(work)} {
		_, err := locker.Acquire(ctx, s.res)
		s.wantLost("acquire with "+what, err)
	}
	_ = lease.Release(s.Context())
}

func reentryAndTheDeadline(s *suite) {
	locker := s.locker(brief)
	outer := s.take(locker)
	work := outer.Keep(s.Context())
	short, err := locker.With(lock.Options{MaxHold: time.Millisecond}).Acquire(work, s.res)
	if err != nil {
		s.Fatal(err)
	}
	s.await(3 * brief.TTL / 2)
	if !outer.Valid() || !short.Valid() {
		s.Error("want the first lease's limits for all that follow")
	}
	s.release(short)
	s.await(3 * brief.TTL / 2)
	if !outer.Valid() || work.Err() != nil {
		s.Error("want it renewed after the release of an inner lease")
	}
	s.release(outer)
}

func holderIsAContext(s *suite) {
	locker := s.locker(lock.Config{})
	lease := s.take(locker)
	work := lease.Keep(s.Context())
	// In another goroutine it is the context that counts.
	failed := make(chan error, 2)
	go func() { _, err := locker.Acquire(s.Context(), s.res); failed <- err }()
	if err := within(s, "an answer", failed); !errors.Is(err, lock.ErrBusy) {
		s.Errorf("without the holder's context: want ErrBusy, have %v", err)
	}
	go func() { failed <- locker.Hold(work, s.res, func(context.Context) error { return nil }) }()
	if err := within(s, "an answer", failed); err != nil {
		s.Errorf("with the holder's context: %v", err)
	}
	// It is the holder of this resource, of no other.
	other := s.on("another")
	held := other.take(other.locker(lock.Config{}))
	if _, err := locker.Acquire(work, other.res); !errors.Is(err, lock.ErrBusy) {
		s.Errorf("another resource: want ErrBusy, have %v", err)
	}
	other.release(held)
	s.release(lease)
}

// on returns the same case with another resource.
func (s *suite) on(resource string) *suite {
	other := *s
	other.res += "/" + resource
	return &other
}

func renewalEndsBeforeTheRelease(s *suite) {
	locker, network := s.faulty(brief)
	for range 5 {
		lease := s.take(locker)
		network.Set(Only(Renew, Slow(50*time.Millisecond)))
		lease.Keep(s.Context())
		renewals := len(network.SentAt(Renew, time.Time{}))
		s.eventually("a renewal", func() bool { return len(network.SentAt(Renew, time.Time{})) > renewals })
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
	lease := s.take(locker)
	work := lease.Keep(s.Context())
	network.Set(Once(Renew, 2, Refuse))
	s.await(3 * brief.TTL / 2)
	if work.Err() != nil || !lease.Valid() {
		s.Errorf("want the lease to live on, have %v", context.Cause(work))
	}
	s.release(lease)
}

func longestHold(s *suite) {
	const longest = 500 * time.Millisecond
	locker, network := s.faulty(brief)
	lease := s.take(locker.With(lock.Options{MaxHold: longest}))
	work := lease.Keep(s.Context())
	cause := s.ended(work)
	s.wantLost("cause", cause)
	if !errors.Is(cause, lock.ErrMaxHold) {
		s.Errorf("want ErrMaxHold, have %v", cause)
	}
	if held := lease.Held(); held < longest {
		s.Errorf("want it held for %v, have %v", longest, held)
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

func operatorDeletesTheKey(s *suite) {
	lease := s.take(s.locker(brief))
	work := lease.Keep(s.Context())
	s.Put(s.T, s.key(), "", 0)
	s.wantLost("cause", s.ended(work))
	s.wantFree()
	s.wantLost("release", lease.Release(s.Context()))
}

func anotherProgramHoldsTheLock(s *suite) {
	for _, value := range []string{"8f3a60", "siding", "0"} {
		s.Put(s.T, s.key(), value, time.Minute)
		if busy := s.refuse(); !busy.Foreign || busy.Remaining <= 0 || busy.Remaining > time.Minute {
			s.Errorf("want a foreign holder with up to a minute left, have %+v", busy)
		}
		if have := s.value(); have != value {
			s.Errorf("want %q untouched, have %q", value, have)
		}
		// It calls nobody back, but is waited for.
		w := s.waits(lock.Config{})
		s.Put(s.T, s.key(), "", 0)
		s.release(within(s, "the lock", w.lease))
	}
}

func callIsLost(s *suite) {
	holder := s.take(s.locker(brief))
	locker, network := s.faulty(brief)
	network.Set(Only(Call, Refuse))
	w := s.waitsIn(locker)
	s.eventually("the waiter's first try", func() bool { return len(network.SentAt(Acquire, time.Time{})) > 0 })
	s.settle(network)
	s.release(holder)
	s.release(within(s, "the lock, by the waiter's own timer", w.lease))
	s.wantFree()
}

func waiterLeavesTheLine(s *suite) {
	holder := s.take(s.locker(lock.Config{}))
	var line []*waiting
	for range 4 {
		line = append(line, s.waits(lock.Config{}))
	}
	for _, w := range line[:3] {
		w.leave()
		if err := within(s, "the end of the wait", w.err); !errors.Is(err, context.Canceled) || !errors.Is(err, lock.ErrBusy) {
			s.Errorf("want context.Canceled and ErrBusy, have %v", err)
		}
	}
	start := time.Now()
	s.release(holder)
	lease := within(s, "the lock", line[3].lease)
	if took := time.Since(start); took >= (lock.Config{}).Defaults().Grace {
		s.Errorf("want the lock at once, have it after %v", took)
	}
	s.release(lease)
	s.wantFree()
}

func retryIsShared(s *suite) {
	const goroutines, limit = 20, 3
	retry := lock.Limit(limit, lock.Fixed(time.Millisecond))
	var all sync.WaitGroup
	for i := range goroutines {
		one := s.on(fmt.Sprint(i))
		holder := one.take(one.locker(lock.Config{}))
		locker, network := one.faulty(lock.Config{})
		all.Go(func() {
			_, err := locker.With(lock.Options{Wait: retry}).Acquire(s.Context(), one.res)
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
	holder := s.take(s.locker(brief))
	work := holder.Keep(s.Context())
	w := s.waits(brief)
	s.await(3 * brief.TTL / 2)
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
	go func() { _, err := locker.Acquire(ctx, s.res); gone <- err }()
	<-sent
	var started sync.WaitGroup
	for range goroutines {
		started.Add(1)
		go func() {
			started.Done()
			lease, err := locker.Acquire(s.Context(), s.res)
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
	if err := within(s, "the first", gone); !errors.Is(err, context.Canceled) {
		s.Errorf("the first: want context.Canceled, have %v", err)
	}
	lease := within(s, "a lease", leases)
	for range goroutines - 1 {
		if err := within(s, "a refusal", failed); !errors.Is(err, lock.ErrBusy) {
			s.Errorf("want ErrBusy, have %v", err)
		}
	}
	if have := len(network.SentAt(Acquire, time.Time{})); have > 3 {
		s.Errorf("want one contender at a time for %d goroutines, have %d calls", goroutines+1, have)
	}
	s.release(lease)
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
		work := lease.Keep(s.Context())
		if have := lock.Fence(work); have != last {
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

func lockAgainAfterALoss(s *suite) {
	locker := s.locker(brief)
	lost := s.take(locker)
	work := lost.Keep(s.Context())
	s.Put(s.T, s.key(), "", 0)
	s.wantLost("cause", s.ended(work))
	again := s.take(locker) // without a release of the first
	if again.Fence() <= lost.Fence() {
		s.Errorf("want a fence above %d, have %d", lost.Fence(), again.Fence())
	}
	s.wantLost("release", lost.Release(s.Context()))
	s.release(again)
	s.wantFree()
}

func lineIsServedInOrder(s *suite) {
	holder := s.take(s.locker(lock.Config{}))
	var line []*waiting
	for range 10 {
		line = append(line, s.waits(lock.Config{}))
	}
	last := holder
	for i, w := range line {
		s.release(last)
		last = within(s, fmt.Sprintf("the lock for number %d", i+1), w.lease)
		for _, later := range line[i+1:] {
			if len(later.lease) > 0 {
				s.Fatalf("want number %d alone, have a later one, too", i+1)
			}
		}
	}
	s.release(last)
	s.wantFree()
}

// placeCountsFromTheArrival: of a process only one stands in line at a time. The
// next is not put behind those who came to other processes after it.
func placeCountsFromTheArrival(s *suite) {
	holder := s.take(s.locker(lock.Config{}))
	locker, network := s.faulty(lock.Config{})
	tries := func(n int) {
		s.Helper()
		s.eventually("its try", func() bool { return len(network.SentAt(Acquire, time.Time{})) >= n })
		s.settle(network)
	}
	first := s.waitsIn(locker)
	tries(1)
	second := s.waitsIn(locker)
	s.await(100 * time.Millisecond) // it waits for its turn in the process
	other := s.waits(lock.Config{})
	s.release(holder)
	lease := within(s, "the lock for the first", first.lease)
	tries(3)
	s.release(lease)
	s.release(within(s, "the lock for the second", second.lease))
	s.release(within(s, "the lock for the other", other.lease))
	s.wantFree()
}

func workWithRenewal(s *suite) {
	err := s.locker(brief).Hold(s.Context(), s.res, func(ctx context.Context) error {
		s.await(3 * brief.TTL)
		_ = s.refuse() //nolint:contextcheck // another process
		return context.Cause(ctx)
	})
	if err != nil {
		s.Errorf("want three TTLs of work done under the lock, have %v", err)
	}
	s.wantFree()
}

func workWithoutRenewal(s *suite) {
	lease := s.take(s.locker(brief))
	s.await(3 * brief.TTL)
	if lease.Valid() {
		s.Error("want a lease that is not renewed lost")
	}
	s.release(s.takeOnceFree())
	s.wantLost("release", lease.Release(s.Context()))
}

// crowd is many processes with many goroutines each, by all ways to wait.
func crowd(s *suite) {
	const processes, goroutines, rounds = 4, 5, 4
	waits := []lock.Wait{lock.InLine(), lock.InLine(), lock.Exponential(time.Millisecond, 20*time.Millisecond)}
	var inside, last atomic.Int64
	var all sync.WaitGroup
	for p := range processes {
		locker := s.locker(lock.Config{})
		for g := range goroutines {
			locker := locker.With(lock.Options{Wait: waits[(p+g)%len(waits)]})
			all.Go(func() {
				for range rounds {
					if err := locker.Hold(s.Context(), s.res, func(ctx context.Context) error {
						defer inside.Add(-1)
						if n := inside.Add(1); n != 1 {
							return fmt.Errorf("want one holder, have %d", n)
						}
						if before := last.Swap(lock.Fence(ctx)); before >= lock.Fence(ctx) {
							return fmt.Errorf("want a fence above %d, have %d", before, lock.Fence(ctx))
						}
						return locker.Hold(ctx, s.res, func(context.Context) error { return nil })
					}); err != nil {
						s.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	s.wantFree()
}
