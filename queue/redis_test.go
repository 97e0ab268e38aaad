package queue_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/queue"
)

// optionsOf returns how often a client of a Cluster reloads it, 0 for another client; how many connections the client may have
// to a node; and whether calls end with their context.
func optionsOf(rdb redis.UniversalClient) (reload time.Duration, pool int, bounded bool) {
	switch rdb := rdb.(type) {
	case *redis.ClusterClient:
		o := rdb.Options()
		return o.ClusterStateReloadInterval, o.PoolSize, o.ContextTimeoutEnabled
	case *redis.Client:
		return 0, rdb.Options().PoolSize, rdb.Options().ContextTimeoutEnabled
	}
	return 0, 0, false
}

func TestRedisMakesTheRightClient(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts redis.UniversalOptions
		want time.Duration // how often a client of a Cluster reloads it, 0 for others
	}{
		"no address":               {redis.UniversalOptions{}, 0},
		"node":                     {redis.UniversalOptions{Addrs: []string{"a:1"}}, 0},
		"several nodes":            {redis.UniversalOptions{Addrs: []string{"a:1", "b:1"}}, time.Second},
		"cluster with one address": {redis.UniversalOptions{Addrs: []string{"a:1"}, IsClusterMode: true}, time.Second},
		"cluster with no address":  {redis.UniversalOptions{IsClusterMode: true}, time.Second},
		"sentinels":                {redis.UniversalOptions{Addrs: []string{"a:1", "b:1"}, MasterName: "main"}, 0},
		// The client hears of a failover from the Sentinels.
		"sentinels and replicas": {redis.UniversalOptions{Addrs: []string{"a:1"}, MasterName: "main", RouteRandomly: true}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := tt.opts
			rdb := queue.Redis(&opts)
			defer func() { _ = rdb.Close() }()
			have, _, bounded := optionsOf(rdb)
			if have != tt.want || !bounded {
				t.Errorf("want it to reload every %v and calls to end with their context, have %T, %v, %t", tt.want, rdb, have, bounded)
			}
			if opts.ContextTimeoutEnabled || !slices.Equal(opts.Addrs, tt.opts.Addrs) {
				t.Errorf("want the options as they were, have %+v", opts)
			}
		})
	}
}

// Clients of a Cluster with the same options share no slice of nodes. Each adds the nodes that it
// finds to a slice of its own.
func TestRedisOfSharedOptions(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(redistest.StartCluster(t, 1).Addrs[0])
	must(t, err)
	addrs := append(make([]string, 0, 8), net.JoinHostPort("localhost", port)) // another name for the node
	rdb := queue.Redis(&redis.UniversalOptions{Addrs: addrs, IsClusterMode: true})
	defer func() { _ = rdb.Close() }()
	must(t, rdb.Set(t.Context(), "k", "v", 0).Err())
	if have := addrs[1:cap(addrs)]; slices.ContainsFunc(have, func(addr string) bool { return addr != "" }) {
		t.Errorf("want nothing behind the address, have %q", have)
	}
}

// A call to a master of a Cluster that is away for a moment, such as for a restart, succeeds.
func TestRedisTriesAgain(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 1)
	var refusals atomic.Int32
	rdb := queue.Redis(&redis.UniversalOptions{
		Addrs: cluster.Addrs, IsClusterMode: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if refusals.Add(-1) >= 0 {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	defer func() { _ = rdb.Close() }()
	must(t, rdb.Set(t.Context(), "k", "v", 0).Err())
	refusals.Store(6) // as many as take half a second
	must(t, cluster.Nodes[0].Client(t).ClientKillByFilter(t.Context(), "type", "normal", "skipme", "yes").Err())
	if err := rdb.Set(t.Context(), "k", "w", 0).Err(); err != nil {
		t.Errorf("want it tried until it succeeds, have %v", err)
	}
}

// A master of a Cluster dies and does not come back. The master's resources, and those whose tasks
// were on it, run their next tasks soon after its replica has taken over.
func TestMasterDies(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	const timeout = 5 * time.Second // to dial and to read, by default
	for name, tt := range map[string]struct {
		locks, tasks int           // on which master they are; the first dies
		silent       bool          // its machine answers nothing any more, not even a refusal
		longest      time.Duration // after the takeover
	}{
		"that of the locks": {locks: 0, tasks: 1, longest: 5 * time.Second},
		"that of the queue": {locks: 1, tasks: 0, longest: 5 * time.Second},
		// A call that was under way, and its next attempt, wait for an answer.
		"and its machine": {locks: 1, tasks: 0, silent: true, longest: 5*time.Second + 3*timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3)
			heir := cluster.AddReplica(t, 0).Client(t)
			master := &dying{Server: cluster.Nodes[0]}
			b := setupOn(t, redis.UniversalOptions{Addrs: cluster.Addrs, Dialer: master.dialer(t)})
			b.queue = placed(t, cluster, tt.tasks, b.queue, "asynq:{%s}:")
			tr := &traffic{bundle: b, begun: make(map[string][]time.Time)}
			for i := range 5 {
				tr.resources = append(tr.resources, placed(t, cluster, tt.locks, fmt.Sprintf("%s.%d", b.resource, i), "lock:%s"))
			}
			b.serve(t, queue.ServerConfig{}, tr.run)
			stop := tr.flow(t)
			defer stop()
			poll.Eventually(t, "tasks on all resources", func() bool { return tr.runsSince(time.Time{}) >= 20 })

			death := time.Now()
			master.die(tt.silent)
			poll.Eventually(t, "the replica to be a master", func() bool {
				return strings.Contains(heir.Info(t.Context(), "replication").Val(), "role:master")
			})
			takeover := time.Now()
			longest := takeover.Sub(death) + tt.longest
			poll.Eventually(t, "tasks on all resources again", func() bool { return tr.runsSince(takeover) >= 20 })
			stop()
			idle := tr.longestIdle()
			t.Logf("taken over after %v, a resource idle for up to %v", takeover.Sub(death).Round(time.Millisecond), idle.Round(time.Millisecond))
			if idle > longest {
				t.Errorf("want no resource idle for more than %v, have %v", longest, idle)
			}
		})
	}
}

// A dying server is dialled by way of its dialer.
type dying struct {
	*redistest.Server

	silent atomic.Bool
}

// die ends the server. With silent, its connections stay open, and whoever dials the server waits.
func (d *dying) die(silent bool) {
	d.silent.Store(silent)
	if silent {
		d.Pause()
	} else {
		d.Kill()
	}
}

// dialer returns a dialer of all servers, for the time of the test.
func (d *dying) dialer(t *testing.T) func(ctx context.Context, network, addr string) (net.Conn, error) {
	t.Helper()
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == d.Addr && d.silent.Load() {
			select {
			case <-ctx.Done():
			case <-t.Context().Done():
			}
			return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}

// placed returns a name that begins with the given one and whose key, of that form, is on
// a master.
func placed(t *testing.T, cluster *redistest.Cluster, master int, name, key string) string {
	t.Helper()
	rdb := cluster.Client(t)
	for i := 0; ; i++ {
		candidate := fmt.Sprintf("%s.%d", name, i)
		node, err := rdb.MasterForKey(t.Context(), fmt.Sprintf(key, candidate))
		must(t, err)
		if node.Options().Addr == cluster.Nodes[master].Addr {
			return candidate
		}
	}
}

// A traffic is of short tasks that are handed on from one to the next on some resources.
type traffic struct {
	*bundle

	resources []string

	mu    sync.Mutex
	begun map[string][]time.Time // when the tasks of a resource began
}

// flow enqueues tasks on each resource, more than one at a time, until it is stopped.
func (tr *traffic) flow(t *testing.T) (stop func()) {
	t.Helper()
	const every, longest = 100 * time.Millisecond, time.Second // of which the latter is for one call
	ctx, cancel := context.WithCancel(t.Context())
	var feeders sync.WaitGroup
	for _, resource := range tr.resources {
		feeders.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				call, cancel := context.WithTimeout(ctx, longest)
				_, _ = tr.client.Enqueue(call, job{Res: resource, N: n}, &queue.Options{Queue: tr.queue}) // the master may be dead
				cancel()
				if n%2 == 0 {
					_ = sleep.For(ctx, every)
				}
			}
		})
	}
	return func() {
		cancel()
		feeders.Wait()
	}
}

// run is the handler.
func (tr *traffic) run(ctx context.Context, j job) error {
	tr.mu.Lock()
	tr.begun[j.Res] = append(tr.begun[j.Res], time.Now())
	tr.mu.Unlock()
	return sleep.For(ctx, 20*time.Millisecond)
}

// runsSince returns how many tasks have begun since then, on the resource with the fewest.
func (tr *traffic) runsSince(then time.Time) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	fewest := -1
	for _, resource := range tr.resources {
		begun := tr.begun[resource]
		n := len(begun) - sort.Search(len(begun), func(i int) bool { return begun[i].After(then) })
		if fewest < 0 || n < fewest {
			fewest = n
		}
	}
	return fewest
}

// longestIdle returns the longest time between the beginnings of two tasks on a resource
// that followed each other.
func (tr *traffic) longestIdle() time.Duration {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var longest time.Duration
	for _, begun := range tr.begun {
		for i := range begun[1:] {
			longest = max(longest, begun[i+1].Sub(begun[i]))
		}
	}
	return longest
}
