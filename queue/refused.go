package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// refused returns what becomes of a task that its policy does not have wait.
func (s *Server) refused(ctx context.Context, t *engine.Task, r engine.Refusal) error {
	a := &attempt{Task: t}
	if r.Coalesced != "" {
		if err := taskredis.WriteResult(ctx, s.rdb, t.Taken.Name, []byte("coalesced: "+r.Coalesced)); err != nil {
			s.fault(ctx, "the result of a coalesced task could not be written", err)
		}
		ev := a.event(EventCoalesced)
		ev.Other = r.Coalesced
		s.observe(ev)
		return nil
	}
	policy, _ := s.policyOf(t.Message) // need has read it before
	rejected := &RejectedError{Resource: t.Resource, Holder: lease.HolderOf(r.Holder), Waiting: r.Waiting, archive: !policy.UseRetries}
	ev := a.event(EventRejected)
	ev.Holder, ev.Err = rejected.Holder, rejected
	s.observe(ev)
	return rejected
}

// tooLate returns for how long a task has waited, and whether it is not to run any more: the step has found that its time
// is over, or it was the first in its line a moment later.
func (s *Server) tooLate(a *attempt) (waited time.Duration, late bool) {
	if a.WaitOver {
		return a.waited(time.UnixMicro(a.Taken.At)), true
	}
	if !a.Taken.Waited || a.Resource == "" {
		return 0, false
	}
	policy, _ := s.policyOf(a.Message) // need has read it before
	waited = a.waited(time.UnixMicro(a.Taken.Fence))
	a.WaitOver = policy.MaxWait > 0 && waited > policy.MaxWait
	return waited, a.WaitOver
}

// waitedTooLong ends a task that is not to run any more, and returns its error. The observer is told once: a task that comes
// again as OnMaxWait has failed waits for that, and has no place in the line any more that says for how long it had waited.
func (s *Server) waitedTooLong(ctx context.Context, a *attempt, waited time.Duration) error {
	resource, _ := s.resourceOf(a.Message, true)
	a.waitedFor = resource
	late := fmt.Errorf("%w: for %s, %.1f s: %w", ErrMaxWait, store.Show(resource), waited.Seconds(), asynq.SkipRetry)
	if s.onMaxWait != nil {
		if err := a.Begin(ctx); err != nil {
			return err
		}
	}
	if a.Taken.Waited {
		ev := a.event(EventWaitedTooLong)
		ev.Resource, ev.Waited, ev.Err = resource, waited, late
		s.observe(ev)
	}
	if s.onMaxWait == nil {
		return late
	}
	return s.onMaxWait(ctx, a.Task)
}
