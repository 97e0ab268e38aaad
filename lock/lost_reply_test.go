package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// retries are go-redis's own: its default, and none.
var retries = []struct {
	name string
	max  int
}{{"client retries", 0}, {"client does not retry", -1}}

// A faulty setup reaches Redis through a proxy; direct does not.
type faulty struct {
	*setup
	direct *setup
	proxy  *locktest.Proxy
}

func newFaulty(t *testing.T, maxRetries int, cfg lock.Config) *faulty {
	t.Helper()
	server := redistest.Shared(t)
	f := &faulty{proxy: locktest.NewProxy(t, server.Addr)}
	client := redis.NewClient(&redis.Options{Addr: f.proxy.Addr, ContextTimeoutEnabled: true, MaxRetries: maxRetries})
	t.Cleanup(func() { _ = client.Close() })
	f.setup = setUp(t, client, cfg)
	f.direct = setUp(t, server.Client(t), lock.Config{})
	f.listener = f.direct.listener
	// The server must know the scripts: else the first answer is that it does not.
	warm := f.on(t.Name() + " warm")
	warm.reserved("w")
	warm.leave("nobody")
	held := warm.take("w")
	expect.OK(t, held.Renew(t.Context()))
	warm.release(held)
	return f
}

// unheard makes a call whose answer is lost. Once acted says that Redis has acted, the connection
// is cut, and the network works again.
func (f *faulty) unheard(call func() error, acted func() bool) error {
	f.Helper()
	f.proxy.SwallowReplies(true)
	done := make(chan error, 1)
	go func() { done <- call() }()
	expect.Eventually(f.T, "Redis to have acted", acted)
	f.proxy.SwallowReplies(false)
	return <-done
}

// changed says whether the lock's value is another than before.
func (f *faulty) changed(before string) func() bool {
	f.Helper()
	return func() bool { return f.direct.value() != before }
}

// TestAcquireWhoseAnswerIsLost: the client's own retry holds what was taken,
// without it nothing is left behind.
func TestAcquireWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for _, tc := range retries {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, tc.max, lock.Config{})
			for _, reserved := range []bool{false, true} {
				if reserved {
					f.direct.reserved("w1")
				}
				acquired := f.changed(f.direct.value())
				var held *lease.Lease
				var fence string // of the first try
				err := f.unheard(func() (err error) {
					held, err = f.ask("w1")
					return err
				}, func() bool {
					ok := acquired()
					fence = f.direct.rdb.Get(t.Context(), f.fence).Val()
					return ok
				})
				if tc.max < 0 {
					wantBroken(t, "acquire", err)
				} else {
					expect.OK(t, err)
					expect.Equal(t, "fence, as of the first try", strconv.FormatInt(held.Fence(), 10), fence)
					_ = f.direct.refuse("")
					f.release(held)
				}
				f.wantFree()
				f.direct.wantQueue()
			}
		})
	}
}

// wantFree wants the lock free long before its TTL is over. The release of an acquire without an answer
// may have to be sent again.
func (f *faulty) wantFree() {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), 5*time.Second)
	defer cancel()
	err := expect.Until(ctx, func() error {
		if have := f.direct.value(); have != "" {
			return fmt.Errorf("have %q", have)
		}
		return nil
	})
	expect.That(f, err == nil, "want nothing left behind: %v", err)
}

// TestReentryWithoutFence: the fencing token is gone, as somebody deleted it, or Redis evicted it.
// So the retry needs a new one.
func TestReentryWithoutFence(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, 0, lock.Config{})
	var held *lock.Lease
	err := f.unheard(func() (err error) {
		held, err = f.Acquire(t.Context(), f.res, nil)
		return err
	}, func() bool {
		return f.direct.value() != "" && f.direct.rdb.Del(t.Context(), f.fence).Err() == nil
	})
	expect.OK(t, err)
	expect.That(t, held.Fence() > 0, "want a fence, have %d", held.Fence())
	f.release(held)
}

// TestRefusalWhoseAnswerIsLost: it had reserved the lock for the head of the
// wait queue, and does not reserve it for another.
func TestRefusalWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, 0, lock.Config{})
	f.direct.take("")
	f.direct.join("w1")
	f.direct.expire()
	var busy *lease.BusyError
	err := f.unheard(func() error {
		_, err := f.ask("newcomer")
		return err
	}, f.changed(""))
	expect.Need(t, errors.As(err, &busy), "want a BusyError, have %v", err)
	expect.That(t, busy.Position == 1 && busy.Holder == "the next in the wait queue",
		"want a position and a lock kept for the next, have %+v", busy)
	f.direct.wantNext("w1")
	f.direct.wantQueue("newcomer")
}

// TestCallsWhoseAnswerIsLost may be made twice.
func TestCallsWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, 0, lock.Config{})
	held := f.take("")
	f.direct.rdb.PExpire(t.Context(), f.key, 10*time.Second)
	err := f.unheard(func() error { return held.Renew(t.Context()) }, func() bool {
		return f.direct.rdb.PTTL(t.Context(), f.key).Val() > 10*time.Second
	})
	expect.That(t, err == nil && !held.Deadline().IsZero(), "renew: want it done, have %v", err)

	gone := func(waiter string) func() bool {
		return func() bool { return !slices.Contains(f.direct.queue(), waiter) }
	}
	f.direct.join("w1", "w2")
	leave := func(waiter string) func() error {
		return func() error { return f.Leave(t.Context(), lease.Request{Resource: f.res, Waiter: f.name(waiter)}) }
	}
	expect.OK(t, f.unheard(leave("w1"), gone("w1")))
	f.handOff(held, "w2")
	f.direct.join("w3")
	expect.OK(t, f.unheard(leave("w2"), gone("w3")))
	f.direct.wantNext("w3")
}

// TestReleaseWhoseAnswerIsLost frees the lock. The client's own second try is no loss if the first
// has handed the lock off, or if nobody has held it since; it never touches another's.
func TestReleaseWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for _, tc := range retries {
		for _, since := range []string{"nobody since", "a newcomer", "handed on"} {
			t.Run(tc.name+"/"+since, func(t *testing.T) {
				t.Parallel()
				f := newFaulty(t, tc.max, lock.Config{})
				held := f.take("")
				before := f.direct.value()
				next := f.direct.stranger()
				if since == "handed on" {
					next.join("w1")
				}
				var taken *lease.Lease
				err := f.unheard(func() error { return held.Release(t.Context()) }, func() bool {
					if f.direct.value() == before {
						return false
					}
					switch since {
					case "a newcomer":
						taken = next.take("")
					case "handed on":
						taken = next.take("w1")
					}
					return true
				})
				switch {
				case tc.max < 0:
					wantBroken(t, "release", err)
				case since == "a newcomer":
					wantLost(t, "release", err)
				default:
					expect.OK(t, err)
				}
				if taken != nil {
					f.release(taken)
				}
			})
		}
	}
}

// TestReservationWhoseAnswerIsLost: the lock has been reserved for a waiter by a call whose answer
// nobody got. The second one reserves the lock for no other, and wakes that waiter.
func TestReservationWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		store, network := locktest.Faulty(lock.Redis(s.rdb))
		locker := expect.Value(lock.New(store, lock.Config{TTL: time.Hour}))(s)
		defer locker.Close()
		held := expect.Value(locker.Acquire(s.Context(), s.res, nil))(s)
		got := make(chan error, 1)
		go func() {
			next, err := s.Acquire(s.Context(), s.res, &lock.Options{Wait: lock.Forever})
			if err == nil {
				err = next.Release(s.Context())
			}
			got <- err
		}()
		expect.Eventually(s.T, "a queued waiter", func() bool { return len(s.queue()) == 1 })
		network.Set(locktest.Once(locktest.Release, 1, locktest.SwallowReply))
		wantBroken(s, "release", held.Release(s.Context()))
		expect.Eventually(s.T, "the waiter to have had the lock", func() bool { return len(got) > 0 })
		expect.OK(s, <-got)
	})
}
