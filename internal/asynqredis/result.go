package asynqredis

import (
	"context"
	_ "embed"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed result.lua
var resultSource string

var resultScript = newScript(resultSource)

// errOver is what a handler gets that writes a result when its attempt is over.
var errOver = errors.New("asynqredis: the attempt is over: its task is gone, or has begun anew")

// resultOf returns the attempt whose result cmd writes, as asynq's ResultWriter
// does, and the result; nil when it is anything else.
func (h *Hook) resultOf(cmd redis.Cmder) (a *Attempt, result any) {
	args := cmd.Args()
	if len(args) != 4 || cmd.Name() != "hset" || args[2] != "result" {
		return nil, nil
	}
	key, _ := args[1].(string)
	rest, ok := strings.CutPrefix(key, "asynq:{")
	if !ok {
		return nil, nil
	}
	// Both the queue's name and the id may hold what stands between them.
	const between = "}:t:"
	for at := 0; ; {
		i := strings.Index(rest[at:], between)
		if i < 0 {
			return nil, nil
		}
		at += i
		if a := h.running.get(rest[:at], rest[at+len(between):]); a != nil {
			return a, args[3]
		}
		at++
	}
}

// writeResult keeps a result only while its attempt lasts. asynq would write it into
// the hash of a task that is gone, which then stays, and takes the id, for ever.
func (h *Hook) writeResult(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, a *Attempt, result any) error {
	got, err := run(ctx, next, resultScript, []any{taskKey(a.Queue, a.ID)}, a.name, result)
	if err == nil && got != int64(1) {
		err = errOver
	}
	if err != nil {
		cmd.SetErr(err)
	}
	return err
}
