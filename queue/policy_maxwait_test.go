package queue_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/queue"
)

// A task takes over the time of the one that it replaces, and comes by itself when its MaxWait is over. It
// does not take over a time that is longer ago than its MaxWait: then it would never run.
func TestMaxWaitOfAReplacedTask(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ maxWait, ago, left time.Duration }{
		"not over": {time.Hour, 50 * time.Minute, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st, j := newStage(t), &journal{}
				b.serve(t, queue.ServerConfig{
					Asynq:   asynq.Config{DelayedTaskCheckInterval: time.Hour},
					Observe: j.observe,
				}, st.run)
				g := b.occupy(t, st)
				replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace, MaxWait: tt.maxWait}}
				old := b.enqueueWaiter(t, 1, 1, replace)
				b.backdate(t, old, tt.ago)
				id := b.enqueue(t, b.job(2), replace)
				j.await(t, queue.EventReplaced, old, 1)
				left := time.Until(b.awaitState(t, id, asynq.TaskStateRetry).NextProcessAt)
				if left < tt.left-30*time.Second || left > tt.left+5*time.Second {
					t.Errorf("want it to come in %v, have %v", tt.left, left)
				}
				b.wantWaiters(t, id)
				g.open()
				b.awaitEnd(t, id)
				st.wantOrder(0, 2)
			})
		})
	}
}
