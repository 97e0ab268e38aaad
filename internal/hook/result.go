package hook

import (
	"context"
	_ "embed"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

//go:embed result.lua
var resultSource string

var resultScript = asynqredis.NewScript(resultSource)

// errOver is the error of a handler that writes a result after its attempt is over.
var errOver = errors.New("hook: the attempt is over: its task is gone, or has begun anew")

// resultOf returns the attempt whose result cmd writes, as asynq's ResultWriter does, and the result;
// nil for any other command.
func (h *Hook) resultOf(cmd redis.Cmder) (a *Attempt, result any) {
	args := cmd.Args()
	if len(args) != 4 || cmd.Name() != "hset" || args[2] != "result" {
		return nil, nil
	}
	key, _ := args[1].(string)
	a, _ = h.running.latest(key)
	return a, args[3]
}

// writeResult keeps a result only while its attempt lasts. asynq would write the result also into
// the hash of a task that is gone. That hash would stay for ever, and keep the id taken.
func (h *Hook) writeResult(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, a *Attempt, result any) error {
	got, err := resultScript.Run(ctx, next, []any{a.key}, a.Name, result)
	if err == nil && got != int64(1) {
		err = errOver
	}
	if err != nil {
		cmd.SetErr(err)
	}
	return err
}
