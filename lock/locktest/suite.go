package locktest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

// A Backend is a store that [Run] tests.
type Backend struct {
	// Open returns one more client of the same locks, as another process has.
	Open func(t *testing.T) lock.Store
	// Put stores a value at the key of a lock, as a program on the plain protocol
	// does; "" deletes the key, as an operator may.
	Put func(t *testing.T, key, value string, ttl time.Duration)
	// Value returns what is at the key of a lock, "" for nothing.
	Value func(t *testing.T, key string) string
	// NoFence says that the store has no fencing tokens.
	NoFence bool
	// NoWaitQueue says that the store has no wait queue: waiters are served in no order.
	NoWaitQueue bool
	// FakeTime runs each case on the fake clock of testing/synctest, for a store
	// without sockets. Others take the time they take.
	FakeTime bool
}

// Run checks what package lock promises of locks in any [lock.Store], with one subtest for each
// case. Call it with a test of its own, as the test's name becomes a part of the resources' names.
// The caller checks for leaks of goroutines after the last test.
func Run(t *testing.T, b Backend) {
	t.Helper()
	for _, c := range cases {
		if c.needs == fences && b.NoFence || c.needs == queue && b.NoWaitQueue {
			continue
		}
		b.check(t, c.name, c.run)
	}
}

// Smoke checks three cases of [Run], in a second or two. An answer is lost and the
// call is sent again. The key of a lock is gone when it is renewed. Processes with
// many goroutines each take and release a lock, and wait for it in all ways.
func Smoke(t *testing.T, b Backend) {
	t.Helper()
	b.check(t, "reply lost and sent again", replyLostAndSentAgain)
	b.check(t, "renewal of a key that is gone", renewalOfAKeyThatIsGone)
	b.check(t, "crowd", crowd)
}

// check runs one case as a subtest.
func (b Backend) check(t *testing.T, name string, run func(*suite)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		check := func(t *testing.T) {
			t.Helper()
			run(&suite{T: t, Backend: b, res: t.Name()})
		}
		if b.FakeTime {
			synctest.Test(t, check)
		} else {
			check(t)
		}
	})
}

// patience bounds every wait for something that must happen; only a case that
// fails waits for its end.
const patience = 20 * time.Second

// brief is the configuration of cases in which a lock expires.
var brief = lock.Config{TTL: 2 * time.Second, RenewEvery: 400 * time.Millisecond, SafetyMargin: 200 * time.Millisecond, HandoffTimeout: 500 * time.Millisecond}

// A suite is one case with a resource of its own.
type suite struct {
	*testing.T
	Backend

	res string
}

func (s *suite) key() string { return "lock:" + s.res }

// locker returns one of a process of its own.
func (s *suite) locker(cfg lock.Config) *lock.Locker {
	s.Helper()
	return s.lockerOn(s.Open(s.T), cfg)
}

func (s *suite) lockerOn(store lock.Store, cfg lock.Config) *lock.Locker {
	s.Helper()
	locker, err := lock.New(store, cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(locker.Close)
	return locker
}

// faulty returns a locker of a process of its own, behind a network.
func (s *suite) faulty(cfg lock.Config) (*lock.Locker, *Network) {
	s.Helper()
	store, network := Faulty(s.Open(s.T))
	return s.lockerOn(store, cfg), network
}

// take takes the lock, which must be free.
func (s *suite) take(locker *lock.Locker) *lock.Lease {
	s.Helper()
	return s.takeAs(locker, nil)
}

func (s *suite) takeAs(locker *lock.Locker, opts *lock.Options) *lock.Lease {
	s.Helper()
	lease, err := locker.Acquire(s.Context(), s.res, opts)
	if err != nil {
		s.Fatalf("acquire: want the lock, have %v", err)
	}
	return lease
}

// takeOnceFree takes the lock in a process of its own as soon as it can be had.
func (s *suite) takeOnceFree() (lease *lock.Lease) {
	s.Helper()
	locker := s.locker(lock.Config{})
	expect.Eventually(s.T, "the lock", func() bool {
		l, err := locker.Acquire(s.Context(), s.res, nil)
		if err != nil && !errors.Is(err, lock.ErrBusy) {
			s.Fatalf("acquire: want a lease or ErrBusy, have %v", err)
		}
		lease = l
		return err == nil
	})
	return lease
}

// wantBusy asks for the lock in a process of its own; the lock must be busy.
func (s *suite) wantBusy() *lock.BusyError {
	s.Helper()
	lease, err := s.locker(lock.Config{}).Acquire(s.Context(), s.res, nil)
	busy, ok := errors.AsType[*lock.BusyError](err)
	if !ok || !errors.Is(err, lock.ErrBusy) {
		s.Fatalf("acquire: want a BusyError, have lease %v and %v", lease, err)
	}
	return busy
}

func (s *suite) release(lease *lock.Lease) {
	s.Helper()
	if err := lease.Release(s.Context()); err != nil {
		s.Fatalf("release: %v", err)
	}
}

func (s *suite) value() string {
	s.Helper()
	return s.Value(s.T, s.key())
}

// wantFree checks that nothing keeps others from the lock.
func (s *suite) wantFree() {
	s.Helper()
	if have := s.value(); have != "" {
		s.Errorf("want the lock free, have %q", have)
	}
}

// wantFence checks that the fence of a lease is above before, or that it has none.
func (s *suite) wantFence(lease *lock.Lease, before int64) {
	s.Helper()
	if have := lease.Fence(); s.NoFence && have != 0 || !s.NoFence && have <= before {
		s.Errorf("want a fence above %d, or 0 if there are none (%t), have %d", before, s.NoFence, have)
	}
}

// wantIs checks that an error is all of these.
func (s *suite) wantIs(what string, err error, all ...error) {
	s.Helper()
	for _, want := range all {
		if !errors.Is(err, want) {
			s.Errorf("%s: want %v, have %v", what, want, err)
		}
	}
}

// wantLost checks an error of a lease that has ended.
func (s *suite) wantLost(what string, err error) {
	s.Helper()
	if !errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrBusy) {
		s.Errorf("%s: want ErrLost, have %v", what, err)
	}
}

// wantBroken checks an error of the store.
func (s *suite) wantBroken(what string, err error) {
	s.Helper()
	if err == nil || errors.Is(err, lock.ErrBusy) || errors.Is(err, lock.ErrLost) {
		s.Errorf("%s: want an error that is neither busy nor lost, have %v", what, err)
	}
}

// abandon leaves a lease as a holder does that has died: nobody renews or releases it.
func abandon(held *lock.Lease) {
	ctx, end := context.WithCancel(context.Background())
	end()
	held.Context(ctx)
}

// within waits for something that must happen.
func within[T any](s *suite, what string, c <-chan T) T {
	s.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		s.Fatalf("want %s in time", what)
		panic("not reached")
	}
}

// inQueue is how to wait in the wait queue.
var inQueue = lock.Options{Wait: lock.Forever}

// polled is how to try again every d.
func polled(d time.Duration) lock.Options {
	return lock.Options{Wait: lock.Forever, Retry: lock.Fixed(d)}
}

// A waiting is a call of Acquire that waits in the wait queue.
type waiting struct {
	lease chan *lock.Lease
	err   chan error
	leave context.CancelFunc
}

// waits starts to wait in the wait queue for the lock, and returns once it does.
func (s *suite) waits(cfg lock.Config) *waiting {
	s.Helper()
	return s.waitsAs(cfg, inQueue)
}

// waitsAs starts to wait in the given way, and returns once it has found the lock busy.
func (s *suite) waitsAs(cfg lock.Config, how lock.Options) *waiting {
	s.Helper()
	locker, network := s.faulty(cfg)
	w := s.waitsOn(locker, how)
	s.tried(network, 1)
	return w
}

// tried returns when so many tries of waiters were sent, and have been answered.
func (s *suite) tried(network *Network, tries int) {
	s.Helper()
	expect.Eventually(s.T, "a waiter's try", func() bool { return len(network.SentAt(Acquire, time.Time{})) >= tries })
	expect.Eventually(s.T, "an idle network", network.idle)
}

// waitsOn starts to wait for the lock.
func (s *suite) waitsOn(locker *lock.Locker, how lock.Options) *waiting {
	ctx, cancel := context.WithCancel(s.Context())
	w := &waiting{lease: make(chan *lock.Lease, 1), err: make(chan error, 1), leave: cancel}
	go func() {
		lease, err := locker.Acquire(ctx, s.res, &how)
		if err != nil {
			w.err <- err
		} else {
			w.lease <- lease
		}
	}()
	return w
}
