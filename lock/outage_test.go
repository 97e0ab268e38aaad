package lock_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// TestBlackHole is the trust window on a real server. The holder that was cut off is told before
// the next one has the lock.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	cfg := lock.Config{TTL: 3 * time.Second, SafetyMargin: time.Second, RenewEvery: 100 * time.Millisecond}
	for _, fault := range []struct {
		name string
		turn func(*locktest.Proxy, bool)
	}{
		{"all lost", (*locktest.Proxy).BlackHole},
		{"answers lost", (*locktest.Proxy).SwallowReplies},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, 0, cfg)
			held := f.take("")
			work := held.Context(t.Context())
			fault.turn(f.proxy, true)
			next := f.direct.takeOnceFree()
			expect.That(t, work.Err() != nil && held.Deadline().IsZero(), "want the holder told before another has the lock")
			f.direct.release(next)
			wantLost(t, "cause", context.Cause(work))
			fault.turn(f.proxy, false)
			wantLost(t, "release", held.Release(t.Context()))
		})
	}
}

// TestScriptsAreFlushed before every call, also while the lock is held.
func TestScriptsAreFlushed(t *testing.T) {
	t.Parallel()
	s := setUp(t, redistest.Start(t).Client(t), lock.Config{})
	ctx := t.Context()
	flush := func() {
		t.Helper()
		expect.OK(t, s.rdb.ScriptFlush(ctx).Err())
	}
	flush()
	held := s.take("")
	flush()
	expect.OK(t, held.Renew(ctx))
	for _, w := range names(3) {
		flush()
		s.join(w)
	}
	flush()
	s.handOff(held, "w1")
	flush()
	s.leave("w1")
	s.wantNext("w2")
	flush()
	held = s.take("w2")
	flush()
	s.leave("w3")
	s.wantQueue()
	flush()
	s.release(held)
}

// TestRedisIsDown: no panic, no endless wait, and an error that is neither busy nor lost. All is
// well once Redis is back.
func TestRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	s := setUp(t, client, lock.Config{})
	held := s.take("")
	server.Kill()
	err := s.stranger().Do(t.Context(), s.res, nil, func(context.Context) error {
		t.Error("want the work not to run")
		return nil
	})
	for what, err := range map[string]error{
		"hold":    err,
		"renew":   held.Renew(t.Context()),
		"leave":   s.Leave(t.Context(), lease.Request{Resource: s.res, Waiter: "w"}),
		"release": held.Release(t.Context()),
	} {
		wantBroken(t, what, err)
	}
	server.Restart(t)
	s.release(s.takeOnceFree()) // the client dials again in its own time
}

// TestHolderMeetsAnEmptyServer: Redis came back without its data.
func TestHolderMeetsAnEmptyServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := setUp(t, server.Client(t), lock.Config{TTL: time.Hour, RenewEvery: 50 * time.Millisecond})
	held := s.take("")
	work := held.Context(t.Context())
	server.Restart(t)
	wantLost(t, "cause", expect.Ended(t, work))
	next := s.take("")
	expect.That(t, next.Fence() > held.Fence(), "want a fence above %d, have %d", held.Fence(), next.Fence())
	wantLost(t, "release", held.Release(t.Context()))
	s.release(next)
}

// TestWaitForARedisThatRefuses: a wait that is over before the client has given up connecting names the refusal.
func TestWaitForARedisThatRefuses(t *testing.T) {
	t.Parallel()
	for how, wait := range waits {
		wait.Wait = 100 * time.Millisecond
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			expect.OK(t, err)
			addr := listener.Addr().String()
			_ = listener.Close() // nobody has it now
			// So go-redis tries for 200 ms. With its defaults it does for two seconds, and on a busy machine for longer than anybody waits.
			rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 3, MaxRetries: -1})
			t.Cleanup(func() { _ = rdb.Close() })
			if _, err = lockerOn(t, lock.Redis(rdb)).Acquire(t.Context(), "order:1", &wait); !errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, lock.ErrBusy) {
				t.Errorf("want the refusal, and no ErrBusy, have %v", err)
			}
		})
	}
}
