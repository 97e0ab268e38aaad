package taskredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var resultScript = script("result")

// ErrEnded says that an attempt has ended, or is not its task's latest.
var ErrEnded = errors.New("the attempt has ended, or the task has a later one")

// WriteResult keeps the result of an attempt with its task, where asynq's Inspector finds it. A later result
// replaces it. With [ErrEnded] nothing has changed.
func WriteResult(ctx context.Context, rdb redis.Scripter, attempt Name, result []byte) error {
	kept, err := resultScript.Run(ctx, rdb, []string{TaskKey(attempt.Queue, attempt.ID)}, attempt.Attempt, result).Int()
	if err == nil && kept == 0 {
		err = ErrEnded
	}
	if err != nil {
		return fmt.Errorf("result of task %s: %w", attempt.ID, err)
	}
	return nil
}
