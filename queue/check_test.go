package queue_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// traits returns "trait=have", or "trait?" for what could not be checked, of
// what CheckRedis finds.
func traits(t *testing.T, rdb redis.UniversalClient) []string {
	t.Helper()
	found, err := queue.CheckRedis(t.Context(), rdb)
	must(t, err)
	var short []string
	for _, f := range found {
		if (f.Have == "") != (f.Advice == "") {
			t.Errorf("want what it is and advice, or neither, have %+v", f)
		}
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
			if diff := cmp.Diff(test.want, traits(t, s.Client(t))); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
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
			must(t, s.Client(t).Do(t.Context(), rules...).Err())
			guest := redis.NewClient(&redis.Options{Addr: s.Addr, Username: "guest", Password: "any"})
			t.Cleanup(func() { _ = guest.Close() })
			if diff := cmp.Diff(test.want, traits(t, guest)); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
		})
	}
}

// Each master of a Cluster is asked, and named.
func TestCheckRedisCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for _, node := range c.Nodes[:2] {
		must(t, node.Client(t).ConfigSet(t.Context(), "save", "3600 1").Err())
	}
	want := []string{c.Nodes[2].Addr + " persistence=off"}
	if diff := cmp.Diff(want, traits(t, c.Client(t))); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

// A slow way to Redis is no difference between clocks.
func TestCheckRedisIsFarAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes")
	proxy := locktest.NewProxy(t, s.Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr})
	t.Cleanup(func() { _ = rdb.Close() })
	must(t, rdb.Ping(t.Context()).Err())
	proxy.Delay(1200 * time.Millisecond)
	if have := traits(t, rdb); len(have) > 0 {
		t.Errorf("want nothing found, have %v", have)
	}
}

func TestCheckRedisThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	s.Kill()
	found, err := queue.CheckRedis(t.Context(), rdb)
	if err == nil || !strings.HasPrefix(err.Error(), "queue: check redis: ") || len(found) > 0 {
		t.Errorf("want an error alone, have %v, %v", found, err)
	}
}

// An offClock makes the clock of Redis wrong.
type offClock struct{ by time.Duration }

func (o offClock) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o offClock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (o offClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(*redis.TimeCmd); ok {
			c.SetVal(c.Val().Add(o.by))
		}
		return err
	}
}

func TestCheckRedisWithAnotherClock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes")
	rdb := s.Client(t)
	rdb.AddHook(offClock{by: -time.Hour})
	if have := traits(t, rdb); len(have) != 1 || !strings.HasPrefix(have[0], "clock=") || !strings.HasSuffix(have[0], " behind this machine's") {
		t.Errorf("want the clock alone found, behind, have %v", have)
	}
}
