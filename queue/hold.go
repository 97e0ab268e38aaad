package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
)

// ErrHoldsNoLine says that a task holds no line: it has not failed, its [Policy.OnFailure] has it overtaken, or it is about to run.
var ErrHoldsNoLine = errors.New("queue: the task holds no line")

// RetryHeld has a task run now that holds its line, or has stopped it, see [Policy.OnFailure]: as soon as its resource is free and a
// server of the queue has a slot, before those behind it. An archived task gets no more retries by that: if it fails again, it is
// archived again, and the line stops again. queue is asynq's, as in [Receipt]. The error matches [ErrHoldsNoLine] if there is
// nothing to do. After an error of Redis the call may have had its effect; it can be repeated.
func RetryHeld(ctx context.Context, rdb redis.UniversalClient, queue, id string) error {
	if err := cmp.Or(checkContext(ctx), checkHeld(rdb, queue, id)); err != nil {
		return err
	}
	return held(queue, id)(taskredis.RetryHeld(ctx, rdb, queue, id))
}

// SkipHeld gives a task up that holds its line, or has stopped it: the task is archived, or stays so, and the line goes on with the
// next one. by and reason, of at most 200 and 1,000 bytes, say who does that and why: they become the task's last error, before its
// own. Errors are as those of [RetryHeld].
func SkipHeld(ctx context.Context, rdb redis.UniversalClient, queue, id, by, reason string) error {
	if err := cmp.Or(checkContext(ctx), checkHeld(rdb, queue, id), checkTexts(by, reason)); err != nil {
		return err
	}
	return held(queue, id)(taskredis.SkipHeld(ctx, rdb, queue, id, func(m *taskredis.Message) {
		m.ErrorMsg = fmt.Sprintf("skipped by %s: %s; before: %s", by, reason, m.ErrorMsg)
	}))
}

// held makes an error of a call that had nothing to do.
func held(queue, id string) func(done bool, err error) error {
	return func(done bool, err error) error {
		switch {
		case errors.Is(err, redis.Nil) || err == nil && !done:
			return fmt.Errorf("%w: %s in queue %s", ErrHoldsNoLine, id, queue)
		case err != nil:
			return fmt.Errorf("queue: %w", err)
		}
		return nil
	}
}

func checkHeld(rdb redis.UniversalClient, queue, id string) error {
	if err := checkClient(rdb); err != nil {
		return err
	}
	if queue == "" || id == "" {
		return fmt.Errorf("queue: want a queue and the id of a task, have %q and %q", queue, id)
	}
	return nil
}
