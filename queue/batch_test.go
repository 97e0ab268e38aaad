package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// Each result is at the index of its job, also when some jobs are refused: before Redis sees them, by Redis, or as the context has
// ended. (taskredis tests the round trips.)
func TestEnqueueBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	errRefused := errors.New("refused") // stands for each TaskError
	for name, of := range map[string]struct {
		ctx  context.Context //nolint:containedctx // of the call
		want []error
	}{
		"some are refused": {t.Context(), []error{nil, errRefused, nil, queue.ErrTaskIDConflict, queue.ErrDuplicate}},
		"ctx has ended":    {ended(t), []error{context.Canceled, errRefused, context.Canceled, context.Canceled, context.Canceled}},
	} {
		results, err := b.client.EnqueueBatch(of.ctx, []queue.Job{
			{Task: b.job(1), Options: &queue.Options{Queue: b.queue, UniqueFor: time.Hour}},
			{Task: job{}},
			{Task: b.job(2), Options: &queue.Options{Queue: b.queue, TaskID: "two"}},
			{Task: b.job(3), Options: &queue.Options{Queue: b.queue, TaskID: "two"}},
			{Task: b.job(1), Options: &queue.Options{Queue: b.queue, UniqueFor: time.Hour}},
		})
		expect.Is(t, name, err, of.ctx.Err())
		for i, r := range results {
			if _, refused := errors.AsType[*queue.TaskError](r.Err); refused {
				r.Err = errRefused
			}
			expect.That(t, errors.Is(r.Err, of.want[i]) && (r.ID != "") == (of.want[i] == nil), "%s: job %d: want %v, have %+v", name, i, of.want[i], r)
		}
		expect.That(t, err != nil || results[2].ID == "two", "want the id of the third job, have %+v", results[2])
	}
	expect.Equal(t, "tasks", b.stats().Pending, 2)
}

// ended returns a context that has ended.
func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
