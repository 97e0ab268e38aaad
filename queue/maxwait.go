package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
)

// tooLate returns for how long a task with a lock has waited, if it is not to run any more. After an error,
// which parks the task, it is to come again.
func (r *run) tooLate(ctx context.Context) (waited time.Duration, late bool, err error) {
	if r.policy == nil || r.policy.MaxWait == 0 {
		return 0, false, nil
	}
	if _, waits := r.attempt.WaitedFor(r.info.Resource); waits || r.waitedAtWork {
		waited = r.waitedUntil(r.queued.Fence())
	}
	if late, err = r.late(ctx, waited); err != nil {
		err = r.parkUnqueued(err.Error(), err)
	}
	return waited, late, err
}

// late reports whether a task that has waited for so long is not to run any more. The task is marked then,
// so that it does not run either if [GuardConfig.OnMaxWait] fails, or if this worker dies before the task
// has ended.
func (r *run) late(ctx context.Context, waited time.Duration) (late bool, err error) {
	defer func() {
		if err != nil {
			r.faults.fault(ctx, r.log(), "that a task has waited for too long could not be read or recorded", err)
		}
	}()
	switch {
	case r.policy.MaxWait == 0:
		return false, nil
	case waited > r.policy.MaxWait:
		return true, r.attempt.MarkLate(ctx, r.rdb, r.info.Retried)
	}
	interrupted := r.attempt.Interrupted(r.info.Resource)
	if !interrupted && (r.cfg.OnMaxWait == nil || r.info.Retried == 0) {
		return false, nil // an archived task that an operator runs again has a mark, too
	}
	marked, err := r.attempt.MarkedLate(ctx, r.rdb)
	if err != nil || marked < 0 || !interrupted && marked >= r.info.Retried {
		return false, err
	}
	return true, r.attempt.MarkLate(ctx, r.rdb, r.info.Retried)
}

// waitedTooLong ends a task that is not to run any more, and returns its error.
func (r *run) waitedTooLong(ctx context.Context, waited time.Duration) error {
	took := fmt.Sprintf("for %s %.1f s, more than %v", r.info.Resource, waited.Seconds(), r.policy.MaxWait)
	if waited <= r.policy.MaxWait {
		took = fmt.Sprintf("for %s, more than %v, before this attempt", r.info.Resource, r.policy.MaxWait)
	}
	err := fmt.Errorf("%w: %s: %w", ErrMaxWait, took, asynq.SkipRetry)
	ev := r.event(EventWaitedTooLong)
	ev.Waited, ev.Err = waited, err
	r.cfg.Observe(ev)
	if r.cfg.OnMaxWait != nil {
		return r.cfg.OnMaxWait(context.WithValue(ctx, runKey{}, r), r.task)
	}
	return err
}
