package etcdlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/etcdlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

// wantBusy asks for a lock, which another has.
func wantBusy(t *testing.T, locker *lock.Locker, resource string) {
	t.Helper()
	_, err := locker.Acquire(t.Context(), resource, nil)
	expect.Need(t, errors.Is(err, lock.ErrBusy), "want ErrBusy, have %v", err)
}

// connect returns a client of the servers at addrs, closed at the test's cleanup.
func connect(t *testing.T, addrs ...string) *clientv3.Client {
	t.Helper()
	return connectBy(t, clientv3.Config{Endpoints: addrs})
}

// bounded gives a test's own calls a deadline. So a call without an answer does not block the whole
// run.
func bounded(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if _, ok := ctx.Deadline(); !ok {
		bound, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx = bound
	}
	return send(ctx, method, req, reply, cc, opts...)
}

func connectBy(t *testing.T, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cfg.DialTimeout, cfg.Logger = patience, zap.NewNop()
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(bounded))
	client := expect.Value(clientv3.New(cfg))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// lockerOn returns a Locker of a process of its own, and its Store.
func lockerOn(t *testing.T, client *clientv3.Client, cfg lock.Config) (*lock.Locker, *etcdlock.Store) {
	t.Helper()
	store := etcdlock.New(client)
	return lockerOf(t, store, cfg), store
}

// lockerOf returns one more Locker on store.
func lockerOf(t *testing.T, store *etcdlock.Store, cfg lock.Config) *lock.Locker {
	t.Helper()
	locker := expect.Value(lock.New(store, cfg))(t)
	t.Cleanup(locker.Close)
	return locker
}

// brief is the configuration of locks that expire soon: after the least time that etcd
// knows by default.
var brief = lock.Config{TTL: 2 * time.Second, RenewEvery: 500 * time.Millisecond, SafetyMargin: 200 * time.Millisecond}

func take(t *testing.T, locker *lock.Locker, resource string) *lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// On a busy machine etcd may not answer within half of a short TTL, although it has taken the
	// lock. Then the lock is busy until the TTL ends.
	for unanswered := false; ; {
		lease, err := locker.Acquire(ctx, resource, nil)
		if err == nil {
			return lease
		}
		if errors.Is(err, lock.ErrBusy) && !unanswered || ctx.Err() != nil {
			t.Fatal(err)
		}
		unanswered = true
	}
}

func release(t *testing.T, lease *lock.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
}
