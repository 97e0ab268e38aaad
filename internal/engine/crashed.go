package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/taskredis"
)

// leases are those of a queue that have ended. The first ones, so many as pass says, were looked at and stay.
type leases struct {
	queue string
	pass  int
}

// endSome ends some of the tasks that have crashed.
func (u *upkeep) endSome(ctx context.Context) (time.Duration, error) {
	if len(u.ended) == 0 {
		return never, nil
	}
	at := u.ended[0]
	u.ended = u.ended[1:]
	l, err := u.calls.Leases(ctx, at.queue, at.pass)
	if l.Found {
		u.tell([]string{at.queue})
	}
	u.troubles.found(ctx, l.Troubles)
	at.pass += l.Left
	errs := []error{err}
	for _, c := range l.Crashed {
		ended, err := u.end(ctx, c, time.UnixMicro(l.Now))
		if err != nil { // the others are ended all the same
			errs = append(errs, fmt.Errorf("task %s: %w", c.ID, err))
		}
		if !ended {
			at.pass++
		}
	}
	if l.More {
		u.ended = append(u.ended, at)
	}
	return 0, errors.Join(errs...)
}

// end ends a crashed task as asynq does.
func (u *upkeep) end(ctx context.Context, c taskredis.Crash, now time.Time) (bool, error) {
	encoded, err := u.calls.Message(ctx, c)
	if err != nil {
		return false, err
	}
	o := taskredis.Outcome{Kind: taskredis.Archive}
	m, err := taskredis.DecodeMessage(encoded)
	if err != nil { // nobody can run it, so it is kept as it is, for people
		u.troubles.found(ctx, []string{fmt.Sprintf("task %s: %v", c.ID, err)})
	} else {
		if m.Retried < m.Retry {
			if o = u.retry(ctx, m); o.Counts {
				m.Retried++
			}
		}
		o.Hold, o.Unique = u.cfg.holds(m, o.Kind), m.Frees(o.Kind)
		m.ErrorMsg, m.LastFailedAt = asynq.ErrLeaseExpired.Error(), now.Unix()
		encoded = m.Encode()
	}
	o.Message = encoded
	ended, err := u.calls.End(ctx, c, &o)
	if ended {
		u.logger.WarnContext(ctx, "a task whose worker died or was cut off was ended", "queue", c.Queue, "task_id", c.ID, "outcome", o.Kind)
	}
	return ended, err
}

// retry returns when a crashed task comes again, and whether that counts as a failure. Upkeep, which the whole fleet needs, does not
// wait for functions of the user that hang: until they have answered, asynq's own decide.
func (u *upkeep) retry(ctx context.Context, m *taskredis.Message) taskredis.Outcome {
	const patience = time.Second
	asynqs := taskredis.Outcome{Kind: taskredis.Retry, After: asynq.DefaultRetryDelayFunc(m.Retried, asynq.ErrLeaseExpired, AsynqTask(m)), Counts: true}
	select {
	case <-u.asking:
		u.asking = nil
	default:
	}
	if u.asking != nil {
		return asynqs
	}
	crashed, asking := *m, make(chan taskredis.Outcome, 1)
	go func() {
		o := taskredis.Outcome{Kind: taskredis.Retry, After: u.cfg.retryDelay(ctx, &crashed, asynq.ErrLeaseExpired)}
		o.Counts = u.cfg.isFailure(ctx, asynq.ErrLeaseExpired)
		asking <- o
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case o := <-asking:
		return o
	case <-timer.C:
	}
	u.asking = asking
	u.logger.ErrorContext(ctx, "RetryDelayFunc or IsFailure does not return; until it does, asynq's own decide about tasks of dead servers")
	return asynqs
}
