package asynqredis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A Ringer is a connection for asynq's clients: the tasks that they enqueue are heard at
// once by idle workers. It has all else from the client that it is made of.
type Ringer struct {
	redis.UniversalClient

	rings rings
}

// NewRinger returns a Ringer on rdb.
func NewRinger(rdb redis.UniversalClient) *Ringer { return &Ringer{UniversalClient: rdb} }

// EvalSha sends a script by its name.
func (r *Ringer) EvalSha(ctx context.Context, sha string, keys []string, argv ...any) *redis.Cmd {
	return r.eval(ctx, scriptCall(ctx, "evalsha", sha, keys, argv))
}

// Eval sends a script.
func (r *Ringer) Eval(ctx context.Context, source string, keys []string, argv ...any) *redis.Cmd {
	return r.eval(ctx, scriptCall(ctx, "eval", source, keys, argv))
}

func (r *Ringer) eval(ctx context.Context, cmd *redis.Cmd) *redis.Cmd {
	c := parse(cmd)
	// What a server calls is for its hook, which has to know it.
	if _, ok := c.pendingOf(); (ok || onceArgs(ctx, c) != nil) && c.op == opNone && !c.likeDequeue() {
		_ = r.rings.send(ctx, r.Process, cmd, c) // the error is in cmd
	} else {
		_ = r.Process(ctx, cmd)
	}
	return cmd
}

func scriptCall(ctx context.Context, name, text string, keys []string, argv []any) *redis.Cmd {
	args := make([]any, 0, 3+len(keys)+len(argv))
	args = append(args, name, text, len(keys))
	for _, key := range keys {
		args = append(args, key)
	}
	return redis.NewCmd(ctx, append(args, argv...)...)
}
