package queue_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// traits returns "trait=have", or "trait?" for what could not be checked, of
// what CheckRedis finds.
func traits(t *testing.T, rdb redis.UniversalClient) []string {
	t.Helper()
	found := expect.Value(queue.CheckRedis(t.Context(), rdb))(t)
	var short []string
	for _, f := range found {
		expect.That(t, (f.Have == "") == (f.Advice == ""), "want what it is and advice, or neither, have %+v", f)
		text := f.Trait + "=" + f.Have
		if f.Have == "" {
			text = f.Trait + "?"
		}
		short = append(short, strings.TrimPrefix(f.Server+" "+text, " "))
	}
	return short
}

func TestCheckRedis(t *testing.T) {
	t.Parallel()
	kept := []string{"--appendonly", "yes"}
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"as it should be", kept, nil},
		{"snapshots", []string{"--save", "3600 1"}, nil},
		{"nothing kept", nil, []string{"persistence=off"}},
		{"kept when the system likes", append(kept, "--appendfsync", "no"), []string{"appendfsync=no"}},
		{"kept at once", append(kept, "--appendfsync", "always"), nil},
		{"evicts all", append(kept, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"), []string{"maxmemory-policy=allkeys-lru"}},
		{"evicts what expires", append(kept, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"), []string{"maxmemory-policy=volatile-ttl"}},
		{"evicts nothing", append(kept, "--maxmemory", "100mb"), nil},
		{"would evict, but has no limit", append(kept, "--maxmemory-policy", "allkeys-lru"), nil},
		{"two things", []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, []string{"maxmemory-policy=allkeys-lru", "persistence=off"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, test.args...)
			expect.Same(t, "traits", traits(t, s.Client(t)), test.want)
		})
	}
}

// A Redis that takes no writes at the moment is named with what keeps it from that.
func TestCheckRedisThatRefusesWrites(t *testing.T) {
	t.Parallel()
	config := func(name, value string) func(*redis.Client) error {
		return func(rdb *redis.Client) error { return rdb.ConfigSet(t.Context(), name, value).Err() }
	}
	noSnapshot := func(rdb *redis.Client) error {
		err := os.RemoveAll(rdb.ConfigGet(t.Context(), "dir").Val()["dir"])
		return errors.Join(err, rdb.ConfigSet(t.Context(), "save", "3600 1").Err(), rdb.BgSave(t.Context()).Err())
	}
	kept := []string{"--appendonly", "yes"}
	tests := []struct {
		name string
		args []string
		do   func(*redis.Client) error
		want string // "" for none
	}{
		{"full", kept, config("maxmemory", "1"), "memory="},
		{"full, and makes room", append(kept, "--maxmemory-policy", "allkeys-lru"), config("maxmemory", "1"), "maxmemory-policy="},
		{"has room", kept, config("maxmemory", "100mb"), ""},
		{"no snapshot", nil, noSnapshot, "disk=no snapshot"},
		{"no snapshot, which it does not mind", []string{"--stop-writes-on-bgsave-error", "no"}, noSnapshot, ""},
		{"replica", kept, func(rdb *redis.Client) error { return rdb.ReplicaOf(t.Context(), "127.0.0.1", "1").Err() }, "role=slave"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t, test.args...).Client(t)
			expect.OK(t, test.do(rdb))
			// A snapshot fails a moment later.
			expect.Eventually(t, "the snapshot's end", func() bool {
				return strings.Contains(rdb.Info(t.Context(), "persistence").Val(), "rdb_bgsave_in_progress:0")
			})
			have := strings.Join(traits(t, rdb), ", ")
			expect.That(t, strings.HasPrefix(have, test.want) && (have == "") == (test.want == "") && !strings.Contains(have, ", "), "want %q alone, have %q", test.want, have)
		})
	}
}

// A provider's Redis answers no CONFIG GET, perhaps nothing at all about itself.
func TestCheckRedisThatDoesNotTell(t *testing.T) {
	t.Parallel()
	evicting := []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}
	tests := []struct {
		name  string
		args  []string
		rules []string // of the user
		want  []string
	}{
		{"CONFIG, kept", []string{"--appendonly", "yes"}, []string{"-config"}, []string{"appendfsync?"}},
		{"CONFIG, not kept", nil, []string{"-config"}, []string{"persistence?"}},
		{"CONFIG, evicts", append(evicting, "--appendonly", "yes"), []string{"-config"}, []string{"maxmemory-policy=allkeys-lru", "appendfsync?"}},
		{"INFO", evicting, []string{"-info"}, []string{"version?", "maxmemory-policy=allkeys-lru", "persistence=off"}},
		{"keys", []string{"--appendonly", "yes"}, []string{"resetkeys"}, []string{"unguarded server?"}},
		{"all of it", evicting, []string{"-config", "-info", "-time", "-get", "-zrangebyscore"}, []string{"clock?", "version?", "maxmemory-policy?", "persistence?", "unguarded server?"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, test.args...)
			rules := []any{"ACL", "SETUSER", "guest", "on", "nopass", "+@all", "~*"}
			for _, rule := range test.rules {
				rules = append(rules, rule)
			}
			expect.OK(t, s.Client(t).Do(t.Context(), rules...).Err())
			guest := redis.NewClient(&redis.Options{Addr: s.Addr, Username: "guest", Password: "any"})
			t.Cleanup(func() { _ = guest.Close() })
			expect.Same(t, "traits", traits(t, guest), test.want)
		})
	}
}

// Each master of a Cluster is asked, and named.
func TestCheckRedisCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for _, node := range c.Nodes[:2] {
		expect.OK(t, node.Client(t).ConfigSet(t.Context(), "save", "3600 1").Err())
	}
	want := []string{c.Nodes[2].Addr + " persistence=off"}
	expect.Same(t, "traits", traits(t, c.Client(t)), want)
}

// A slow way to Redis is no difference between clocks.
func TestCheckRedisIsFarAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes")
	proxy := locktest.NewProxy(t, s.Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr})
	t.Cleanup(func() { _ = rdb.Close() })
	expect.OK(t, rdb.Ping(t.Context()).Err())
	proxy.Delay(1200 * time.Millisecond)
	have := traits(t, rdb)
	expect.That(t, len(have) == 0, "want nothing found, have %v", have)
}

func TestCheckRedisThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	s.Kill()
	found, err := queue.CheckRedis(t.Context(), rdb)
	expect.That(t, err != nil && strings.HasPrefix(err.Error(), "queue: check redis: ") && len(found) == 0,
		"want an error alone, have %v, %v", found, err)
}

func TestCheckRedisWithAnotherClock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes")
	rdb := s.Client(t)
	rdb.AddHook(tap(func(_ context.Context, cmd redis.Cmder, send func() error) error {
		err := send()
		if c, ok := cmd.(*redis.TimeCmd); ok {
			c.SetVal(c.Val().Add(-time.Hour))
		}
		return err
	}))
	have := traits(t, rdb)
	expect.That(t, len(have) == 1 && strings.HasPrefix(have[0], "clock=") && strings.HasSuffix(have[0], " behind this machine's"),
		"want the clock alone found, behind, have %v", have)
}

// serveUnguarded starts a plain asynq server that runs jobs without their locks. The returned function
// stops it.
func (b *bundle) serveUnguarded(queueName string, fn func(context.Context, job) error) (stop func()) {
	b.Helper()
	client := queue.Redis(b.opts)
	b.Cleanup(func() { _ = client.Close() })
	server := asynq.NewServerFromRedisClient(client, asynq.Config{
		Queues: map[string]int{queueName: 1}, Concurrency: 10,
		TaskCheckInterval: 10 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond,
		ShutdownTimeout: patience, LogLevel: asynq.FatalLevel,
	})
	expect.OK(b, server.Start(handlerOf(fn)))
	b.Cleanup(server.Shutdown)
	return server.Shutdown
}

// serving returns how many servers of the bundle's queue say that they are guarded, and how many
// do not.
func (b *bundle) serving() (guarded, unguarded int) {
	b.Helper()
	servers := expect.Value(taskredis.Servers(b.Context(), b.rdb))(b)
	for _, s := range servers {
		switch {
		case len(s.Queues) != 1 || s.Queues[b.queue] == 0:
		case s.Guarded:
			guarded++
		default:
			unguarded++
		}
	}
	return guarded, unguarded
}

// unguardedFindings returns what CheckRedis says of unguarded servers of the bundle's queue.
func (b *bundle) unguardedFindings() []queue.Finding {
	b.Helper()
	found := expect.Value(queue.CheckRedis(b.Context(), b.rdb))(b)
	var ours []queue.Finding
	for _, f := range found {
		if f.Trait == "unguarded server" && strings.Contains(f.Have, b.queue) {
			ours = append(ours, f)
		}
	}
	return ours
}

// CheckRedis names the servers that take no locks and serve queues of guarded servers. It does not
// name servers that use the Redis for something else.
func TestCheckRedisUnguarded(t *testing.T) {
	t.Parallel()
	on(t, map[string]func(*testing.T) *bundle{
		"one Redis": func(t *testing.T) *bundle {
			t.Helper()
			return setupAloneWith(t, "--appendonly", "yes")
		},
		"cluster": func(t *testing.T) *bundle {
			t.Helper()
			return setupOn(t, redis.UniversalOptions{Addrs: redistest.StartCluster(t, 3).Addrs})
		},
	}, func(b *bundle) {
		nothing := func(context.Context, job) error { return nil }
		stop := b.serveUnguarded(b.queue, nothing)
		b.serve(queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{b.queue + ".other": 1}}}, nothing)
		expect.Eventually(b, "the plain server", func() bool { _, unguarded := b.serving(); return unguarded == 1 })
		expect.That(b, len(b.unguardedFindings()) == 0, "want a Redis with plain asynq left alone, have %v", b.unguardedFindings())
		b.serve(queue.ServerConfig{}, nothing)
		expect.Eventually(b, "the guarded server", func() bool { guarded, _ := b.serving(); return guarded == 1 })
		have := b.unguardedFindings()
		expect.That(b, len(have) == 1 && strings.HasSuffix(have[0].Have, "), queues: "+b.queue) && have[0].Server == "" && have[0].Advice != "",
			"want the plain server, its queue, and advice, have %+v", have)
		stop()
		expect.That(b, len(b.unguardedFindings()) == 0, "want nothing once it has gone, have %v", b.unguardedFindings())
	})
}
