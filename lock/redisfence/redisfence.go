package redisfence

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

//go:embed fence.lua
var fenceSource string

// ErrKey says that the key of a fence holds something else. Use a key for nothing but one fence.
var ErrKey = errors.New("redisfence: the key holds no fence")

// A Script is a Lua script that runs for the present holder of a lock, and not for a former one. A
// Script is safe for use by several goroutines.
type Script struct{ script *redis.Script }

// NewScript returns the script whose source is src. Write it like any other script, but without the
// "#!" line of Redis 7. Line numbers in Redis's errors count the lines of fence.lua, which come
// first.
func NewScript(src string) *Script {
	return &Script{script: redis.NewScript(fenceSource + src)}
}

// Run compares the fence of resource in ctx ([lock.Fence]) with the highest that fenceKey has seen.
// If the fence is not lower, Run stores it there, and runs the script with KEYS = keys and ARGV =
// args. All that is one step on the server. The answer is the script's, as from [redis.Script.Run],
// or one of these errors, after which nothing was written:
//
//   - an error that matches [lock.ErrStale] when fenceKey has seen a higher fence;
//   - [lock.ErrNoFence] when ctx carries none of resource;
//   - [ErrKey] when fenceKey holds something else than a fence;
//   - Redis's CROSSSLOT when the keys are in several slots of a Cluster.
//
// If the script itself fails halfway, its writes and the fence stay, as always in Redis. rdb is a
// client, and not a pipeline, whose answers come later.
func (s *Script) Run(ctx context.Context, rdb redis.Scripter, resource, fenceKey string, keys []string, args ...any) *redis.Cmd {
	fail := func(err error) *redis.Cmd {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(fmt.Errorf("redisfence: %q: %w", fenceKey, err))
		return cmd
	}
	fence := lock.Fence(ctx, resource)
	switch {
	case lockredis.None(rdb):
		return fail(fmt.Errorf("want a client of Redis, have %s", lockredis.Nothing(rdb)))
	case fence <= 0:
		return fail(fmt.Errorf("%w of %q: want more than 0, have %d", lock.ErrNoFence, resource, fence))
	}
	// The fence's key comes first, so that a redis.Ring finds the shard.
	cmd := s.script.Run(ctx, rdb, slices.Concat([]string{fenceKey}, keys), slices.Concat([]any{fence}, args)...)
	if err := refusal(cmd.Err(), fenceKey, fence); err != nil {
		cmd.SetErr(err)
	}
	return cmd
}

// refusal returns what an error of fence.lua means, nil for any other.
func refusal(err error, fenceKey string, fence int64) error {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return nil
	}
	switch code, what, _ := strings.Cut(reply.Error(), " "); code {
	case "STALEFENCE":
		seen, err := strconv.ParseInt(what, 10, 64)
		if err != nil {
			return fmt.Errorf("%w: %q: %w", ErrKey, fenceKey, err)
		}
		return &store.StaleError{Place: strconv.Quote(fenceKey), Fence: fence, Seen: seen}
	case "BADFENCE":
		return fmt.Errorf("%w: %q holds %s", ErrKey, fenceKey, what)
	default:
		return nil
	}
}
