package queue_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// Whichever answer is lost for good, a policy ends no other task than it should, and no task is lost.
func TestPolicyWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	isHistory := func(cmd redis.Cmder) bool { return hasKeys(cmd, ":t:") } // whether the task came again, or is too late
	isState := func(cmd redis.Cmder) bool { return hasKeys(cmd, ":t:", ":retry") }
	isCount := func(cmd redis.Cmder) bool { return hasKeys(cmd, ":queue", ":paused", "") }
	coalesce, reject := queue.Policy{OnBusy: queue.OnBusyCoalesce}, queue.Policy{OnBusy: queue.OnBusyReject}
	one, short := queue.Policy{MaxWaiting: 1}, queue.Policy{MaxWait: time.Second}
	for name, test := range map[string]struct {
		policy queue.Policy
		is     func(redis.Cmder) bool
	}{
		"coalesce, the lock": {coalesce, isAcquire}, "coalesce, its history": {coalesce, isHistory}, "coalesce, who waits": {coalesce, isCount}, "coalesce, the other": {coalesce, isState},
		"reject, the lock": {reject, isAcquire}, "reject, its history": {reject, isHistory},
		"max waiting, its history": {one, isHistory}, "max waiting, who waits": {one, isCount},
		"max wait, its history": {short, isHistory}, "max wait, who waits": {short, isCount},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st := setup(t), newStage(t)
			var counting, lost atomic.Bool
			p := &plain{onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
				err := send()
				if c, ok := cmd.(*redis.Cmd); ok && err == nil && counting.Load() && test.is(cmd) && lost.CompareAndSwap(false, true) {
					c.SetVal(nil)
					return io.ErrUnexpectedEOF
				}
				return err
			}}
			p.serve(t, b, st)
			g := b.occupy(t, st)
			waits := b.enqueueWaiter(t, 1, 1, queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyCoalesce}})
			counting.Store(true)
			id := b.enqueue(t, b.job(1), queue.Options{Policy: &test.policy})
			poll.Eventually(t, "the answer lost", lost.Load)
			// The task waits, or has ended by its policy.
			poll.Eventually(t, "the task settled", func() bool {
				s := b.state(id)
				return s == 0 || s == asynq.TaskStateRetry || s == asynq.TaskStateArchived
			})
			g.open()
			b.awaitGone(t, waits)
			poll.Eventually(t, "the task done or archived", func() bool { s := b.state(id); return s == 0 || s == asynq.TaskStateArchived })
			archived := b.state(id) == asynq.TaskStateArchived
			if archived && test.policy == coalesce {
				t.Error("want it run or dropped, have it archived")
			}
			runs := len(st.order()) - 1
			if ended := archived || test.policy == coalesce; runs < 1 || runs > 2 || archived && runs != 1 || !ended && runs != 2 {
				t.Errorf("want the one that waits run, and the other unless it has ended, have %v, archived %v", st.order(), archived)
			}
		})
	}
}
