package hook

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A NotifyingConn is a connection for asynq's clients, which notifies idle workers of the tasks that
// the clients enqueue. All other methods are those of the client that it is made of.
type NotifyingConn struct {
	redis.UniversalClient

	scripts scriptCache
}

// NewNotifyingConn returns a NotifyingConn on rdb.
func NewNotifyingConn(rdb redis.UniversalClient) *NotifyingConn {
	return &NotifyingConn{UniversalClient: rdb}
}

// Unwrap returns the client that r is made of.
func (r *NotifyingConn) Unwrap() redis.UniversalClient { return r.UniversalClient }

// EvalSha sends a script by its name.
func (r *NotifyingConn) EvalSha(ctx context.Context, sha string, keys []string, argv ...any) *redis.Cmd {
	return r.eval(ctx, scriptCall(ctx, "evalsha", sha, keys, argv))
}

// Eval sends a script.
func (r *NotifyingConn) Eval(ctx context.Context, source string, keys []string, argv ...any) *redis.Cmd {
	return r.eval(ctx, scriptCall(ctx, "eval", source, keys, argv))
}

func (r *NotifyingConn) eval(ctx context.Context, cmd *redis.Cmd) *redis.Cmd {
	c := parse(cmd)
	// A server's calls go on to its hook unchanged, so that the hook knows them.
	if _, ok := c.pendingOf(); (ok || onceArgs(ctx, c) != nil) && !c.op.ends() && !c.likeDequeue() {
		_ = r.scripts.notify(ctx, r.Process, cmd, c) // the error is in cmd
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
