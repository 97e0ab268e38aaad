package hook

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

// Tolerate hides from asynq's own recovery the tasks for which tolerated returns true. asynq would
// use up a retry of such a task, or archive the task. The caller requeues them by
// [asynqredis.Recover]. Call Tolerate before the servers start.
func (h *Hook) Tolerate(tolerated func(asynqredis.Orphan) bool) { h.tolerated = tolerated }

// listExpired answers asynq's recovery, which lists the tasks of a queue whose leases have expired.
// asynq does so when a server starts, and then once a minute.
func (h *Hook) listExpired(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call) error {
	if h.tolerated == nil {
		return next(ctx, cmd)
	}
	found, err := asynqredis.Expired(ctx, next, c.queue)
	if err != nil {
		return answer(cmd, nil, err)
	}
	left := make([]any, 0, len(found))
	for _, t := range found {
		if t.Encoded != "" && !h.tolerated(t) {
			left = append(left, t.Encoded)
		}
	}
	return answer(cmd, left, nil)
}
