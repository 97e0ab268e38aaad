package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
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

// A queuedWaiter is a process that waits in the wait queue.
type queuedWaiter struct {
	held   chan *lease.Lease
	cancel context.CancelFunc
}

// waitInQueue starts to wait for the lock in a process of its own, and returns when
// it is queued.
func (s *setup) waitInQueue() *queuedWaiter {
	s.Helper()
	locker, before := s.stranger(), len(s.queue())
	ctx, cancel := context.WithCancel(s.Context())
	w := &queuedWaiter{held: make(chan *lease.Lease, 1), cancel: cancel}
	go func() {
		defer close(w.held)
		if held, err := locker.Acquire(ctx, s.res, &lock.Options{Wait: lock.Forever}); err == nil {
			w.held <- held.Inner()
		}
	}()
	expect.Eventually(s.T, "one more queued", func() bool { return len(s.queue()) != before })
	return w
}

// served waits for the lease of a waiter, which must come within d.
func (s *setup) served(w *queuedWaiter, d time.Duration) *lease.Lease {
	s.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case held := <-w.held:
		expect.Need(s, held != nil, "want a lease, have none")
		return held
	case <-timer.C:
		s.Fatalf("want a lease within %v", d)
		return nil
	}
}

// soon is long for a call, and short for a TTL or a hand-off timeout of the default configuration.
const soon = 4 * time.Second

// TestDeadWaiterCostsNothing if PUBLISH tells that nobody hears: the same release wakes the next.
func TestDeadWaiterCostsNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		holder := s.take("")
		for i := range 20 {
			s.deadWaiter(i)
		}
		w := s.waitInQueue()
		s.release(holder)
		s.release(s.served(w, soon))
		s.wantQueue()
		s.wantFree()
	})
}

// deadWaiter queues a waiter whose process is gone.
func (s *setup) deadWaiter(i int) {
	s.Helper()
	name := "siding-goroutine:gone:" + string(rune('a'+i))
	expect.OK(s, s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: float64(i + 1), Member: name}).Err())
}

// TestDeadWaitersInACluster, where PUBLISH does not count the listeners of other
// nodes, cost a hand-off timeout each, once.
func TestDeadWaitersInACluster(t *testing.T) {
	t.Parallel()
	s := setUp(t, redistest.StartCluster(t, 3).Client(t), lock.Config{HandoffTimeout: 200 * time.Millisecond, TTL: time.Minute})
	holder := s.take("")
	s.deadWaiter(0)
	s.deadWaiter(1)
	w := s.waitInQueue()
	start := time.Now()
	s.release(holder)
	next := s.takeOnceFree() // it comes by as the first hand-off timeout is over
	took := time.Since(start)
	expect.That(t, took >= 200*time.Millisecond, "want the lock reserved for a hand-off timeout, have it after %v", took)
	s.release(next)
	s.release(s.takeOnceFree())
	s.release(s.served(w, soon))
	s.wantQueue()
}

// TestListenerReconnects: messages that were published while the connection was away are gone. So
// the waiters ask the store as soon as the connection is back.
func TestListenerReconnects(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s, proxy := setUp(t, server.Client(t), lock.Config{}), locktest.NewProxy(t, server.Addr)
	holder := s.take("")
	away := *s
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	away.rdb = client
	w := away.waitInQueue()
	proxy.BlackHole(true)
	s.release(holder)
	expect.Need(t, strings.Contains(s.value(), "siding-goroutine:"), "want the lock reserved for the waiter, have %q", s.value())
	proxy.BlackHole(false)
	s.release(s.served(w, 10*time.Second)) // its fallback time is in 15
}

// TestCommandsOfAWait: a waiter costs two calls and the release before it one,
// however long it waits. Nothing is polled.
func TestCommandsOfAWait(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := setUp(t, server.Client(t), lock.Config{})
	scripts := func() int {
		t.Helper()
		info := s.rdb.Info(t.Context(), "commandstats").Val()
		_, stats, _ := strings.Cut(info, "cmdstat_evalsha:calls=")
		calls, _, _ := strings.Cut(stats, ",")
		n, _ := strconv.Atoi(calls)
		return n
	}
	const waiters = 10
	s.release(s.take("")) // the scripts are known from here on
	last := s.take("")
	queued := make([]*queuedWaiter, 0, waiters)
	before := scripts()
	for range waiters {
		queued = append(queued, s.waitInQueue())
	}
	for _, w := range queued {
		s.release(last)
		last = s.served(w, soon)
	}
	expect.Equal(t, fmt.Sprintf("calls for %d acquisitions", waiters), scripts()-before, 3*waiters)
	s.release(last)
}

// TestNothingIsLeftBehind: when the last has left, the only key is that of the
// fence, which expires.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		holder := s.take("")
		first, second := s.waitInQueue(), s.waitInQueue()
		second.cancel()
		held := <-second.held
		expect.Need(s, held == nil, "want no lease for one who left")
		s.release(holder)
		s.release(s.served(first, soon))
		var keys []string
		expect.Eventually(s.T, "the fence alone left", func() bool {
			keys = s.rdb.Keys(s.Context(), "*"+s.res+"*").Val()
			return slices.Equal(keys, []string{s.fence})
		})
		s.wantTTL(s.fence, 0, 4*time.Hour)
	})
}

// A waiter has left the wait queue and is there again, as a failover has lost that it left. The lock is
// passed on as soon as it is reserved for that waiter, although its process still listens.
func TestWaiterThatIsBackIsTakenOut(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		gone := s.waitInQueue()
		name := s.queue()[0]
		gone.cancel()
		expect.Eventually(s.T, "it has left", func() bool { return len(s.queue()) == 0 })
		s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: 1, Member: name})
		next := s.waitInQueue()
		s.release(held)
		s.release(s.served(next, soon))
	})
}

// TestHolderWithoutChannels: a holder that may not publish can release all the same. The waiter
// that it cannot wake comes at its fallback time.
func TestHolderWithoutChannels(t *testing.T) {
	t.Parallel()
	s := setUp(t, redistest.Shared(t).Client(t), lock.Config{})
	const user = "without-channels"
	expect.OK(t, s.rdb.Do(t.Context(), "ACL", "SETUSER", user, "on", "nopass", "+@all", "~*", "resetchannels").Err())
	options := *redistest.Shared(t).Client(t).Options()
	options.Username, options.Password = user, "any"
	client := redis.NewClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	holder := *s
	holder.rdb = client
	held := holder.take("")
	w := s.waitInQueue()
	s.release(held)
	s.wantFree()
	w.cancel()
	<-w.held
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
