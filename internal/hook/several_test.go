package hook_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/fastpath"
	"github.com/sidingq/siding/internal/fetch"
	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
)

// A sweepingFetcher answers each dequeue by a scan of all its queues.
type sweepingFetcher struct {
	shelf

	queues []string
}

func (f *sweepingFetcher) Dequeue(_ context.Context, _ string, scan fetch.Scan) (fetch.Task, error) {
	return scan(f.queues...)
}

// One call takes the task of the first queue that has one, as a dequeue of that queue alone does: the task
// comes with its lock, those whose locks are busy are parked, a paused queue keeps its tasks, and the
// notify list of an empty queue is cleared.
func TestOneCallTakesFromSeveralQueues(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		queues := []string{f.queue, f.queue + "-paused", f.queue + "-busy", f.queue + "-last"}
		busy := "order:" + f.queue
		must(t, f.rdb.Set(t.Context(), "lock:"+busy, "siding:token:somebody", time.Hour).Err())
		put := func(queue, resource string) string {
			task := asynq.NewTaskWithHeaders("order:audit", nil, map[string]string{"siding-resource": resource})
			info, err := f.client.EnqueueContext(t.Context(), task, asynq.Queue(queue))
			must(t, err)
			return info.ID
		}
		put(queues[1], "order:"+uuid.NewString())
		must(t, f.inspector.PauseQueue(queues[1]))
		waits := []string{put(queues[2], busy), put(queues[2], busy), put(queues[2], busy)}
		last := put(queues[3], "order:"+uuid.NewString())
		must(t, f.rdb.RPush(t.Context(), f.notifyKey(), "1").Err())

		h := hook.NewHook(slog.New(slog.DiscardHandler), func() {})
		parked, ran := make(chan hook.Parked, 10), make(chan string, 10)
		h.TakeLocks(hook.Locking{
			Source: fastpath.Dequeue(), Args: redisstore.LockArgs("lock:", 15*time.Second, time.Hour, time.Hour), Host: "here",
			Fallback: time.Hour, Spread: time.Hour, Limited: func() string { return "" }, Parked: func(p hook.Parked) { parked <- p },
			Unused: func(g store.Grant) { ran <- "with " + g.Resource },
		})
		rdb := f.connect()
		rdb.AddHook(h.Server(&sweepingFetcher{queues: queues}))
		server := asynq.NewServerFromRedisClient(rdb, asynq.Config{Queues: map[string]int{f.queue: 1}, LogLevel: asynq.FatalLevel, Concurrency: 1})
		must(t, server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			queue, _ := asynq.GetQueueName(ctx)
			ran <- queue + " " + id
			return nil
		})))
		for i, id := range waits {
			if p := receive(t, parked, "a parked task"); p.ID != id || p.Queue != queues[2] || p.Resource != busy {
				t.Errorf("want number %d of the busy queue parked, have %+v", i+1, p)
			}
		}
		if have, want := receive(t, ran, "a run"), queues[3]+" "+last; have != want {
			t.Errorf("want %q to run, have %q", want, have)
		}
		if have := receive(t, ran, "an unused lock"); len(have) < 10 {
			t.Errorf("want its lock taken with it, have %q", have)
		}
		server.Shutdown()
		if n := f.notifications(t); n != 0 {
			t.Errorf("want the notify list of an empty queue cleared, have %d", n)
		}
		if have := f.rdb.LLen(t.Context(), "asynq:{"+queues[1]+"}:pending").Val(); have != 1 {
			t.Errorf("want the task of the paused queue left, have %d", have)
		}
		waiting := f.rdb.ZRange(t.Context(), "{lock:"+busy+"}:queue", 0, -1).Val()
		for i, id := range waits {
			if want := fmt.Sprintf("siding-task:%s:%s", queues[2], id); len(waiting) != len(waits) || waiting[i] != want {
				t.Errorf("want %s in the wait queue, have %v", want, waiting)
			}
		}
		if keys := f.rdb.Keys(t.Context(), "asynq:{"+f.queue+"*}:active").Val(); len(slices.Compact(keys)) > 0 {
			t.Errorf("want nothing active, have %v", keys)
		}
	})
}
