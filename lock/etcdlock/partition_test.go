package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// A duel is a lock that one process holds and another waits for.
type duel struct {
	lease *lock.Lease
	work  context.Context //nolint:containedctx // that of the lease
	won   chan win        // sent when the rival has had the lock
}

// A win is how the rival got the lock.
type win struct {
	fence int64
	told  bool // the holder's context had ended
	err   error
}

// duels has holder take so many locks, for which rival waits.
func duels(t *testing.T, holder, rival *lock.Locker, n int) []*duel {
	t.Helper()
	all := make([]*duel, n)
	for i := range all {
		resource := fmt.Sprintf("%s/%d/%d", t.Name(), time.Now().UnixNano(), i)
		d := &duel{lease: take(t, holder, resource), won: make(chan win, 1)}
		d.work = d.lease.Context(t.Context()) //nolint:fatcontext // one for each lease
		go func() {
			lease, err := rival.Acquire(t.Context(), resource, &lock.Options{Wait: lock.Forever})
			w := win{told: d.work.Err() != nil, err: err}
			if err == nil {
				w.fence = lease.Fence()
				_ = lease.Release(t.Context()) // if that fails, it expires
			}
			d.won <- w
		}()
		all[i] = d
	}
	return all
}

// settle has the holders lose their locks or, once long is over, release them, and checks that each
// was told before its rival had the lock. lost is how many lost theirs.
func settle(t *testing.T, all []*duel, long <-chan struct{}) (lost int) {
	t.Helper()
	var done sync.WaitGroup
	var losses atomic.Int64
	for _, d := range all {
		done.Go(func() {
			select {
			case <-d.work.Done():
			case <-long:
			}
			// Without an answer the rival has it once it has expired.
			_ = d.lease.Release(t.Context())
			if errors.Is(context.Cause(d.work), lock.ErrLost) {
				losses.Add(1)
			}
			timer := time.NewTimer(patience)
			defer timer.Stop()
			select {
			case w := <-d.won:
				expect.That(t, w.err == nil && w.told && w.fence > d.lease.Fence(),
					"want the rival to have the lock after the holder was told, by a fence above %d, have %+v", d.lease.Fence(), w)
			case <-timer.C:
				t.Error("want the rival to have the lock in time")
			}
		})
	}
	done.Wait()
	return int(losses.Load())
}

const (
	// So many locks at once, in so many rounds, are a hundred.
	atOnce = 25
	rounds = 4
	// settled is longer than any lock lives here that is not renewed.
	settled = 6 * time.Second
)

// TestHolderIsCutOff: a holder that reaches no member of the cluster is told before its rival has
// the lock, in all of a hundred cases.
func TestHolderIsCutOff(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	servers := startCluster(t, 3)
	rival, _ := lockerOn(t, connect(t, addrsOf(servers...)...), lock.Config{})
	var proxies []*locktest.Proxy
	var addrs []string
	for _, s := range servers {
		proxy := locktest.NewProxy(t, s.Addr)
		proxies, addrs = append(proxies, proxy), append(addrs, proxy.Addr)
	}
	cut := func(on bool) {
		for _, proxy := range proxies {
			proxy.BlackHole(on)
		}
	}
	for range rounds {
		holder, _ := lockerOn(t, connect(t, addrs...), brief)
		all := duels(t, holder, rival, atOnce)
		cut(true)
		long, cancel := context.WithTimeout(t.Context(), settled)
		expect.Equal(t, "locks lost", settle(t, all, long.Done()), atOnce)
		cancel()
		cut(false)
	}
}

// TestLeaderIsLost: the leader is killed, or hangs. The holders go on under the next one, or are
// told before their rivals have the locks. A leader that hung is not resumed: etcd may then end
// sessions that were renewed, see the documentation.
func TestLeaderIsLost(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	servers := startCluster(t, 3)
	addrs := addrsOf(servers...)
	rival, _ := lockerOn(t, connect(t, addrs...), lock.Config{})
	lost := 0
	for round := range rounds {
		holder, _ := lockerOn(t, connect(t, addrs...), brief)
		all := duels(t, holder, rival, atOnce)
		leader := leaderOf(t, servers)
		if round%2 == 0 {
			leader.Kill()
		} else {
			leader.Pause()
		}
		long, cancel := context.WithTimeout(t.Context(), settled)
		lost += settle(t, all, long.Done())
		cancel()
		leader.Restart(t)
	}
	t.Logf("of %d locks %d were lost", rounds*atOnce, lost)
}

// TestLeaderIsCutOff: a leader does not reach the other members any more, and the holder reaches
// only that leader. The leader renews nothing that the others give away.
func TestLeaderIsCutOff(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	for range rounds {
		servers := startCluster(t, 3)
		leader := leaderOf(t, servers)
		var others []string
		for _, s := range servers {
			if s != leader {
				others = append(others, s.Addr)
			}
		}
		rival, _ := lockerOn(t, connect(t, others...), lock.Config{})
		holder, _ := lockerOn(t, connect(t, leader.Addr), brief)
		all := duels(t, holder, rival, atOnce)
		leader.cutOff(true)
		long, cancel := context.WithTimeout(t.Context(), settled)
		expect.Equal(t, "locks lost", settle(t, all, long.Done()), atOnce)
		cancel()
		for _, s := range servers {
			s.Kill()
		}
	}
}

// TestHoldersOutliveALeader: with a longer TTL, the loss of a leader ends no lease, and leaves the
// waiters in their order.
func TestHoldersOutliveALeader(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	const ttl = 9 * time.Second
	servers := startCluster(t, 3)
	open := func() *lock.Locker {
		locker, _ := lockerOn(t, connect(t, addrsOf(servers...)...), lock.Config{TTL: ttl})
		return locker
	}
	holder := take(t, open(), t.Name())
	work := holder.Context(t.Context())
	waiters := newWaiters(t, connect(t, addrsOf(servers...)...), t.Name())
	for range 3 {
		waiters.join(open())
	}
	leaderOf(t, servers).Kill()
	expired := time.NewTimer(ttl * 4 / 3) // then who is not renewed by a new leader is gone
	defer expired.Stop()
	select {
	case <-work.Done():
		t.Fatalf("want the lock kept, have %v", context.Cause(work))
	case <-expired.C:
	}
	release(t, holder)
	waiters.wantServed(0, 1, 2)
}

// pauseFollower stops a member that is not the leader.
func pauseFollower(t *testing.T, servers []*etcdServer) {
	t.Helper()
	leader := leaderOf(t, servers)
	servers[slices.IndexFunc(servers, func(s *etcdServer) bool { return s != leader })].Pause()
}

// TestMemberHangs: requests go to the other members, within the time of the call.
func TestMemberHangs(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3)
	locker, _ := lockerOn(t, connect(t, addrsOf(servers...)...), lock.Config{})
	release(t, take(t, locker, t.Name())) // the client knows all members
	pauseFollower(t, servers)
	for range 3 {
		lease := take(t, locker, t.Name())
		expect.OK(t, lease.Renew(t.Context()))
		release(t, lease)
	}
}

// TestLearner: a member without a vote refuses all streams, and so all renewals. They go to another member. While there is
// none, who waits waits on.
func TestLearner(t *testing.T) {
	t.Parallel()
	var refused atomic.Int32 // so many streams are
	learner := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if refused.Add(-1) >= 0 {
			return nil, rpctypes.ErrGRPCNotSupportedForLearner
		}
		return open(ctx, desc, cc, method, opts...)
	}
	client := connectBy(t, clientv3.Config{
		Endpoints:   []string{startEtcd(t).Addr},
		DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(learner)},
	})
	locker, _ := lockerOn(t, client, lock.Config{})
	rival, _ := lockerOn(t, client, lock.Config{TTL: 4 * time.Second}) // of which a call takes 1 s at most
	lease := take(t, locker, t.Name())
	refused.Store(2)
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("renew: %v", err)
	}
	waiters := newWaiters(t, client, t.Name())
	waiters.join(rival)
	refused.Store(math.MaxInt32)
	release(t, lease)
	expect.Eventually(t, "a call is refused to its end, and the next one", func() bool {
		return math.MaxInt32-refused.Load() > 60 // one takes 1 s, with 25 ms between two tries
	})
	refused.Store(0)
	waiters.wantServed(0)
}

// TestMemberHangsWhileWaiting: the waiters keep their places for longer than a TTL.
func TestMemberHangsWhileWaiting(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	servers := startCluster(t, 3)
	admin := connect(t, addrsOf(servers...)...)
	open := func() *lock.Locker {
		locker, _ := lockerOn(t, connect(t, addrsOf(servers...)...), lock.Config{TTL: 3 * time.Second})
		return locker
	}
	holder := take(t, open(), t.Name())
	waiters := newWaiters(t, admin, t.Name())
	for range 6 { // whichever member a client prefers
		waiters.join(open())
	}
	pauseFollower(t, servers)
	_ = sleep.For(t.Context(), 6*time.Second) // more than a TTL
	release(t, holder)
	waiters.wantServed(0, 1, 2, 3, 4, 5)
}
