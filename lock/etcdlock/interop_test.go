package etcdlock_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/sidingq/siding/internal/testenv/etcdtest"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/lock"
)

// A recipe locks by etcd's own package.
func recipe(t *testing.T, client *clientv3.Client, resource string) *concurrency.Mutex {
	t.Helper()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(60))
	must(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return concurrency.NewMutex(session, "{lock:"+resource+"}")
}

// TestRecipe: programs that use etcd's own recipe are excluded, exclude, and share a wait
// queue with ours.
func TestRecipe(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := connect(t, server.Addr)
	ours, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})

	theirs := recipe(t, client, t.Name())
	must(t, theirs.Lock(t.Context()))
	_, err := ours.Acquire(t.Context(), t.Name(), nil)
	if busy, ok := errors.AsType[*lock.BusyError](err); !ok || !busy.Foreign || busy.Remaining.Seconds() < 30 || busy.Remaining.Seconds() > 60 {
		t.Errorf("want it held by another program for up to 60s, have %+v", err)
	}
	waiters := newWaiters(t, client, t.Name())
	waiters.join(ours)
	other := recipe(t, client, t.Name())
	waiters.joins(func(ctx context.Context) (func(context.Context) error, error) { return other.Unlock, other.Lock(ctx) })
	poll.Eventually(t, "theirs in the wait queue", func() bool { return len(keysOf(t, client, t.Name())) == 3 })
	waiters.join(ours)
	must(t, theirs.Unlock(t.Context()))
	waiters.wantServed(0, 1, 2)

	lease := take(t, ours, t.Name())
	if err := recipe(t, client, t.Name()).TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("want theirs busy, have %v", err)
	}
	release(t, lease)
}

// TestCommandLine: an operator holds a lock from the shell.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	etcdctl := proc.Find(t, "etcd-client", "etcdctl")
	server := etcdtest.Start(t)
	client := connect(t, server.Addr)
	locker, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	ctx, end := context.WithCancel(t.Context())
	defer end()
	cmd := exec.CommandContext(ctx, etcdctl, "--endpoints", server.Addr, "lock", "{lock:"+t.Name()+"}")
	cmd.Env = append(cmd.Environ(), "ETCDCTL_API=3")
	must(t, cmd.Start())
	poll.Eventually(t, "the lock held", func() bool { return len(keysOf(t, client, t.Name())) == 1 })
	wantBusy(t, locker, t.Name())
	must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	lease, err := locker.Acquire(t.Context(), t.Name(), &lock.Options{Wait: lock.Forever})
	must(t, err)
	release(t, lease)
}
