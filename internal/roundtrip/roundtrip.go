// Package roundtrip runs a script on many sets of keys in one round trip.
package roundtrip

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Run runs a script for each of n parts, and returns the calls in order, each with its own error. It
// takes one round trip, or one to each node of a Cluster at the same time. A Redis that does not know
// the script costs a second round trip, once. part is called for each i, once or twice.
func Run(ctx context.Context, rdb redis.UniversalClient, script *redis.Script, n int, part func(i int) (keys []string, argv []any)) []*redis.Cmd {
	calls, ask := make([]*redis.Cmd, n), make([]int, n)
	for i := range ask {
		ask[i] = i
	}
	for _, eval := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{script.EvalSha, script.Eval} {
		if len(ask) == 0 {
			break
		}
		pipe := rdb.Pipeline()
		for _, i := range ask {
			keys, argv := part(i)
			calls[i] = eval(ctx, pipe, keys, argv...)
		}
		_, _ = pipe.Exec(ctx) // the errors are those of the calls
		ask = slices.DeleteFunc(ask, func(i int) bool { return !redis.HasErrorPrefix(calls[i].Err(), "NOSCRIPT") })
	}
	return calls
}
