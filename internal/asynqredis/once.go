package asynqredis

import (
	"context"
	"crypto/rand"
	_ "embed"
	"strings"
)

//go:embed once.lua
var onceSource string

type onceKey struct{}

// Once returns a context for one call of asynq's client on a [Ringer], or a [Batch] of it. Should the
// call's answer be lost, and the call be sent again, then it is told that its task has been stored,
// and not that another one like it has.
func Once(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, rand.Text()[:16])
}

// withOnce has one of asynq's scripts know a call that it has answered before.
func withOnce(source string) string {
	return "local function asynq()\n" + source + "\nend\n" + onceSource
}

// onceArgs returns what withOnce's scripts want to know of the call; none where the context is not
// of Once, or the call stores no task.
func onceArgs(ctx context.Context, c call) []any {
	name, ok := ctx.Value(onceKey{}).(string)
	if !ok {
		return nil
	}
	for i, k := range c.keys {
		if key, _ := k.(string); strings.HasPrefix(key, prefix(c.queue)+"t:") {
			return []any{name, i + 1}
		}
	}
	return nil
}
