package asynqredis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// A script is sent down the hooked connection itself, where redis.Script, which
// needs a client, would come through the hook again.
type script struct{ source, sha string }

func newScript(source string) script {
	s := script{source, scriptSHA(source)}
	ours.Store(s.sha, nil)
	return s
}

// run sends a script, by its text if Redis does not know it yet.
func run(ctx context.Context, next redis.ProcessHook, s script, keys []any, argv ...any) (any, error) {
	args := callOf(s, keys, argv)
	cmd := redis.NewCmd(ctx, args...)
	err := next(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", s.source
		cmd = redis.NewCmd(ctx, args...)
		err = next(ctx, cmd)
	}
	return cmd.Val(), err
}

// callOf returns the arguments that send a script by its name.
func callOf(s script, keys, argv []any) []any {
	args := make([]any, 0, 3+len(keys)+len(argv))
	args = append(args, "evalsha", s.sha, len(keys))
	return append(append(args, keys...), argv...)
}

// answer makes cmd, which was never sent, look as if it had been.
func answer(cmd redis.Cmder, v any, err error) error {
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	c, ok := cmd.(*redis.Cmd)
	if !ok {
		err := errors.New("asynqredis: a script call of an unknown type")
		cmd.SetErr(err)
		return err
	}
	c.SetVal(v)
	return nil
}
