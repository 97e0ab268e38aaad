package queue_test

import (
	"errors"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// What a handler returns counts, also after an operator has canceled its task: the same as at any other time, each time.
// Guarded or not makes no difference. Whoever waits runs next.
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
		for kind, guarded := range map[string]bool{"guarded": true, "unguarded": false} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				b, st, p := setup(t), newStage(t), &plain{}
				if st.unfenced = !guarded; guarded {
					p.guardConfig.Resources = resources()
				}
				p.serve(t, b, st)
				canceled := st.hold(0)
				st.act(0, func() error { return tt.result })
				id := b.enqueuePlain(t, b.job(0))
				within(t, patience, "the handler", canceled.entered)
				poll.Eventually(t, "the end of its context", func() bool {
					if err := b.inspector.CancelProcessing(id); err != nil { // time and again, as the server may not listen yet
						t.Fatal(err)
					}
					select {
					case <-canceled.ended:
						return true
					default:
						return false
					}
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
}
