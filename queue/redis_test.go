package queue_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
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
			expect.That(t, have == tt.want && bounded,
				"want it to reload every %v and calls to end with their context, have %T, %v, %t", tt.want, rdb, have, bounded)
			expect.That(t, !opts.ContextTimeoutEnabled && slices.Equal(opts.Addrs, tt.opts.Addrs), "want the options as they were, have %+v", opts)
		})
	}
}

// Clients of a Cluster with the same options share no slice of nodes. Each adds the nodes that it
// finds to a slice of its own.
func TestRedisOfSharedOptions(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(redistest.StartCluster(t, 1).Addrs[0])
	expect.OK(t, err)
	addrs := append(make([]string, 0, 8), net.JoinHostPort("localhost", port)) // another name for the node
	rdb := queue.Redis(&redis.UniversalOptions{Addrs: addrs, IsClusterMode: true})
	defer func() { _ = rdb.Close() }()
	expect.OK(t, rdb.Set(t.Context(), "k", "v", 0).Err())
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
	expect.OK(t, rdb.Set(t.Context(), "k", "v", 0).Err())
	refusals.Store(6) // as many as take half a second
	expect.OK(t, cluster.Nodes[0].Client(t).ClientKillByFilter(t.Context(), "type", "normal", "skipme", "yes").Err())
	expect.OK(t, rdb.Set(t.Context(), "k", "w", 0).Err()) // it is tried until it succeeds
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
			var resources []string
			for i := range 5 {
				resources = append(resources, placed(t, cluster, tt.locks, fmt.Sprintf("%s.%d", b.resource, i), "lock:%s"))
			}
			idle := newIdleness(func(ctx context.Context, _ job) error { return sleep.For(ctx, 20*time.Millisecond) })
			b.serve(queue.ServerConfig{}, idle.run)
			stop := b.flow(resources)
			defer stop()
			expect.Eventually(t, "tasks on all resources", func() bool { return idle.fewest(resources) >= 20 })

			idle.begin()
			death := time.Now()
			master.die(tt.silent)
			expect.Eventually(t, "the replica to be a master", func() bool {
				return strings.Contains(heir.Info(t.Context(), "replication").Val(), "role:master")
			})
			takeover := time.Since(death)
			t.Logf("taken over after %v", takeover.Round(time.Millisecond))
			expect.Eventually(t, "tasks on all resources again", func() bool { return idle.fewest(resources) >= 20 })
			stop()
			idle.want(t, takeover+tt.longest)
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
		node := expect.Value(rdb.MasterForKey(t.Context(), fmt.Sprintf(key, candidate)))(t)
		if node.Options().Addr == cluster.Nodes[master].Addr {
			return candidate
		}
	}
}

// flow enqueues tasks on each of some resources, more than one at a time, until it is stopped.
func (b *bundle) flow(resources []string) (stop func()) {
	const every, longest = 100 * time.Millisecond, time.Second // of which the latter is for one call
	ctx, cancel := context.WithCancel(b.Context())
	var feeders sync.WaitGroup
	for _, resource := range resources {
		feeders.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				call, cancel := context.WithTimeout(ctx, longest)
				_, _ = b.client.Enqueue(call, job{Res: resource, N: n}, &queue.Options{Queue: b.queue}) // the master may be dead
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

// A server on each kind of options guards tasks, and its clients have what those of Redis have.
func TestServerOnEveryKindOfOptions(t *testing.T) {
	t.Parallel()
	single, cluster := redistest.Shared(t).Addr, redistest.StartCluster(t, 1).Addrs
	of := func(addrs ...string) redis.UniversalOptions {
		return redis.UniversalOptions{Addrs: addrs, IsClusterMode: addrs[0] == cluster[0]}
	}
	own := connOf(func() any { return redis.NewClient(&redis.Options{Addr: single}) })
	for name, tt := range map[string]struct {
		on    redis.UniversalOptions
		opt   asynq.RedisConnOpt
		pool  int  // at least
		asIs  bool // a client of a type of the user's own
		exact bool
	}{
		"node":              {on: of(single), opt: asynq.RedisClientOpt{Addr: single}, pool: 17},
		"node, by pointer":  {on: of(single), opt: &asynq.RedisClientOpt{Addr: single}, pool: 17},
		"node with a pool":  {on: of(single), opt: asynq.RedisClientOpt{Addr: single, PoolSize: 12}, pool: 12, exact: true},
		"cluster":           {on: of(cluster...), opt: asynq.RedisClusterClientOpt{Addrs: cluster}, pool: 17},
		"RedisOpt":          {on: of(single), opt: queue.RedisOpt{Addrs: []string{single}}, pool: 17},
		"a type of its own": {on: of(single), opt: own, asIs: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, tt.on)
			s, err := queue.NewServer(tt.opt, queue.ServerConfig{
				Asynq:  asynq.Config{Queues: map[string]int{b.queue: 1}, Concurrency: 7},
				Logger: newLogs(t).logger,
			})
			expect.OK(t, err)
			t.Cleanup(func() { shutdown(t, s) })
			reload, pool, bounded := optionsOf(queue.ClientOf(s))
			if tt.on.IsClusterMode != (reload == time.Second) || !tt.asIs && (pool < tt.pool || tt.exact && pool != tt.pool || !bounded) {
				t.Errorf("want a pool of %d, calls that end with their context and a Cluster reloaded each second, have %d, %t, %v", tt.pool, pool, bounded, reload)
			}
			queue.Handle(s, b.run)
			expect.OK(t, s.Start(t.Context()))
			holder, first := b.begin(0)
			waiting := b.park(1)
			holder.open()
			b.awaitGone(append(waiting, first)...)
		})
	}
}

// In a Cluster each queue waits on a connection of its own. A pool that has no other is refused.
func TestPoolForManyQueues(t *testing.T) {
	t.Parallel()
	cfg := queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{"a": 1, "b": 1}}, Shards: map[string]int{"b": 5}}
	for pool, want := range map[int]string{
		10: "queue: redis: PoolSize: want 11 or more, as each of 7 queues waits for notifications on a connection of its own, have 10",
		11: "",
	} {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, PoolSize: pool, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = rdb.Close() })
		wantError(t, "a server", want, expect.Err(queue.NewServerFromRedisClient(rdb, cfg)))
	}
}

// Nothing of asynq's own options is lost.
func TestTunedOptionsAreComplete(t *testing.T) {
	t.Parallel()
	const d = time.Second
	secure := &tls.Config{ServerName: "redis", MinVersion: tls.VersionTLS13}
	universal := func(opt asynq.RedisConnOpt) *redis.UniversalOptions {
		o, ok := queue.Tuned(opt).(queue.RedisOpt)
		expect.Need(t, ok, "want a RedisOpt of %T", opt)
		return (*redis.UniversalOptions)(&o)
	}
	node := asynq.RedisClientOpt{
		Network: "tcp", Addr: "a:1", Username: "u", Password: "p", DB: 3, DialTimeout: d, ReadTimeout: 2 * d, WriteTimeout: 3 * d, PoolSize: 4, TLSConfig: secure,
	}
	sentinels := asynq.RedisFailoverClientOpt{
		MasterName: "main", SentinelAddrs: []string{"a:1", "b:1"}, SentinelUsername: "su", SentinelPassword: "sp",
		Username: "u", Password: "p", DB: 3, DialTimeout: d, ReadTimeout: 2 * d, WriteTimeout: 3 * d, PoolSize: 4, TLSConfig: secure,
	}
	cluster := asynq.RedisClusterClientOpt{
		Addrs: []string{"a:1", "b:1"}, MaxRedirects: 5, Username: "u", Password: "p", DialTimeout: d, ReadTimeout: 2 * d, WriteTimeout: 3 * d, TLSConfig: secure,
	}
	for _, tt := range []struct{ given, have any }{
		{node, universal(node).Simple()}, {sentinels, universal(sentinels).Failover()}, {cluster, universal(cluster).Cluster()},
	} {
		given, have := reflect.ValueOf(tt.given), reflect.ValueOf(tt.have).Elem()
		for i := range given.NumField() {
			name, want := given.Type().Field(i).Name, given.Field(i)
			expect.That(t, !want.IsZero(), "%T.%s: this test gives it no value", tt.given, name)
			if have := have.FieldByName(name); name != "Network" && !reflect.DeepEqual(have.Interface(), want.Interface()) {
				t.Errorf("%T.%s: want %v, have %v", tt.given, name, want, have)
			}
		}
	}
	expect.That(t, universal(cluster).IsClusterMode, "want a cluster")
}

// A network other than TCP is dialled, also where the address alone does not tell it.
func TestTunedNetwork(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "redis")
	var lc net.ListenConfig
	listener := expect.Value(lc.Listen(t.Context(), "unix", path))(t)
	t.Cleanup(func() { _ = listener.Close() })
	opt, ok := queue.Tuned(asynq.RedisClientOpt{Network: "unix", Addr: path}).(queue.RedisOpt)
	expect.Need(t, ok && opt.Dialer != nil, "want a dialer")
	conn := expect.Value(opt.Dialer(t.Context(), "tcp", path))(t)
	expect.OK(t, conn.Close())
}

func TestNewServerRefusesOptions(t *testing.T) {
	t.Parallel()
	spreads := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = spreads.Close() })
	for name, tt := range map[string]struct {
		opt  asynq.RedisConnOpt
		want string
	}{
		"none":                     {nil, "queue: redis: want options such as an asynq.RedisClientOpt, have none"},
		"a nil pointer":            {(*asynq.RedisClientOpt)(nil), "queue: redis: want options such as an asynq.RedisClientOpt, have a nil *asynq.RedisClientOpt"},
		"a nil RedisOpt":           {(*queue.RedisOpt)(nil), "queue: redis: want options such as an asynq.RedisClientOpt, have a nil *queue.RedisOpt"},
		"a nil function":           {connOf(nil), "queue: redis: want options such as an asynq.RedisClientOpt, have a nil queue_test.connOf"},
		"no name":                  {asynq.RedisFailoverClientOpt{SentinelAddrs: []string{"a:1"}}, "queue: redis: want the MasterName"},
		"no client":                {connOf(func() any { return 1 }), "queue: redis: want queue_test.connOf to make a client of go-redis, have int"},
		"nothing":                  {connOf(func() any { return nil }), "queue: redis: want queue_test.connOf to make a client of go-redis, have none"},
		"a nil client":             {connOf(func() any { return (*redis.Client)(nil) }), "queue: redis: want queue_test.connOf to make a client of go-redis, have a nil *redis.Client"},
		"a client of a redis.Ring": {connOf(func() any { return spreads }), "queue: a redis.Ring"},
	} {
		wantError(t, name, tt.want, expect.Err(queue.NewServer(tt.opt, queue.ServerConfig{})))
	}
	for have, rdb := range map[string]redis.UniversalClient{"none": nil, "a nil *redis.Client": (*redis.Client)(nil)} {
		want := "queue: redis: want a client, such as one made by Redis, have " + have
		expect.Equal(t, "server", fmt.Sprint(expect.Err(queue.NewServerFromRedisClient(rdb, queue.ServerConfig{}))), want)
		expect.Equal(t, "client", fmt.Sprint(expect.Err(queue.NewClient(rdb, queue.ClientConfig{}))), want)
	}
}

// Headers and a result travel with a task, also of one that waited, and through asynq's own client.
func TestAsynqTask(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		holder := b.hold(0)
		var have map[string]string
		s := b.newServer(queue.ServerConfig{})
		queue.Handle(s, func(ctx context.Context, j job) error {
			if task := queue.AsynqTask(ctx); j.N == 1 {
				have = task.Headers()
				_, err := task.ResultWriter().Write([]byte("result"))
				return err
			}
			return b.run(ctx, j)
		})
		start(b, s)
		b.enqueue(b.job(0))
		within(b, patience, "the holder", holder.entered)
		want := map[string]string{"trace": strings.Repeat("x", 2000), "empty": "", queue.HeaderResource: b.resource}
		task, err := b.client.NewTask(b.job(1), &queue.Options{
			Queue: b.queue, TaskID: "one", Retention: time.Hour, Headers: map[string]string{"trace": want["trace"], "empty": ""},
		})
		expect.OK(b, err)
		expect.OK(b, expect.Err(asynq.NewClient(b.redisOpt()).Enqueue(task)))
		info := b.awaitState("one", asynq.TaskStateRetry)
		expect.That(b, reflect.DeepEqual(info.Headers, want), "while it waits: want %v, have %v", want, info.Headers)
		holder.open()
		expect.Equal(b, "result", string(b.awaitState("one", asynq.TaskStateCompleted).Result), "result")
		expect.That(b, reflect.DeepEqual(have, want), "want %v, have %v", want, have)
	})
	expect.That(t, queue.AsynqTask(t.Context()) == nil, "want none outside a handler")
}

// A task of NewTask can be enqueued any number of times, each time anew.
func TestNewTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	task, err := b.client.NewTask(b.job(1), &queue.Options{Queue: b.queue})
	expect.OK(t, err)
	client := asynq.NewClientFromRedisClient(b.rdb)
	for range 2 {
		expect.OK(t, expect.Err(client.Enqueue(task)))
	}
	expect.Equal(t, "tasks", b.stats().Pending, 2)
	wantError(t, "no task", "<nil>: task: want one that is not nil", expect.Err(b.client.NewTask(nil, &queue.Options{Delay: time.Hour})))
	const want = `test:job: debounce: want none here, as asynq's clients do not know it, have "x"`
	_, err = b.client.NewTask(b.job(1), &queue.Options{Debounce: "x", Delay: time.Second, MaxDelay: time.Second})
	_, ok := errors.AsType[*queue.TaskError](err)
	expect.That(t, ok && err.Error() == want, "want %s, have %v", want, err)
	for _, o := range []queue.Options{{Delay: time.Hour}, {At: time.Now()}, {Deadline: time.Now().Add(time.Hour)}} {
		_, err := b.client.NewTask(b.job(1), &o)
		expect.That(t, err != nil && strings.Contains(err.Error(), "delay, at, deadline: want none"), "%+v: have %v", o, err)
	}
}
