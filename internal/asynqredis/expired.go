package asynqredis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// asynqWaits is how long after the end of its lease asynq takes a task for lost.
const asynqWaits = 30 // seconds

// Spare hides from asynq's own recovery the tasks for which spared returns true. asynq would charge
// them an attempt, or archive them. The caller puts them back by [Recover]. Call Spare before the
// servers begin.
func (h *Hook) Spare(spared func(SilentTask) bool) { h.spared = spared }

// listExpired answers asynq's recovery, which asks for the tasks of a queue whose leases have expired:
// as soon as a server starts, and then once a minute.
func (h *Hook) listExpired(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call) error {
	if h.spared == nil {
		return next(ctx, cmd)
	}
	const all = -1
	got, err := run(ctx, next, expiredScript, c.keys, taskKeyPrefix(c.queue), -asynqWaits, 0, all)
	if err != nil {
		return answer(cmd, nil, err)
	}
	rows, _ := got.([]any)
	left := make([]any, 0, len(rows))
	for _, row := range rows {
		if t := silentTask(c.queue, row); t.encoded != "" && !h.spared(t) {
			left = append(left, t.encoded)
		}
	}
	return answer(cmd, left, nil)
}
