package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A Hook stands between a client and Redis. It is given what is to go there, a command or a pipeline, and how to send it.
// Its error is that of the call.
type Hook func(cmds []redis.Cmder, send func(...redis.Cmder) error) error

// DialHook lets connections be.
func (Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook has the hook send a command.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h([]redis.Cmder{cmd}, func(cmds ...redis.Cmder) error { return next(ctx, cmds[0]) })
	}
}

// ProcessPipelineHook has the hook send a pipeline.
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(cmds, func(cmds ...redis.Cmder) error { return next(ctx, cmds) })
	}
}
