package queue_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// takeOver moves an active task to pending, as asynq's recovery does in two steps when a worker is
// taken for dead. It also frees the lock, as the TTL does.
func (b *bundle) takeOver(t *testing.T, id string) {
	t.Helper()
	ctx, pipe := t.Context(), b.rdb.TxPipeline()
	moved := pipe.LRem(ctx, b.key("active"), 0, id)
	pipe.ZRem(ctx, b.key("lease"), id)
	pipe.HSet(ctx, b.taskKey(id), "state", "pending")
	pipe.LPush(ctx, b.key("pending"), id)
	pipe.Del(ctx, b.lockKey())
	if _, err := pipe.Exec(ctx); err != nil || moved.Val() != 1 {
		t.Fatalf("take over: moved %d, %v", moved.Val(), err)
	}
}

// An attempt that lost its lease, and was superseded by a later one, must not acknowledge. asynq's
// acknowledgements name only the task, and would end the later attempt. The task would run a third
// time, or be lost with its worker.
func TestSupersededAttemptIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		timeout time.Duration
		end     func(t *testing.T, first *queue.Server, g *gate)
		logged  string
	}{
		// The handler returns nil; the guard sends the task back.
		"returns": {end: func(_ *testing.T, _ *queue.Server, g *gate) { g.open() }},
		// asynq gives up on the handler and sends a retry of its own.
		"timeout": {timeout: 3 * time.Second, end: func(*testing.T, *queue.Server, *gate) {}, logged: "the end of an attempt was ignored"},
		// asynq requeues the task at the end of a shutdown.
		"shutdown": {end: func(t *testing.T, first *queue.Server, g *gate) {
			t.Helper()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				shutdown(t, first)
			}()
			t.Cleanup(func() { <-ended })
		}, logged: "the end of an attempt was ignored"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.timeout > 0 {
				verify.Long(t)
			}
			b, st, j, logs := setupFast(t), newStage(t), &journal{}, newLogs(t)
			st.unsafe = true // the first is a zombie
			first := b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: 1}, Guard: queue.GuardConfig{Lock: lock.Config{TTL: time.Second}, Logger: logs.logger, Observe: j.observe}}, st.run)
			zombie := st.hold(0)
			id := b.enqueue(t, b.job(0), queue.Options{Timeout: tt.timeout, Retries: queue.NoRetries})
			within(t, patience, "the first attempt", zombie.entered)
			second := st.hold(0)
			if tt.timeout > 0 { // the second's own must be later, if the machine does not stand still
				steadily(t, time.Second, "the first attempt alone", func() bool { return len(st.order()) == 1 })
			}
			b.takeOver(t, id)
			b.serve(t, queue.ServerConfig{}, st.run)
			within(t, patience, "the second attempt", second.entered)
			within(t, patience, "the first attempt to learn of its loss", zombie.ended)

			tt.end(t, first, zombie)
			if tt.logged != "" {
				poll.Eventually(t, "its acknowledgement to be held back", func() bool { return len(logs.lines(tt.logged)) == 1 })
				zombie.open()
			}
			j.await(t, queue.EventLost, id, 1)
			steadily(t, 300*time.Millisecond, "the task active", func() bool {
				return b.state(id) == asynq.TaskStateActive && b.rdb.ZScore(t.Context(), b.key("lease"), id).Err() == nil
			})
			second.open()
			b.awaitGone(t, id)
			st.wantOrder(0, 0)
			if info := b.stats(t); info.Processed != 1 || info.Failed != 0 || info.Size != 0 {
				t.Errorf("want 1 processed, none failed, none left, have %+v", info)
			}
		})
	}
}

// The ledger has seen a later fence than the holder's. So there has been another holder, though
// this one had no reason to doubt its lease. That is no failure of the task.
func TestStaleFenceIsALostLease(t *testing.T) {
	t.Parallel()
	b, st, j := setup(t), newStage(t), &journal{}
	var refused atomic.Bool
	st.act(0, func() error {
		if refused.Swap(true) {
			return nil
		}
		return queue.Permanent(fmt.Errorf("write the row: %w", lock.ErrStale))
	})
	b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Observe: j.observe}}, st.run)
	id := b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
	j.await(t, queue.EventLost, id, 1)
	b.awaitGone(t, id)
	st.wantOrder(0, 0)
	if info := b.stats(t); info.Failed != 0 || info.Archived != 0 || info.Processed != 1 {
		t.Errorf("want 1 processed, none failed, have %+v", info)
	}
}
