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

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
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

func TestCheckRedisThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	s.Kill()
	found, err := queue.CheckRedis(t.Context(), rdb)
	expect.That(t, err != nil && strings.HasPrefix(err.Error(), "queue: check redis: ") && len(found) == 0,
		"want an error alone, have %v, %v", found, err)
}

// Another clock is found, and a slow way to Redis is no difference between clocks.
func TestCheckRedisWithAnotherClock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes")
	for want, tt := range map[string]struct{ off, takes time.Duration }{"behind this machine's": {off: -time.Hour}, "": {takes: 1200 * time.Millisecond}} {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
		t.Cleanup(func() { _ = rdb.Close() })
		rdb.AddHook(tap(func(ctx context.Context, cmd redis.Cmder, send func() error) error {
			c, ok := cmd.(*redis.TimeCmd)
			if !ok {
				return send()
			}
			_ = sleep.For(ctx, tt.takes)
			err := send()
			c.SetVal(c.Val().Add(tt.off))
			_ = sleep.For(ctx, tt.takes)
			return err
		}))
		have := strings.Join(traits(t, rdb), ", ")
		expect.That(t, strings.HasPrefix(have, "clock=") == (want != "") && strings.HasSuffix(have, want) && !strings.Contains(have, ", "), "want %q alone, have %q", want, have)
	}
}

// CheckRedis names a server that takes no locks and serves a queue of a guarded one. (inspect tests which these are.)
func TestCheckRedisUnguarded(t *testing.T) {
	t.Parallel()
	b := setupAloneWith(t, "--appendonly", "yes")
	plain := asynq.NewServerFromRedisClient(b.rdb, asynq.Config{Queues: map[string]int{b.queue: 1}, LogLevel: asynq.FatalLevel})
	expect.OK(t, plain.Start(asynq.NotFoundHandler()))
	t.Cleanup(plain.Shutdown)
	b.serve(queue.ServerConfig{}, b.run)
	expect.Eventually(t, "the plain server found, and its queue", func() bool {
		have := traits(t, b.rdb)
		return len(have) == 1 && strings.HasPrefix(have[0], "unguarded server=") && strings.HasSuffix(have[0], "), queues: "+b.queue)
	})
}
