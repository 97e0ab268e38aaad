package lockredis

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// onEach runs a test on a server, on the Redis in memory, and on a Cluster.
func onEach(t *testing.T, test func(t *testing.T, rdb pipeliner, cluster bool)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Start(t).Client(t), false)
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		test(t, rdb, false)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.StartCluster(t, 3).Client(t), true)
	})
}

func tokenOf(name string) string { return "siding:" + name + ":test" }

func acquiring(ctx context.Context, key, token string) *call {
	return &call{ctx: ctx, key: key, args: []any{"acquire", token, 15000, 60000, lines("0", "nonce", "5000", "60000", "")}}
}

func renewing(ctx context.Context, key, token string) *call {
	return &call{ctx: ctx, key: key, args: []any{"renew", token, 15000, 60000, ""}}
}

func releasing(ctx context.Context, key, token, fence string) *call {
	return &call{ctx: ctx, key: key, args: []any{"release", token, 5000, 60000, lines("nonce", fence)}}
}

// Of calls that go together each is made for itself: one that finds its lock busy, lost or broken changes nothing for the
// others. They may all be made twice.
func TestCallsThatGoTogether(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, rdb pipeliner, cluster bool) {
		t.Helper()
		ctx := t.Context()
		c, ok := rdb.(redis.Cmdable)
		expect.Need(t, ok, "want a client")
		for key, value := range map[string]string{"lock:busy": tokenOf("other"), "lock:mine": tokenOf("me"), "lock:done": tokenOf("me")} {
			expect.OK(t, c.Set(ctx, key, value, time.Minute).Err())
		}
		expect.OK(t, c.HSet(ctx, "lock:broken", "a", "b").Err())
		m := committed(rdb, cluster)
		for range 2 {
			calls := []*call{
				acquiring(ctx, "lock:busy", tokenOf("me")), acquiring(ctx, "lock:broken", tokenOf("me")), acquiring(ctx, "lock:free", tokenOf("me")),
				renewing(ctx, "lock:lost", tokenOf("me")), renewing(ctx, "lock:mine", tokenOf("me")), releasing(ctx, "lock:done", tokenOf("me"), "0"),
			}
			m.send(ctx, calls)
			have := ""
			for _, c := range calls {
				text := fmt.Sprint(c.reply, " ", c.err)
				switch reply := c.reply.(type) {
				case []any:
					text = fmt.Sprint(reply[0])
				case int64:
					text = fmt.Sprint(reply)
				case string: // the fence
					text = "1"
				default:
					if c.err != nil && strings.HasPrefix(c.err.Error(), "WRONGTYPE") {
						text = "WRONGTYPE"
					}
				}
				have += text + " "
			}
			if want := "0 WRONGTYPE 1 0 1 1 "; have != want {
				t.Errorf("want %s, have %s", want, have)
			}
			if nodes, many := rdb.(*redis.ClusterClient); many { // the servers may forget the script
				_ = nodes.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return node.ScriptFlush(ctx).Err() })
			}
		}
		for key, want := range map[string]string{"lock:busy": tokenOf("other"), "lock:free": tokenOf("me"), "lock:mine": tokenOf("me"), "lock:done": "", "lock:lost": ""} {
			if have := c.Get(ctx, key).Val(); have != want {
				t.Errorf("%s: want %q, have %q", key, want, have)
			}
		}
	})
}

// Nobody hears of a success that Redis has not told.
func TestCallsThatFailTogether(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	for _, cluster := range []bool{false, true} {
		calls := []*call{acquiring(t.Context(), "lock:one", tokenOf("me")), acquiring(t.Context(), "lock:two", tokenOf("me"))}
		committed(rdb, cluster).send(t.Context(), calls)
		for _, c := range calls {
			expect.That(t, c.err != nil && c.reply == nil, "cluster %t, %s: want an error alone, have %v, %v", cluster, c.key, c.reply, c.err)
		}
	}
}

// An address may come to name another master, while connections lead to the former one, which is a replica now. The client makes
// new ones only if it sees that Redis refuses to write.
func TestFormerMasterBehindTheAddress(t *testing.T) {
	t.Parallel()
	former, master := redistest.Start(t), redistest.Start(t)
	var named atomic.Pointer[redistest.Server]
	named.Store(former)
	rdb := redis.NewClient(&redis.Options{Addr: "redis:6379", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, named.Load().Addr)
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	m := committed(rdb, false)
	send := func(names ...string) {
		t.Helper()
		var calls []*call
		for _, name := range names {
			calls = append(calls, acquiring(t.Context(), "lock:"+name, tokenOf(name)))
		}
		m.send(t.Context(), calls)
		for _, c := range calls {
			expect.OK(t, c.err)
		}
	}
	send("a", "b")
	named.Store(master)
	host, port, err := net.SplitHostPort(master.Addr)
	expect.OK(t, err)
	expect.OK(t, former.Client(t).ReplicaOf(t.Context(), host, port).Err())
	send("c", "d")
	send("e")
}

// go-redis has types of its own for some refusals, and would read no further than one of these in a list.
func TestRefusalBesideOtherCalls(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	expect.OK(t, rdb.Set(ctx, "lock:mine", tokenOf("me"), time.Minute).Err())
	expect.OK(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	full, mine := acquiring(ctx, "lock:free", tokenOf("me")), renewing(ctx, "lock:mine", tokenOf("me"))
	committed(rdb, false).send(ctx, []*call{full, mine})
	expect.That(t, redis.HasErrorPrefix(full.err, "OOM") && mine.err == nil && mine.reply == int64(1), "want no memory for one, and the other renewed, have %v, and %v %v", full.err, mine.reply, mine.err)
}

// A Redis without memory refuses no release, though somebody waits or the lock has a limit.
func TestReleaseWithoutMemory(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	permit := store.PermitKey("lock:limited", "1")
	for key, lock := range map[string]string{"lock:awaited": "lock:awaited", permit: "lock:limited"} {
		expect.OK(t, rdb.Set(ctx, key, tokenOf("me"), time.Minute).Err())
		expect.OK(t, rdb.ZAdd(ctx, store.Beside(lock, "lines"), redis.Z{Score: 1, Member: "q"}).Err())
	}
	expect.OK(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	for _, key := range []string{"lock:awaited", permit} {
		c := releasing(ctx, key, tokenOf("me"), "0")
		committed(rdb, false).send(ctx, []*call{c})
		expect.That(t, c.err == nil && c.reply == int64(1), "%s: want it released, have %v, %v", key, c.reply, c.err)
		expect.Equal(t, key, rdb.Exists(ctx, key).Val(), 0)
	}
}

// Redis refuses a whole script if its user may not have one of the keys.
func TestForbiddenLockBesideOthers(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), redistest.Start(t)
	expect.OK(t, s.Client(t).Set(ctx, "lock:mine", tokenOf("me"), time.Minute).Err())
	expect.OK(t, s.Client(t).Do(ctx, "ACL", "SETUSER", "shop", "on", "nopass", "+@all", "~lock:mine", "~{lock:mine}*").Err())
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr, Username: "shop", Password: "any"})
	t.Cleanup(func() { _ = rdb.Close() })
	forbidden, mine := acquiring(ctx, "lock:other", tokenOf("me")), renewing(ctx, "lock:mine", tokenOf("me"))
	committed(rdb, false).send(ctx, []*call{forbidden, mine})
	expect.That(t, redis.HasErrorPrefix(forbidden.err, "NOPERM") && mine.err == nil && mine.reply == int64(1), "want one refused, and the other renewed, have %v, and %v %v", forbidden.err, mine.reply, mine.err)
}

// A lock is held for longer than a wait queue is kept to which nobody comes. Those in it sleep meanwhile, and keep their places.
func TestQueueOfALongLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, rdb pipeliner, cluster bool) {
		t.Helper()
		ctx := t.Context()
		c := acquiring(ctx, "lock:long", tokenOf("me"))
		c.args[2] = time.Hour.Milliseconds()
		waiting := acquiring(ctx, "lock:long", tokenOf("you"))
		waiting.args[4] = lines("0", "nonce", "5000", "60000", "siding-goroutine:a:1")
		for _, c := range []*call{c, waiting} {
			committed(rdb, cluster).send(ctx, []*call{c})
			expect.OK(t, c.err)
		}
		left := rdb.(redis.Cmdable).PTTL(ctx, store.Beside("lock:long", "queue")).Val() //nolint:errcheck,forcetypeassert // all clients are
		expect.That(t, left > 59*time.Minute && left <= time.Hour+10*time.Second, "want the queue kept as long as the lock, have it for %v", left)
	})
}

// A proxy in front of a Cluster looks like one Redis, and refuses scripts with keys of several slots.
func TestClusterBehindAProxy(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	m := committed(crossing{cluster.Client(t)}, false)
	for range 2 {
		calls := []*call{acquiring(t.Context(), "lock:a", tokenOf("a")), acquiring(t.Context(), "lock:b", tokenOf("b")), acquiring(t.Context(), "lock:c", tokenOf("c"))}
		m.send(t.Context(), calls)
		for _, c := range calls {
			expect.That(t, c.err == nil, "%s: %v", c.key, c.err)
		}
	}
}

// crossing refuses as a proxy does: the client of a Cluster says that in words of its own.
type crossing struct{ *redis.ClusterClient }

func (c crossing) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if len(keys) > 1 {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(refusal("CROSSSLOT Keys in request don't hash to the same slot"))
		return cmd
	}
	return c.ClusterClient.EvalSha(ctx, sha, keys, args...)
}

// A post takes calls, and answers when it is told to, if their context lasts until then.
type post struct {
	mu      sync.Mutex
	sent    []string // the locks of the calls that went together
	answers chan struct{}
}

func (p *post) send(ctx context.Context, calls []*call) {
	keys := make([]string, 0, len(calls))
	for _, c := range calls {
		keys = append(keys, c.key)
	}
	p.mu.Lock()
	p.sent = append(p.sent, strings.Join(keys, " "))
	p.mu.Unlock()
	select {
	case <-p.answers:
	case <-ctx.Done():
	}
	for _, c := range calls {
		c.reply, c.err = c.key, ctx.Err()
	}
}

func (p *post) wantSent(t *testing.T, want ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	have := strings.Join(p.sent, "; ")
	expect.That(t, have == strings.Join(want, "; "), "want %s sent, have %s", strings.Join(want, "; "), have)
}
