package etcdlock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/etcdlock"
)

// waiters are those who wait for a lock, by number.
type waiters struct {
	*testing.T

	admin    *clientv3.Client
	resource string
	ctx      context.Context //nolint:containedctx // that of all who wait
	all      sync.WaitGroup
	size     int
	served   chan served
}

// A served waiter has the lock.
type served struct {
	n       int
	release func(context.Context) error
}

func newWaiters(t *testing.T, admin *clientv3.Client, resource string) *waiters {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &waiters{T: t, admin: admin, resource: resource, ctx: ctx, served: make(chan served, 100)}
	t.Cleanup(func() {
		cancel()
		w.all.Wait()
	})
	return w
}

// join has one more wait by a locker, and returns once it is in the wait queue.
func (w *waiters) join(locker *lock.Locker) {
	w.Helper()
	before := len(keysOf(w.T, w.admin, w.resource))
	w.joins(func(ctx context.Context) (func(context.Context) error, error) {
		lease, err := locker.Acquire(ctx, w.resource, &lock.Options{Wait: lock.Forever})
		if err != nil {
			return nil, err
		}
		return lease.Release, nil
	})
	expect.Eventually(w.T, "a position in the wait queue", func() bool { return len(keysOf(w.T, w.admin, w.resource)) > before })
}

// joins has one more wait, by some means, which returns how to release the lock.
func (w *waiters) joins(wait func(context.Context) (func(context.Context) error, error)) {
	n := w.size
	w.size++
	w.all.Go(func() {
		release, err := wait(w.ctx)
		switch {
		case err == nil:
			w.served <- served{n, release}
		case w.ctx.Err() == nil:
			w.Errorf("number %d: %v", n, err)
		}
	})
}

// next returns the next who has the lock.
func (w *waiters) next() served {
	w.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case s := <-w.served:
		return s
	case <-timer.C:
		w.Fatal("want the next to have the lock in time")
		return served{}
	}
}

// wantServed lets the waiters have the lock, one after the other.
func (w *waiters) wantServed(want ...int) {
	w.Helper()
	var have []int
	for range want {
		s := w.next()
		have = append(have, s.n)
		if err := s.release(w.Context()); err != nil {
			w.Errorf("number %d: release: %v", s.n, err)
		}
	}
	expect.That(w, slices.Equal(have, want), "want %v served in this order, have %v", want, have)
}

// keysOf returns the keys of a lock, the holder's first.
func keysOf(t *testing.T, client *clientv3.Client, resource string) []string {
	t.Helper()
	resp, err := client.Get(t.Context(), prefixOf("lock:"+resource), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	expect.OK(t, err)
	keys := make([]string, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		keys[i] = string(kv.Key)
	}
	return keys
}

// leasesOf returns the sessions that there are.
func leasesOf(t *testing.T, client *clientv3.Client) int {
	t.Helper()
	resp := expect.Value(client.Leases(t.Context()))(t)
	return len(resp.Leases)
}

// TestWaitersOfOneProcessKeepTheirOrder: the order is that of arrival, whatever process a
// waiter is in.
func TestWaitersOfOneProcessKeepTheirOrder(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	admin := connect(t, server.Addr)
	one, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	other, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	holder := take(t, one, t.Name())
	waiters := newWaiters(t, admin, t.Name())
	for _, locker := range []*lock.Locker{one, other, one, one, other, other, one} {
		waiters.join(locker)
	}
	expect.Equal(t, "sessions, as each of 8 acquisitions has one", leasesOf(t, admin), 8)
	_, err := other.Acquire(t.Context(), t.Name(), nil)
	if busy, ok := errors.AsType[*lock.BusyError](err); !ok || busy.Foreign || busy.Remaining <= 0 || busy.Remaining > 15*time.Second || busy.Position != 0 {
		t.Errorf("want it busy for up to 15s, have %+v", err)
	}
	release(t, holder)
	waiters.wantServed(0, 1, 2, 3, 4, 5, 6)
	expect.Eventually(t, "no session left", func() bool { return leasesOf(t, admin) == 0 })
}

// TestNewcomerDoesNotOvertake a waiter while the lock is free for a moment.
func TestNewcomerDoesNotOvertake(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	admin := connect(t, server.Addr)
	locker, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	// One who waits, and whose process stands still.
	lease := expect.Value(admin.Grant(t.Context(), 60))(t)
	expect.OK(t, expect.Err(admin.Put(t.Context(), prefixOf("lock:"+t.Name())+"waits", "", clientv3.WithLease(lease.ID))))
	wantBusy(t, locker, t.Name())
	expect.OK(t, expect.Err(admin.Revoke(t.Context(), lease.ID)))
	release(t, take(t, locker, t.Name()))
}

// TestSessionEndsWhileWaiting: a waiter that loses its place joins again, at the end, as
// soon as it notices.
func TestSessionEndsWhileWaiting(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	admin := connect(t, server.Addr)
	open := func() *lock.Locker {
		locker, _ := lockerOn(t, connect(t, server.Addr), lock.Config{TTL: 9 * time.Second})
		return locker
	}
	holder := take(t, open(), t.Name())
	waiters := newWaiters(t, admin, t.Name())
	for range 3 {
		waiters.join(open())
	}
	before := keysOf(t, admin, t.Name())
	found, err := admin.Get(t.Context(), before[1])
	expect.Need(t, err == nil && len(found.Kvs) != 0, "the first waiter's key: %v, %v", found, err)
	expect.OK(t, expect.Err(admin.Revoke(t.Context(), clientv3.LeaseID(found.Kvs[0].Lease))))
	start := time.Now()
	expect.Eventually(t, "the first waiter at the end", func() bool {
		keys := keysOf(t, admin, t.Name())
		return len(keys) == 4 && slices.Equal(keys[:3], []string{before[0], before[2], before[3]})
	})
	// The waiter learns of that when it next renews its session; the holder's lock lives for 6 s at least.
	took := time.Since(start)
	expect.That(t, took <= 6*time.Second, "want it there after a third of the TTL, have it after %v", took)
	// A waiter whose key an operator deletes notices when the lock would be its.
	expect.OK(t, expect.Err(admin.Delete(t.Context(), before[2])))
	release(t, holder)
	waiters.wantServed(2, 0, 1)
	expect.Eventually(t, "no session left", func() bool { return leasesOf(t, admin) == 0 })
}

// TestWaiterLeaves: nothing of it stays, also when nobody can be asked for a while.
func TestWaiterLeaves(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	admin := connect(t, server.Addr)
	// The TTL is longer than any wait of the test, so nothing goes by itself.
	locker, _ := lockerOn(t, connect(t, server.Addr), lock.Config{TTL: 5 * time.Minute})
	holder := take(t, locker, t.Name())
	waiters := newWaiters(t, admin, t.Name())
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := locker.Acquire(ctx, t.Name(), &lock.Options{Wait: lock.Forever})
		left <- err
	}()
	expect.Eventually(t, "it in the wait queue", func() bool { return len(keysOf(t, admin, t.Name())) == 2 })
	waiters.join(locker)
	server.Pause()
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) || !errors.Is(err, lock.ErrBusy) {
		t.Errorf("want context.Canceled and ErrBusy, have %v", err)
	}
	server.Resume()
	expect.Eventually(t, "it gone", func() bool { return len(keysOf(t, admin, t.Name())) == 2 })
	release(t, holder)
	waiters.wantServed(0)
	expect.Eventually(t, "no session left", func() bool { return leasesOf(t, admin) == 0 })
}

// A wait during which etcd goes away does not end with the news that the lock is busy.
func TestWaitEndsWithoutEtcd(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	admin := connect(t, server.Addr)
	locker, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	expect.OK(t, expect.Err(locker.Acquire(t.Context(), t.Name(), &lock.Options{NoRenew: true})))
	ended := make(chan error)
	go func() {
		_, err := locker.Acquire(t.Context(), t.Name(), &lock.Options{Wait: 1500 * time.Millisecond})
		ended <- err
	}()
	expect.Eventually(t, "a waiter", func() bool { return len(keysOf(t, admin, t.Name())) == 2 })
	server.Kill()
	err := <-ended
	expect.That(t, err != nil && !errors.Is(err, lock.ErrBusy), "want what is wrong with etcd, have %v", err)
}

// A firstWaiter is the first in the wait queue of a lock that somebody holds. The test makes its calls.
type firstWaiter struct {
	*testing.T
	store.Request

	locks  *etcdlock.Store
	holder *lock.Lease
	keys   func() int
}

func newFirstWaiter(t *testing.T) *firstWaiter {
	t.Helper()
	server := startEtcd(t)
	admin := connect(t, server.Addr)
	holders, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	w := &firstWaiter{
		T: t, locks: etcdlock.New(connect(t, server.Addr)), keys: func() int { return len(keysOf(t, admin, t.Name())) },
		Request: store.Request{Key: "lock:" + t.Name(), Token: "token", TTL: 15 * time.Second, Waiter: "siding-goroutine:listener:1"},
		holder:  take(t, holders, t.Name()),
	}
	ctx, cancel := context.WithCancel(t.Context())
	listening, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- w.locks.Listen(ctx, "listener", func() { close(listening) }, func(string) {}) }()
	t.Cleanup(func() {
		cancel()
		expect.Is(t, "listen", <-ended, context.Canceled)
	})
	<-listening
	result, err := w.locks.Acquire(t.Context(), w.Request)
	expect.Need(t, err == nil && !result.Taken && result.Position == 1, "want it first in the wait queue, have %+v, %v", result, err)
	return w
}

// TestLockComesByTheNextSession: a waiter has the lock by its next session before the one that has ended is dropped.
func TestLockComesByTheNextSession(t *testing.T) {
	t.Parallel()
	w := newFirstWaiter(t)
	etcdlock.ExpireSlowly(t.Context(), w.locks, w.Request, func() {
		release(t, w.holder)
		result, err := w.locks.Acquire(t.Context(), w.Request)
		expect.Need(t, err == nil && result.Taken, "want the lock, have %+v, %v", result, err)
	})
	expect.OK(t, w.locks.Renew(t.Context(), w.Key, w.Token, w.TTL, 0))
	expect.OK(t, w.locks.Release(t.Context(), w.Key, w.Token, store.Release{}))
}

// TestLockComesAsTheSessionEnds: a session is either that of the holder or one that was
// dropped, whatever comes first. A waiter that has left gets no lock.
func TestLockComesAsTheSessionEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*firstWaiter){
		"session first": func(w *firstWaiter) {
			expired, took := etcdlock.ExpireAndTake(w.Context(), w.locks, w.Request)
			expect.That(w, expired && !took, "want the session dropped alone, have it dropped (%t), the lock given (%t)", expired, took)
			expect.Equal(w, "keys", w.keys(), 1)
		},
		"lock first": func(w *firstWaiter) {
			took, expired := etcdlock.TakeAndExpire(w.Context(), w.locks, w.Request)
			expect.That(w, took && !expired, "want the lock given alone, have it given (%t), the session dropped (%t)", took, expired)
			expect.Equal(w, "keys", w.keys(), 2)
			_ = w.locks.Release(w.Context(), w.Key, w.Token, store.Release{}) // by which its session ends
		},
		"left before": func(w *firstWaiter) {
			expect.That(w, !etcdlock.LeaveAndTake(w.locks, w.Request), "want no lock for a waiter that has left")
			expect.OK(w, w.locks.Leave(w.Context(), w.Key, w.Waiter, store.Leave{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFirstWaiter(t)
			test(w)
			release(t, w.holder)
		})
	}
}
