package queue_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

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
			b, st := setupOn(t, tt.on), newStage(t)
			s, err := queue.NewServer(tt.opt, queue.ServerConfig{
				Asynq:  asynq.Config{Queues: map[string]int{b.queue: 1}, Concurrency: 7},
				Logger: newLogs(t).logger,
			})
			must(t, err)
			t.Cleanup(func() { shutdown(t, s) })
			reload, pool, bounded := optionsOf(queue.ClientOf(s))
			if tt.on.IsClusterMode != (reload == time.Second) || !tt.asIs && (pool < tt.pool || tt.exact && pool != tt.pool || !bounded) {
				t.Errorf("want a pool of %d, calls that end with their context and a Cluster reloaded each second, have %d, %t, %v", tt.pool, pool, bounded, reload)
			}
			queue.Handle(s, st.run)
			must(t, s.Start(t.Context()))
			holder, first := b.begin(t, st, 0)
			waiting := b.park(t, 1)
			holder.open()
			b.awaitGone(t, append(waiting, first)...)
		})
	}
}

// Nothing of asynq's own options is lost.
func TestTunedOptionsAreComplete(t *testing.T) {
	t.Parallel()
	const d = time.Second
	secure := &tls.Config{ServerName: "redis", MinVersion: tls.VersionTLS13}
	universal := func(opt asynq.RedisConnOpt) *redis.UniversalOptions {
		o, ok := queue.Tuned(opt).(queue.RedisOpt)
		if !ok {
			t.Fatalf("want a RedisOpt of %T", opt)
		}
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
			if want.IsZero() {
				t.Errorf("%T.%s: this test gives it no value", tt.given, name)
			}
			if have := have.FieldByName(name); name != "Network" && !reflect.DeepEqual(have.Interface(), want.Interface()) {
				t.Errorf("%T.%s: want %v, have %v", tt.given, name, want, have)
			}
		}
	}
	if !universal(cluster).IsClusterMode {
		t.Error("want a cluster")
	}
}

// A network other than TCP is dialled, also where the address alone does not tell it.
func TestTunedNetwork(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "redis")
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "unix", path)
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	opt, ok := queue.Tuned(asynq.RedisClientOpt{Network: "unix", Addr: path}).(queue.RedisOpt)
	if !ok || opt.Dialer == nil {
		t.Fatal("want a dialer")
	}
	conn, err := opt.Dialer(t.Context(), "tcp", path)
	must(t, err)
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
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
		if _, err := queue.NewServer(tt.opt, queue.ServerConfig{}); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: want %q, have %v", name, tt.want, err)
		}
	}
	for have, rdb := range map[string]redis.UniversalClient{"none": nil, "a nil *redis.Client": (*redis.Client)(nil)} {
		want := "queue: redis: want a client, such as one made by Redis, have " + have
		if _, err := queue.NewServerFromRedisClient(rdb, queue.ServerConfig{}); fmt.Sprint(err) != want {
			t.Errorf("server: want %q, have %v", want, err)
		}
		if _, err := queue.NewClient(rdb, queue.ClientConfig{}); fmt.Sprint(err) != want {
			t.Errorf("client: want %q, have %v", want, err)
		}
	}
}

// Headers and a result travel with a task, also of one that waited, and through asynq's own client.
func TestAsynqTask(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		holder := st.hold(0)
		var have map[string]string
		s := b.newServer(t, queue.ServerConfig{})
		queue.Handle(s, func(ctx context.Context, j job) error {
			if task := queue.AsynqTask(ctx); j.N == 1 {
				have = task.Headers()
				_, err := task.ResultWriter().Write([]byte("result"))
				return err
			}
			return st.run(ctx, j)
		})
		start(t, s)
		b.enqueue(t, b.job(0))
		within(t, patience, "the holder", holder.entered)
		want := map[string]string{"trace": strings.Repeat("x", 2000), "empty": "", queue.HeaderResource: b.resource}
		task, err := b.client.NewTask(b.job(1), &queue.Options{
			Queue: b.queue, TaskID: "one", Retention: time.Hour, Headers: map[string]string{"trace": want["trace"], "empty": ""},
		})
		must(t, err)
		if _, err := asynq.NewClient(b.redisOpt()).Enqueue(task); err != nil {
			t.Fatal(err)
		}
		if info := b.awaitState(t, "one", asynq.TaskStateRetry); !reflect.DeepEqual(info.Headers, want) {
			t.Errorf("while it waits: want %v, have %v", want, info.Headers)
		}
		holder.open()
		if info := b.awaitState(t, "one", asynq.TaskStateCompleted); string(info.Result) != "result" {
			t.Errorf("want its result, have %q", info.Result)
		}
		if !reflect.DeepEqual(have, want) {
			t.Errorf("want %v, have %v", want, have)
		}
	})
	if queue.AsynqTask(t.Context()) != nil {
		t.Error("want none outside a handler")
	}
}

// A task of NewTask can be enqueued any number of times, each time anew.
func TestNewTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	task, err := b.client.NewTask(b.job(1), &queue.Options{Queue: b.queue})
	must(t, err)
	client := asynq.NewClientFromRedisClient(b.rdb)
	for range 2 {
		if _, err := client.Enqueue(task); err != nil {
			t.Fatal(err)
		}
	}
	if have := b.stats(t).Pending; have != 2 {
		t.Errorf("want 2 tasks, have %d", have)
	}
	if _, err := b.client.NewTask(nil, &queue.Options{Delay: time.Hour}); fmt.Sprint(err) != "<nil>: task: want one that is not nil" {
		t.Errorf("no task: have %v", err)
	}
	const want = `test:job: debounce: want none here, as asynq's clients do not know it, have "x"`
	_, err = b.client.NewTask(b.job(1), &queue.Options{Debounce: "x", Delay: time.Second, MaxDelay: time.Second})
	if _, ok := errors.AsType[*queue.TaskError](err); !ok || err.Error() != want {
		t.Errorf("want %s, have %v", want, err)
	}
	for _, o := range []queue.Options{{Delay: time.Hour}, {At: time.Now()}, {Deadline: time.Now().Add(time.Hour)}} {
		if _, err := b.client.NewTask(b.job(1), &o); err == nil || !strings.Contains(err.Error(), "delay, at, deadline: want none") {
			t.Errorf("%+v: have %v", o, err)
		}
	}
}
