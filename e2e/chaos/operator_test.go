//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/e2e/chaos"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/poll"
)

// An operator does with asynq's Inspector what one may do in the dashboard.
type operator struct {
	rdb       redis.UniversalClient
	inspector *asynq.Inspector
	feed      *feed
	pausing   sync.Mutex // held while a queue is meant to be paused
}

// watch unpauses queues that are not meant to be paused, until ctx ends. A failover may lose an
// unpause that was acknowledged.
func (o *operator) watch(ctx context.Context) {
	for sleep.For(ctx, 500*time.Millisecond) == nil {
		if o.pausing.TryLock() {
			for _, queue := range chaos.Queues {
				_ = o.inspector.UnpauseQueue(queue) // "is not paused", most often
			}
			o.pausing.Unlock()
		}
	}
}

// inject injects one of the operators' faults. Redis may be away meanwhile. A command without an
// answer may take effect, also later: the task then counts as deleted, or shelved.
func (o *operator) inject(ctx context.Context, i chaos.Injection, fault *chaos.Fault) error {
	r := rand.New(rand.NewPCG(i.Pick, 0))
	queue := chaos.Queues[r.IntN(len(chaos.Queues))]
	switch i.Kind {
	case chaos.PauseQueue:
		o.pausing.Lock()
		defer o.pausing.Unlock()
		if o.inspector.PauseQueue(queue) == nil {
			fault.Hits++
		}
		_ = sleep.For(ctx, i.For)
		return o.unpause(ctx)
	case chaos.DeleteTasks:
		for _, t := range o.waiting(queue, r) {
			o.feed.mark(t.ID, func(t *chaos.Task) { t.Deleted = true })
			err := o.inspector.DeleteTask(queue, t.ID)
			switch {
			case err == nil:
				fault.Hits++
			case strings.Contains(err.Error(), "in active state"):
				o.feed.mark(t.ID, func(t *chaos.Task) { t.Deleted = false })
			}
		}
	case chaos.ArchiveTasks:
		tasks := o.waiting(queue, r)
		archived := make(map[string]bool)
		for _, t := range tasks {
			o.feed.mark(t.ID, func(t *chaos.Task) { t.Shelved = true })
			archived[t.ID] = o.inspector.ArchiveTask(queue, t.ID) == nil
		}
		_ = sleep.For(ctx, i.For)
		for n, t := range tasks { // except the first, which stays there
			if n > 0 && o.inspector.RunTask(queue, t.ID) == nil && archived[t.ID] {
				fault.Hits++
				o.feed.mark(t.ID, func(t *chaos.Task) { t.Shelved, t.RunAgain = false, chaos.Now() })
			}
		}
	case chaos.DeleteLock:
		fault.Resource = o.held(ctx, r)
		fault.Hits = int(o.rdb.Del(ctx, "lock:"+fault.Resource).Val())
	case chaos.RevokeLease:
		o.revoke(ctx, r, fault)
	default:
		return fmt.Errorf("%s: not a fault of operators", i.Kind)
	}
	return nil
}

// unpause unpauses all queues: a pause without an answer may have taken effect.
func (o *operator) unpause(ctx context.Context) error {
	for _, queue := range chaos.Queues {
		err := poll.Until(ctx, func() error {
			_ = o.inspector.UnpauseQueue(queue) // "is not paused", most often
			info, err := o.inspector.GetQueueInfo(queue)
			if err == nil && info.Paused {
				err = errors.New("paused")
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", queue, err)
		}
	}
	return nil
}

// held returns a resource that somebody holds, or any if nobody holds one.
func (o *operator) held(ctx context.Context, r *rand.Rand) string {
	names := chaos.Things()
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		if strings.HasPrefix(o.rdb.Get(ctx, "lock:"+name).Val(), "siding:") {
			return name
		}
	}
	return names[0]
}

// waiting returns some tasks that wait for a lock, or for a worker.
func (o *operator) waiting(queue string, r *rand.Rand) []*asynq.TaskInfo {
	const some = 4
	list := o.inspector.ListRetryTasks
	if r.IntN(4) == 0 {
		list = o.inspector.ListPendingTasks
	}
	tasks, err := list(queue, asynq.PageSize(100))
	if err != nil {
		return nil
	}
	r.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	return tasks[:min(some, len(tasks))]
}
