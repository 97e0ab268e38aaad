package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A task that loses its lock each time it runs comes to an end. At first its losses are tolerated, with
// a longer wait each time. Then they use retries, and the task is archived after its last.
func TestLossesAreToleratedUpToALimit(t *testing.T) {
	t.Parallel()
	b, st, j, logs := setup(t), newStage(t), &journal{}, newLogs(t)
	b.serve(t, queue.ServerConfig{Recovery: queue.Recovery{Losses: 2}, Observe: j.observe, Logger: logs.logger}, func(ctx context.Context, j job) error {
		if err := st.run(ctx, j); err != nil {
			return err
		}
		return fmt.Errorf("write: %w", lock.ErrStale)
	})
	id := b.enqueue(t, b.job(1), queue.Options{Retries: queue.NoRetries})
	info := b.awaitState(t, id, asynq.TaskStateArchived)
	st.wantOrder(1, 1, 1)
	if want := "write: " + lock.ErrStale.Error(); info.LastErr != want {
		t.Errorf("want the reason %q, have %q", want, info.LastErr)
	}
	j.await(t, queue.EventLost, id, 3) // told once Redis has answered
	if have := j.of(queue.EventLost, id); len(have) != 3 {
		t.Errorf("want three losses observed, have %+v", have)
	}
	if refused := logs.lines("a write of the task was refused, as somebody has held its lock since", slog.LevelWarn); len(refused) != 3 {
		t.Errorf("want three lines in the log that say why, have %q", refused)
	}
}

// A handler that finds a second lock busy, and says so, has not failed.
func TestSecondLockIsBusy(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		second := b.resource + ".second"
		lease, err := b.locker.Acquire(t.Context(), second, nil)
		must(t, err)
		var server *queue.Server
		ready := make(chan struct{})
		server = b.serve(t, queue.ServerConfig{Observe: j.observe}, func(ctx context.Context, j job) error {
			<-ready
			return server.Locker().Do(ctx, second, nil, func(ctx context.Context) error { return st.run(ctx, j) })
		})
		close(ready)
		id := b.enqueue(t, b.job(1), queue.Options{Retries: queue.NoRetries})
		poll.Eventually(t, "parked three times", func() bool { return len(j.of(queue.EventParked, id)) >= 3 })
		info := b.awaitState(t, id, asynq.TaskStateRetry)
		if want := second + " is held by "; !strings.Contains(info.LastErr, second) || info.Retried != 0 {
			t.Errorf("want no retry used, and the reason to contain %q, have %+v", want, info)
		}
		b.soonFree(t, b.resource) // it does not keep the first meanwhile
		must(t, lease.Release(t.Context()))
		b.awaitGone(t, id)
		st.wantOrder(1)
	})
}
