package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/embedded"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/lock/redisfence"
)

// now is a fence as a lock gives it out: microseconds of a clock.
const now = 1_790_000_000_000_000

// backends are the servers on which the script has to mean the same.
var backends = map[string]func(*testing.T) *redis.Client{
	"redis": func(t *testing.T) *redis.Client {
		t.Helper()
		return redistest.Shared(t).Client(t)
	},
	"embedded": func(t *testing.T) *redis.Client {
		t.Helper()
		server := expect.Value(embedded.Start(embedded.AnyPort))(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
		t.Cleanup(func() {
			_ = client.Close()
			server.Close()
		})
		return client
	},
}

// onEach runs a test against every backend.
func onEach(t *testing.T, run func(*setup)) {
	t.Helper()
	for name, start := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(setUp(t, start(t), t.Name()))
		})
	}
}

// A setup is a test with its own keys, and a script that appends to the list at data and returns
// its length.
type setup struct {
	*testing.T
	rdb         redis.UniversalClient
	fence, data string
	push        *redisfence.Script
}

func setUp(t *testing.T, rdb redis.UniversalClient, name string) *setup {
	t.Helper()
	// The comment makes it a script of its own, which the server does not know.
	const source = "return redis.call('RPUSH', KEYS[1], ARGV[1]) -- for "
	return &setup{
		T: t, rdb: rdb, fence: "{" + name + "}:fence", data: "{" + name + "}:data",
		push: redisfence.NewScript(source + name),
	}
}

// run runs a script with a fence on the keys of the setup.
func (s *setup) run(script *redisfence.Script, fence int64, args ...any) *redis.Cmd {
	return script.Run(locktest.WithFence(s.Context(), "order:1", fence), s.rdb, "order:1", s.fence, []string{s.data}, args...)
}

// write appends the fence to the data.
func (s *setup) write(fence int64) error { return s.run(s.push, fence, fence).Err() }

// want checks what the keys hold.
func (s *setup) want(fence string, data ...string) {
	s.Helper()
	if have, err := s.rdb.Get(s.Context(), s.fence).Result(); have != fence || err != nil && !errors.Is(err, redis.Nil) {
		s.Errorf("want the fence %q, have %q, %v", fence, have, err)
	}
	have, err := s.rdb.LRange(s.Context(), s.data, 0, -1).Result()
	if err != nil || len(data)+len(have) > 0 && !cmp.Equal(data, have) {
		s.Errorf("want the data %q, have %q, %v", data, have, err)
	}
}

// wantStale checks that err refuses a fence.
func (s *setup) wantStale(err error, fence, seen int64) {
	s.Helper()
	if !errors.Is(err, lock.ErrStale) {
		s.Errorf("fence %d after %d: want %v, have %v", fence, seen, lock.ErrStale, err)
		return
	}
	stale, _ := errors.AsType[*store.StaleError](err)
	if want := (&store.StaleError{Place: strconv.Quote(s.fence), Fence: fence, Seen: seen}); !cmp.Equal(want, stale) {
		s.Errorf("want %+v, have %+v", want, stale)
	}
}

// TestFormerHolderIsRefused, also by a server that has not seen the script. The fence stays for ever.
func TestFormerHolderIsRefused(t *testing.T) {
	t.Parallel()
	// Pairs that a comparison as text, or as Lua's numbers, would take for another.
	for _, pair := range [][2]int64{{1, 2}, {9, 10}, {99, 100}, {now, now + 1}, {1 << 53, 1<<53 + 1}, {math.MaxInt64 - 1, math.MaxInt64}} {
		former, latter := pair[0], pair[1]
		t.Run(strconv.FormatInt(latter, 10), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				s.rdb.Set(s.Context(), s.fence, latter, 0)
				s.wantStale(s.write(former), former, latter)
				s.rdb.Del(s.Context(), s.fence)
				for _, fence := range []int64{former, former, latter, latter} {
					if err := s.write(fence); err != nil {
						s.Fatalf("fence %d: want it accepted, have %v", fence, err)
					}
					if ttl := s.rdb.PTTL(s.Context(), s.fence).Val(); ttl != -1 {
						s.Errorf("want no expiry, have %v", ttl)
					}
					s.rdb.Expire(s.Context(), s.fence, time.Hour)
				}
				s.wantStale(s.write(former), former, latter)
				f, l := strconv.FormatInt(former, 10), strconv.FormatInt(latter, 10)
				s.want(l, f, f, l, l)
			})
		})
	}
}

// TestKeysAndArguments: the script sees its own and nothing of ours.
func TestKeysAndArguments(t *testing.T) {
	t.Parallel()
	script := redisfence.NewScript(`
		local key, fence, kind, seen = 'locals', 'of', 'its', 'own'
		return #KEYS .. ' ' .. table.concat(KEYS, ',') .. ' ' .. #ARGV .. ' ' .. table.concat(ARGV, ',')`)
	onEach(t, func(s *setup) {
		ctx := locktest.WithFence(s.Context(), "order:1", now)
		for _, test := range []struct {
			keys []string
			args []any
			want string
		}{
			{nil, nil, "0  0 "},
			{[]string{s.fence}, nil, "1 " + s.fence + " 0 "},
			{nil, []any{"a"}, "0  1 a"},
			{[]string{s.data + "1", s.data + "2"}, []any{"a", 2, ""}, "2 " + s.data + "1," + s.data + "2 3 a,2,"},
		} {
			have, err := script.Run(ctx, s.rdb, "order:1", s.fence, test.keys, test.args...).Text()
			if err != nil || have != test.want {
				s.Errorf("want %q, have %q, %v", test.want, have, err)
			}
		}
	})
}

// TestForeignKey: what is no fence stays as it is, and the script does not run.
func TestForeignKey(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for _, value := range []string{"", "abc", "0", "007", "-5", "1.5", "1e3", " 5", "5\n", "5*", strings.Repeat("9", 19), strings.Repeat("9", 30)} {
			s.rdb.Set(s.Context(), s.fence, value, 0)
			if err := s.write(now); !errors.Is(err, redisfence.ErrKey) || !strings.Contains(err.Error(), strconv.Quote(s.fence)) {
				s.Errorf("%q: want %v that names the key, have %v", value, redisfence.ErrKey, err)
			}
			s.want(value)
		}
		s.rdb.Del(s.Context(), s.fence)
		s.rdb.HSet(s.Context(), s.fence, "field", 1)
		if err := s.write(now); !errors.Is(err, redisfence.ErrKey) || !strings.Contains(err.Error(), "holds a hash") {
			s.Errorf("want %v because of a hash, have %v", redisfence.ErrKey, err)
		}
		if n := s.rdb.HLen(s.Context(), s.fence).Val() + s.rdb.Exists(s.Context(), s.data).Val(); n != 1 {
			s.Errorf("want one field and no data, have %d", n)
		}
	})
}

func TestNoClient(t *testing.T) {
	t.Parallel()
	ctx := locktest.WithFence(t.Context(), "order:1", now)
	for have, rdb := range map[string]redis.Scripter{"none": nil, "a nil *redis.Client": (*redis.Client)(nil)} {
		err := redisfence.NewScript("return 1").Run(ctx, rdb, "order:1", "fence", nil).Err()
		if want := `redisfence: "fence": want a client of Redis, have ` + have; err == nil || err.Error() != want {
			t.Errorf("want %q, have %v", want, err)
		}
	}
}

func TestNoFence(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for _, fence := range []int64{0, -1} {
			if err := s.write(fence); !errors.Is(err, lock.ErrNoFence) {
				s.Errorf("fence %d: want %v, have %v", fence, lock.ErrNoFence, err)
			}
		}
		s.want("")
	})
}

// TestScriptsOwnErrors come back as from a script without a fence.
func TestScriptsOwnErrors(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		err := s.run(redisfence.NewScript("return redis.call('RPUSH', KEYS[1], 'a' -- not closed"), now).Err()
		if err == nil {
			s.Error("not Lua: want an error, have none")
		}
		s.want("")
		if err := s.run(redisfence.NewScript("return redis.error_reply('SOLDOUT none left')"), 1).Err(); err == nil || err.Error() != "SOLDOUT none left" {
			s.Errorf("want the script's own error, have %v", err)
		}
		if err := s.run(redisfence.NewScript("return false"), 2).Err(); !errors.Is(err, redis.Nil) {
			s.Errorf("want %v, have %v", redis.Nil, err)
		}
		err = s.run(redisfence.NewScript("redis.call('RPUSH', KEYS[1], 'a') return redis.call('HGET', KEYS[1], 'a')"), 3).Err()
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			s.Errorf("failed halfway: want WRONGTYPE, have %v", err)
		}
		s.want("3", "a")
		ctx, cancel := context.WithCancel(locktest.WithFence(s.Context(), "order:1", 4))
		cancel()
		if err := s.push.Run(ctx, s.rdb, "order:1", s.fence, []string{s.data}, 1).Err(); !errors.Is(err, context.Canceled) {
			s.Errorf("want %v, have %v", context.Canceled, err)
		}
	})
}

// TestRivals lets many fences loose on one key at once: those that write do so
// in their order.
func TestRivals(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		const rivals = 40
		var wg sync.WaitGroup
		for i := range rivals {
			fence := int64(i*7%rivals + 1) // each once, in no order
			wg.Go(func() {
				if err := s.write(fence); err != nil && !errors.Is(err, lock.ErrStale) {
					s.Errorf("fence %d: %v", fence, err)
				}
			})
		}
		wg.Wait()
		var last int
		for _, text := range s.rdb.LRange(s.Context(), s.data, 0, -1).Val() {
			fence, err := strconv.Atoi(text)
			if err != nil || fence <= last {
				s.Errorf("want rising fences, have %q after %d", text, last)
			}
			last = fence
		}
		if last != rivals {
			s.Errorf("want the highest fence %d last, have %d", rivals, last)
		}
	})
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	client := cluster.Client(t)
	for i := range 30 {
		s := setUp(t, client, fmt.Sprintf("sku:%d", i))
		for _, fence := range []int64{1, 3} {
			expect.OK(t, s.write(fence))
		}
		s.wantStale(s.write(2), 2, 3)
		s.want("3", "1", "3")

		err := s.push.Run(locktest.WithFence(t.Context(), "order:1", 4), s.rdb, "order:1", s.fence, []string{"a slot of its own"}, 4).Err()
		expect.That(t, redis.HasErrorPrefix(err, "CROSSSLOT"), "want CROSSSLOT, have %v", err)
		s.want("3", "1", "3")
	}
	for _, node := range cluster.Nodes {
		if n := node.Client(t).DBSize(t.Context()).Val(); n == 0 {
			t.Errorf("want fences on all masters, have none on %s", node.Addr)
		}
	}
}

// TestNestedLocks: a rival has been at the data of one of two resources. Writes to that one are
// refused, and writes to the other are not, however their fences compare.
func TestNestedLocks(t *testing.T) {
	t.Parallel()
	const outer, inner = int64(5), int64(9)
	for name, rival := range map[string]struct{ order, item int64 }{
		"at the outer": {order: 7},
		"at the inner": {item: 11},
		"at both":      {order: 7, item: 11},
		"at none":      {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				ctx := locktest.WithFence(locktest.WithFence(s.Context(), "order:1", outer), "item:1", inner)
				for resource, later := range map[string]int64{"order:1": rival.order, "item:1": rival.item} {
					fence := "{" + resource + t.Name() + "}:fence"
					if later > 0 {
						expect.OK(s, s.push.Run(locktest.WithFence(s.Context(), resource, later), s.rdb, resource, fence, []string{fence + "d"}, 1).Err())
					}
					err := s.push.Run(ctx, s.rdb, resource, fence, []string{fence + "d"}, 2).Err()
					if stale := errors.Is(err, lock.ErrStale); stale != (later > 0) || !stale && err != nil {
						s.Errorf("%s: want ErrStale (%t), have %v", resource, later > 0, err)
					}
				}
				if err := s.push.Run(ctx, s.rdb, "user:1", s.fence, []string{s.data}, 3).Err(); !errors.Is(err, lock.ErrNoFence) {
					s.Errorf("a resource that is not held: want ErrNoFence, have %v", err)
				}
			})
		})
	}
}
