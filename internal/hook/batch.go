package hook

import (
	"context"
	"slices"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

// A Batch is a connection that gathers the tasks which one of asynq's clients enqueues. The client is
// told that all of them were accepted. [Batch.Send] says what became of each. A Batch is not safe for
// use by several goroutines.
type Batch struct {
	redis.UniversalClient

	scripts *scriptCache
	calls   []gathered
	loads   []asynqredis.Script // the scripts of the calls, once each
	bytes   int
}

// A gathered call and its script.
type gathered struct {
	script asynqredis.Script
	keys   []any
	argv   []any
}

// Batch returns an empty batch.
func (r *NotifyingConn) Batch() *Batch {
	return &Batch{UniversalClient: r.UniversalClient, scripts: &r.scripts}
}

// EvalSha gathers a script's call.
func (b *Batch) EvalSha(ctx context.Context, sha string, keys []string, argv ...any) *redis.Cmd {
	return b.gather(ctx, scriptCall(ctx, "evalsha", sha, keys, argv))
}

// Eval gathers a script's call.
func (b *Batch) Eval(ctx context.Context, source string, keys []string, argv ...any) *redis.Cmd {
	return b.gather(ctx, scriptCall(ctx, "eval", source, keys, argv))
}

func (b *Batch) gather(ctx context.Context, cmd *redis.Cmd) *redis.Cmd {
	c := parse(cmd)
	g, known := b.scripts.notified(ctx, c)
	if !known {
		cmd.SetErr(noScriptError{})
		return cmd
	}
	b.calls = append(b.calls, g)
	for i := range c.argv {
		b.bytes += len(c.arg(i))
	}
	if !slices.Contains(b.loads, g.script) {
		b.loads = append(b.loads, g.script)
	}
	cmd.SetVal(int64(1))
	return cmd
}

// Full reports whether it is time to send what was gathered. A larger batch would save little, and
// would delay other clients of Redis.
func (b *Batch) Full() bool { return len(b.calls) >= 500 || b.bytes >= 1<<20 }

// Send sends what was gathered, in order, and empties the batch. For each call, Send returns nil,
// an error that asynq would have returned, or an error of Redis. After an error of Redis the task
// may have been stored all the same.
func (b *Batch) Send(ctx context.Context) []error {
	calls, loads := b.calls, b.loads
	b.calls, b.loads, b.bytes = nil, nil, 0
	pipe := b.Pipeline()
	for _, s := range loads {
		if _, cluster := b.UniversalClient.(*redis.ClusterClient); cluster {
			_ = b.ScriptLoad(ctx, s.Source) // on all masters; if it fails so do the calls
		} else {
			pipe.ScriptLoad(ctx, s.Source)
		}
	}
	sent := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		sent[i] = redis.NewCmd(ctx, c.script.Call(c.keys, c.argv)...)
		_ = pipe.Process(ctx, sent[i])
	}
	_, _ = pipe.Exec(ctx) // each call has its own error
	errs := make([]error, len(calls))
	for i, cmd := range sent {
		got, err := cmd.Result()
		if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") { // flushed just now
			got, err = calls[i].script.Run(ctx, b.Process, calls[i].keys, calls[i].argv...)
		}
		errs[i] = enqueued(got, err)
	}
	return errs
}

// enqueued reads the answer of asynq's scripts that enqueue.
func enqueued(got any, err error) error {
	switch {
	case err != nil:
		return err // the caller says what failed
	case got == int64(0):
		return asynq.ErrTaskIDConflict
	case got == int64(-1):
		return asynq.ErrDuplicateTask
	}
	return nil
}
