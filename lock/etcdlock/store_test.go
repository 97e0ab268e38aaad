package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/etcdlock"
)

func TestNoClient(t *testing.T) {
	t.Parallel()
	const want = "lock: store: want one, such as that of Redis with a client, have a nil *etcdlock.Store"
	expect.Equal(t, "error", fmt.Sprint(expect.Err(lock.New(etcdlock.New(nil), lock.Config{}))), want)
}

// TestNamesAreApart: a lock is not held because another is whose name begins like its.
func TestNamesAreApart(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	locker, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	for _, resource := range []string{"a/b/c", "a/b", "a/", "a", "ab", "a:b", "ä", "/", " "} {
		defer release(t, take(t, locker, resource))
	}
}

// TestTTLInWholeSeconds: a session lives for the TTL at least.
func TestTTLInWholeSeconds(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	client := connect(t, server.Addr)
	for ttl, want := range map[time.Duration]int64{
		500 * time.Millisecond:  2, // the least that etcd has
		2 * time.Second:         2,
		2001 * time.Millisecond: 3,
		15 * time.Second:        15,
	} {
		locker, store := lockerOn(t, client, lock.Config{TTL: ttl})
		lease := take(t, locker, ttl.String())
		owner := expect.Value(store.Owner(lease.Context(t.Context()), ttl.String()))(t)
		found := expect.Value(client.Get(t.Context(), owner.Key))(t)
		left, err := client.TimeToLive(t.Context(), clientv3.LeaseID(found.Kvs[0].Lease))
		expect.That(t, err == nil && left.GrantedTTL == want, "ttl %v: want a session of %d s, have %+v, %v", ttl, want, left, err)
		release(t, lease)
	}
}

// interceptedBy returns a client of a server of its own, each call of which a test may answer itself, or send.
func interceptedBy(t *testing.T, answer func(method string, send func() error) error) *clientv3.Client {
	t.Helper()
	intercept := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return answer(method, func() error { return send(ctx, method, req, reply, cc, opts...) })
	}
	return connectBy(t, clientv3.Config{
		Endpoints:   []string{startEtcd(t).Addr},
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(intercept)},
	})
}

// TestReleaseIsSentAgain: a request whose answer is lost the client sends again by itself. The
// lock was held all the same.
func TestReleaseIsSentAgain(t *testing.T) {
	t.Parallel()
	locker, _ := lockerOn(t, interceptedBy(t, func(method string, send func() error) error {
		if err := send(); err != nil || !strings.HasSuffix(method, "/LeaseRevoke") {
			return err
		}
		return send()
	}), lock.Config{})
	release(t, take(t, locker, "a"))
}

// TestReleaseThatFailsIsSentAgain: the session is known until it has ended. So the Locker's next
// try ends the session, long before the TTL would.
func TestReleaseThatFailsIsSentAgain(t *testing.T) {
	t.Parallel()
	var failed atomic.Bool
	client := interceptedBy(t, func(method string, send func() error) error {
		if strings.HasSuffix(method, "/LeaseRevoke") && failed.CompareAndSwap(false, true) {
			return status.Error(codes.Internal, "once")
		}
		return send()
	})
	locker, _ := lockerOn(t, client, lock.Config{TTL: time.Hour})
	lease := take(t, locker, "a")
	err := lease.Release(t.Context())
	expect.That(t, err != nil && !errors.Is(err, lock.ErrLost), "want an error of etcd, have %v", err)
	expect.Eventually(t, "a free lock", func() bool { return len(keysOf(t, client, "a")) == 0 })
}

// TestMemberWaitsInVain: a member that has waited for a leader in vain says so without a code. The request
// is sent again.
func TestMemberWaitsInVain(t *testing.T) {
	t.Parallel()
	var vain atomic.Int32
	locker, _ := lockerOn(t, interceptedBy(t, func(_ string, send func() error) error {
		if vain.Add(1) <= 2 {
			return status.Error(codes.Unknown, context.DeadlineExceeded.Error())
		}
		return send()
	}), lock.Config{})
	release(t, take(t, locker, "a"))
}

// TestServerHangs: a call is given up by its own time, and not taken for anything else.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	server := startEtcd(t)
	locker, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	held := take(t, locker, "held")
	server.Pause()
	defer server.Resume()
	within := func(what string, limit time.Duration, call func() error) {
		start := time.Now()
		err := call()
		took := time.Since(start)
		expect.That(t, took <= limit, "%s: want an answer within %v, have it after %v", what, limit, took)
		expect.That(t, err != nil && !errors.Is(err, lock.ErrBusy) && !errors.Is(err, lock.ErrLost),
			"%s: want an error that is neither busy nor lost, have %v", what, err)
		expect.That(t, strings.Contains(err.Error(), "etcd did not answer within 3s") || errors.Is(err, context.DeadlineExceeded), "%s: want what was wrong, have %v", what, err)
	}
	within("acquire", 8*time.Second, func() error { // and the attempt to give it back
		_, err := locker.Acquire(t.Context(), "free", nil)
		return err
	})
	within("acquire by a deadline", 2*time.Second, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := locker.Acquire(ctx, "free", nil)
		return err
	})
	within("renew", 5*time.Second, func() error { return held.Renew(t.Context()) })
	within("release", 5*time.Second, func() error { return held.Release(t.Context()) })
}

// TestSweep: the records of locks that nobody releases do not add up, nor those of locks that were
// released a while ago.
func TestSweep(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	locker, store := lockerOn(t, connect(t, server.Addr), brief)
	ended, end := context.WithCancel(t.Context())
	end()
	for _, resource := range []string{"a", "b", "c"} {
		take(t, locker, resource).Context(ended) // which is renewed no more
	}
	kept := take(t, locker, "kept")
	etcdlock.Age(store, 2*time.Minute)
	expect.OK(t, kept.Renew(t.Context()))
	release(t, take(t, locker, "another"))
	expect.Equal(t, "sessions known, of a lock that is held and one just released", etcdlock.Known(store), 2)
	release(t, take(t, lockerOf(t, store, lock.Config{TTL: time.Hour}), "long"))
	etcdlock.Age(store, 2*time.Minute)
	expect.OK(t, kept.Renew(t.Context()))
	_, err := lockerOf(t, store, lock.Config{}).Acquire(t.Context(), "kept", nil) // which sweeps
	have := etcdlock.Known(store)
	expect.That(t, errors.Is(err, lock.ErrBusy) && have == 1, "want ErrBusy and one session known, have %v, %d", err, have)
	// A waiter leaves while etcd does not answer, for longer than leaving is tried.
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := locker.Acquire(ctx, "kept", &lock.Options{Wait: lock.Forever})
		waited <- err
	}()
	expect.Eventually(t, "it in the wait queue", func() bool { return etcdlock.Known(store) == 2 })
	server.Pause()
	cancel()
	expect.Is(t, "the waiter", <-waited, context.Canceled)
	locker.Close() // tries no more
	server.Resume()
	_ = kept.Release(t.Context()) // it may have expired meanwhile
	etcdlock.Age(store, 2*time.Minute)
	release(t, take(t, lockerOf(t, store, lock.Config{}), "another"))
	expect.Equal(t, "sessions known, of the lock just released", etcdlock.Known(store), 1)
}

// TestNoWriteWhenRefused: a try that finds the lock taken changes nothing in etcd.
func TestNoWriteWhenRefused(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	admin := connect(t, server.Addr)
	locker, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	rival, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	lease := take(t, locker, t.Name())
	// Sessions are no revisions, but are in the log, too.
	logged := func() uint64 {
		status := expect.Value(admin.Status(t.Context(), server.Addr))(t)
		return status.RaftIndex
	}
	before := logged()
	for range 10 {
		wantBusy(t, rival, t.Name())
	}
	expect.Equal(t, "entries in the log", logged(), before)
	release(t, lease)
}

// TestWhoMayNotIsTold at once, although it is ready to wait.
func TestWhoMayNotIsTold(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	admin := connect(t, server.Addr)
	locker, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	expect.OK(t, expect.Err(admin.UserAdd(t.Context(), "root", "secret")))
	expect.OK(t, expect.Err(admin.UserGrantRole(t.Context(), "root", "root")))
	expect.OK(t, expect.Err(admin.AuthEnable(t.Context())))
	for _, opts := range []lock.Options{{Wait: lock.Forever}, {Wait: lock.Forever, Retry: lock.Fixed(100 * time.Millisecond)}} {
		start := time.Now()
		_, err := locker.Acquire(t.Context(), t.Name(), &opts)
		if took := time.Since(start); err == nil || errors.Is(err, lock.ErrBusy) || took > 10*time.Second {
			t.Errorf("want an error before a TTL has passed, have %v after %v", err, took)
		}
	}
}
