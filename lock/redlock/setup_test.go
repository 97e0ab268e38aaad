package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/redlock"
)

// patient are nodes that are waited for long enough by a slow machine, and may vote at once.
var patient = redlock.Config{NodeTimeout: 500 * time.Millisecond, RestartDelay: redlock.NoRestartDelay}

// A fleet is some Redis servers, each a node.
type fleet struct {
	*testing.T
	servers []*redistest.Server
	admins  []*redis.Client
}

func startFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{T: t}
	for range n {
		server := redistest.Start(t)
		f.servers = append(f.servers, server)
		f.admins = append(f.admins, server.Client(t))
	}
	return f
}

// store is that of one more process.
func (f *fleet) store(cfg redlock.Config) lock.Store {
	f.Helper()
	var clients []*redis.Client
	for _, server := range f.servers {
		clients = append(clients, clientOf(f.T, server.Addr))
	}
	store := expect.Value(redlock.New(f.Context(), clients, cfg))(f)
	return store
}

// clientOf is one that keeps to its contexts' deadlines, waits for a minute by itself, and sees at once
// that a server is down.
func clientOf(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DialTimeout: time.Minute, ReadTimeout: redistest.Patience, DialerRetries: 1, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// process is a locker of one more process.
func (f *fleet) process(cfg lock.Config) *lock.Locker {
	f.Helper()
	return lockerOn(f.T, f.store(patient), cfg)
}

// take takes the lock, which must be free.
func (f *fleet) take(locker *lock.Locker) *lock.Lease {
	f.Helper()
	lease, err := locker.Acquire(f.Context(), f.Name(), nil)
	expect.Need(f, err == nil, "acquire: want the lock, have %v", err)
	return lease
}

// wantBusy tries to take the lock, which must be busy.
func (f *fleet) wantBusy(locker *lock.Locker) *lock.BusyError {
	f.Helper()
	lease, err := locker.Acquire(f.Context(), f.Name(), nil)
	busy, ok := errors.AsType[*lock.BusyError](err)
	expect.Need(f, ok, "acquire: want a BusyError, have lease %v and %v", lease, err)
	return busy
}

func (f *fleet) release(lease *lock.Lease) {
	f.Helper()
	expect.OK(f, lease.Release(f.Context()))
}

func (f *fleet) key() string { return "lock:" + f.Name() }

// put stores a value on some nodes, as another program does.
func (f *fleet) put(value string, ttl time.Duration, nodes ...int) {
	f.Helper()
	for _, i := range nodes {
		expect.OK(f, f.admins[i].Set(f.Context(), f.key(), value, ttl).Err())
	}
}

// value returns what is at a key of one node, "" for nothing.
func (f *fleet) value(i int, key string) string {
	f.Helper()
	value, err := f.admins[i].Get(f.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		f.Fatal(err)
	}
	return value
}

// wantFree checks that nothing of the lock is on some nodes, all without any named.
func (f *fleet) wantFree(nodes ...int) {
	f.Helper()
	for i := range f.servers {
		if nodes == nil || slices.Contains(nodes, i) {
			expect.Equal(f, fmt.Sprint("node ", i), f.value(i, f.key()), "")
		}
	}
}

// voteForLocksOf waits until the nodes have run for long enough to give locks of ttl.
func (f *fleet) voteForLocksOf(ttl time.Duration) {
	f.Helper()
	for i, admin := range f.admins {
		err := expect.Until(f.Context(), func() error {
			info, err := admin.Info(f.Context(), "server").Result()
			if err != nil {
				return err
			}
			_, rest, _ := strings.Cut(info, "uptime_in_seconds:")
			var up int64
			if _, err := fmt.Sscan(rest, &up); err != nil || up < redlock.Uptime(ttl) {
				return fmt.Errorf("node %d: up for %d s, %w", i, up, err)
			}
			return nil
		})
		expect.OK(f, err)
	}
}

// ctxOf bounds what a test does to servers that may not answer.
func ctxOf(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// abandon leaves a lease as a holder does that has died: nobody renews or releases it.
func abandon(held *lock.Lease) {
	ctx, end := context.WithCancel(context.Background())
	end()
	held.Context(ctx)
}

func TestMain(m *testing.M) {
	// The pool of a client whose server was down looks every second whether the server is back.
	// Only then does the pool see that it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// patience bounds every wait for something that must happen; only a test that
// fails waits for its end.
const patience = time.Minute

// brief is the configuration of tests in which a lock expires.
var brief = lock.Config{TTL: time.Second, RenewEvery: 200 * time.Millisecond, SafetyMargin: 200 * time.Millisecond}

// wantBroken checks an error of the nodes.
func wantBroken(t *testing.T, what string, err error) {
	t.Helper()
	expect.That(t, err != nil && !errors.Is(err, lock.ErrBusy) && !errors.Is(err, lock.ErrLost),
		"%s: want an error that is neither busy nor lost, have %v", what, err)
}

func lockerOn(t *testing.T, store lock.Store, cfg lock.Config) *lock.Locker {
	t.Helper()
	locker := expect.Value(lock.New(store, cfg))(t)
	t.Cleanup(locker.Close)
	return locker
}
