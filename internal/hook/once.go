package hook

import (
	"context"
	"crypto/rand"
	_ "embed"
	"strings"

	"github.com/sidingq/siding/internal/asynqredis"
)

//go:embed once.lua
var onceSource string

type onceKey struct{}

// Once returns a context for one call of asynq's client on a [NotifyingConn], or a [Batch] of it.
// The call may be sent again, as its answer was lost. The second answer is then that the task has
// been stored. Without Once the second answer would be that another task like it exists.
func Once(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, rand.Text()[:16])
}

// withOnce makes one of asynq's scripts know a call that it has answered before.
func withOnce(source string) string {
	return "local function asynq()\n" + source + "\nend\n" + onceSource
}

// onceArgs returns the arguments of the call for withOnce's scripts; none if the context is not one of
// Once, or if the call stores no task.
func onceArgs(ctx context.Context, c call) []any {
	name, ok := ctx.Value(onceKey{}).(string)
	if !ok {
		return nil
	}
	for i, k := range c.keys {
		if key, _ := k.(string); strings.HasPrefix(key, asynqredis.TaskKeyPrefix(c.queue)) {
			return []any{name, i + 1}
		}
	}
	return nil
}
