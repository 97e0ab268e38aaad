package asynqredis

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// own are the scripts of this project on asynq's keys, by their SHA1. A hook may see them, as a guard
// and a server may share a client.
var own sync.Map

// IsOwn reports whether a script is one of this project.
func IsOwn(sha string) bool {
	_, ok := own.Load(sha)
	return ok
}

// OwnScript returns a script for a client.
func OwnScript(source string) *redis.Script {
	s := redis.NewScript(source)
	own.Store(s.Hash(), nil)
	return s
}

// A Script is sent past the hook of its connection. A redis.Script needs a client, and would pass the
// hook again.
type Script struct{ Source, SHA string }

// NewScript returns a script for a connection with a hook.
func NewScript(source string) Script { return Script{source, OwnScript(source).Hash()} }

// Run sends a script, by its text if Redis does not know it yet.
func (s Script) Run(ctx context.Context, next redis.ProcessHook, keys []any, argv ...any) (any, error) {
	args := s.Call(keys, argv)
	cmd := redis.NewCmd(ctx, args...)
	err := next(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", s.Source
		cmd = redis.NewCmd(ctx, args...)
		err = next(ctx, cmd)
	}
	return cmd.Val(), err
}

// Call returns the arguments that send a script by its name.
func (s Script) Call(keys, argv []any) []any {
	args := make([]any, 0, 3+len(keys)+len(argv))
	args = append(args, "evalsha", s.SHA, len(keys))
	return append(append(args, keys...), argv...)
}

// failed says of an error what has failed, and for which task or queue.
func failed(err error, what, of string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("asynqredis: %s %s: %w", what, of, err)
}
