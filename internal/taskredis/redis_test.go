package taskredis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A bench is the Redis of a test.
type bench struct {
	*testing.T

	rdb   *redis.Client
	queue string // of this test alone
}

func newBench(t *testing.T, rdb *redis.Client) *bench {
	t.Helper()
	name := strings.NewReplacer("/", ":", " ", "-").Replace(t.Name())
	// A test that runs again finds nothing of its last time.
	return &bench{t, rdb, fmt.Sprint(name, ":", time.Now().UnixNano())}
}

// onRedis runs a test on a Redis in memory and on a real one, which all tests share.
func onRedis(t *testing.T, test func(*bench)) {
	t.Helper()
	onServers(t, redistest.Shared, test)
}

// onOwnRedis is onRedis for a test that has all of the real one for itself.
func onOwnRedis(t *testing.T, test func(*bench)) {
	t.Helper()
	onServers(t, func(tb testing.TB) *redistest.Server { tb.Helper(); return redistest.Start(tb) }, test)
}

func onServers(t *testing.T, start func(testing.TB) *redistest.Server, test func(*bench)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		memory, _ := inMemory(t)
		test(memory)
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		test(newBench(t, start(t).Client(t)))
	})
}

// inMemory returns a bench on a Redis in memory, whose clock the test sets.
func inMemory(t *testing.T) (*bench, *miniredis.Miniredis) {
	t.Helper()
	memory := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: memory.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return newBench(t, rdb), memory
}

func (t *bench) must(err error) {
	t.Helper()
	expect.OK(t, err)
}

// value returns what Redis answers.
func value[T any](tb testing.TB, cmd interface{ Result() (T, error) }) T {
	tb.Helper()
	v, err := cmd.Result()
	expect.Need(tb, err == nil || errors.Is(err, redis.Nil), "%v", err)
	return v
}

func (t *bench) add(key, member string, score float64) {
	t.Helper()
	value(t, t.rdb.ZAdd(t.Context(), key, redis.Z{Member: member, Score: score}))
}

// contents is all that Redis has of a queue, by key.
type contents map[string]entry

// An entry is a key in Redis.
type entry struct {
	kind  string
	value any // string, []string, map[string]string or []redis.Z
	ttl   time.Duration
}

func contentsOf(tb testing.TB, rdb redis.UniversalClient, queue string) contents {
	tb.Helper()
	ctx := context.WithoutCancel(tb.Context())
	keys := expect.Value(rdb.Keys(ctx, "*{"+queue+"}*").Result())(tb)
	all := make(contents)
	for _, key := range keys {
		e := entry{kind: rdb.Type(ctx, key).Val(), ttl: rdb.PTTL(ctx, key).Val()}
		switch e.kind {
		case "string":
			e.value = rdb.Get(ctx, key).Val()
		case "list":
			e.value = rdb.LRange(ctx, key, 0, -1).Val()
		case "hash":
			e.value = rdb.HGetAll(ctx, key).Val()
		case "zset":
			e.value = rdb.ZRangeWithScores(ctx, key, 0, -1).Val()
		case "set":
			e.value = slices.Sorted(slices.Values(rdb.SMembers(ctx, key).Val()))
		}
		all[key] = e
	}
	return all
}

// clear deletes all that Redis has of a queue.
func (c contents) clear(tb testing.TB, rdb redis.UniversalClient) {
	tb.Helper()
	for key := range c {
		expect.OK(tb, rdb.Del(tb.Context(), key).Err())
	}
}

func (c contents) String() string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(c)) {
		lines = append(lines, fmt.Sprintf("  %s %s %q for %v", key, c[key].kind, c[key].value, c[key].ttl))
	}
	return strings.Join(lines, "\n")
}

// doubling sends each call twice, as go-redis does when the first answer is lost, and returns the second answer. What happens
// between the two scripts may be nil for nothing.
func doubling(between func()) redistest.Hook {
	return func(cmds []redis.Cmder, send func(...redis.Cmder) error) error {
		if err := send(cmds...); err != nil {
			return err // no answer of a script
		}
		if between != nil && strings.HasPrefix(cmds[0].Name(), "eval") {
			between()
		}
		return send(cmds...)
	}
}

// sendsTwice returns an Enqueuer each of whose calls is sent twice, see doubling.
func (t *bench) sendsTwice(between func()) *Enqueuer {
	t.Helper()
	twice := redis.NewClient(t.rdb.Options())
	t.Cleanup(func() { _ = twice.Close() })
	twice.AddHook(doubling(between))
	return NewEnqueuer(twice)
}
