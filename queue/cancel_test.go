package queue_test

import (
	"errors"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// What a handler returns counts, also after an operator has canceled its task: the same as at any other time, each time.
// Whoever waits runs next. (internal/engine/asynqdiff has the same of tasks without a resource.)
func TestCanceled(t *testing.T) {
	t.Parallel()
	boom := errors.New("out of stock")
	for name, tt := range map[string]struct {
		result  error
		state   asynq.TaskState // of the task; 0 for gone
		retried int
	}{
		"nil":         {nil, 0, 0},
		"an error":    {boom, asynq.TaskStateRetry, 1},
		"permanent":   {queue.Permanent(boom), asynq.TaskStateArchived, 0},
		"skip retry":  {asynq.SkipRetry, asynq.TaskStateArchived, 0},
		"revoke task": {asynq.RevokeTask, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st := setup(t), newStage(t)
			(&plain{guardConfig: queue.ServerConfig{Resources: resources()}}).serve(t, b, st)
			canceled := st.hold(0)
			st.act(0, func() error { return tt.result })
			id := b.enqueuePlain(t, b.job(0))
			within(t, patience, "the handler", canceled.entered)
			poll.Eventually(t, "the end of its context", func() bool {
				must(t, b.inspector.CancelProcessing(id)) // time and again, as the server may not listen yet
				return isClosed(canceled.ended)
			})
			canceled.open()
			if tt.state == 0 {
				b.awaitGone(t, id)
			} else if info := b.awaitState(t, id, tt.state); info.Retried != tt.retried || info.LastErr != tt.result.Error() {
				t.Errorf("want %d retries used and its error, have %+v", tt.retried, info)
			}
			b.awaitGone(t, b.enqueuePlain(t, b.job(1)))
			st.wantOrder(0, 1)
		})
	}
}
