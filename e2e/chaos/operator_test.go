//go:build unix

package chaos

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

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// An operator does with asynq's Inspector what one may do in the dashboard.
type operator struct {
	rdb       redis.UniversalClient
	inspector *asynq.Inspector
	feed      *feed
	pausing   sync.Mutex // held while a queue is meant to be paused
	limiting  sync.Mutex // held while a limit is meant to be overridden
}

// watch unpauses queues that are not meant to be paused, and removes overrides, until ctx ends. A
// failover may lose what was acknowledged.
func (o *operator) watch(ctx context.Context) {
	for sleep.For(ctx, 500*time.Millisecond) == nil {
		if o.pausing.TryLock() {
			for _, name := range Queues {
				_ = o.inspector.UnpauseQueue(name) // "is not paused", most often
			}
			o.pausing.Unlock()
		}
		if o.limiting.TryLock() {
			_ = o.removeOverrides(ctx)
			o.limiting.Unlock()
		}
	}
}

// inject injects one of the operators' faults. Redis may be away meanwhile. A command without an
// answer may take effect, also later: the task then counts as deleted, or shelved.
func (o *operator) inject(ctx context.Context, i Injection, fault *Fault) error {
	r := rand.New(rand.NewPCG(i.Pick, 0))
	name := Queues[r.IntN(len(Queues))]
	switch i.Kind {
	case PauseQueue:
		o.pausing.Lock()
		defer o.pausing.Unlock()
		if o.inspector.PauseQueue(name) == nil {
			fault.Hits++
		}
		_ = sleep.For(ctx, i.For)
		return o.unpause(ctx)
	case DeleteTasks:
		for _, t := range o.waiting(name, r) {
			o.feed.mark(t.ID, func(t *Task) { t.Deleted = true })
			err := o.inspector.DeleteTask(name, t.ID)
			switch {
			case err == nil:
				fault.Hits++
			case strings.Contains(err.Error(), "in active state"):
				o.feed.mark(t.ID, func(t *Task) { t.Deleted = false })
			}
		}
	case ArchiveTasks:
		tasks := o.waiting(name, r)
		archived := make(map[string]bool)
		for _, t := range tasks {
			o.feed.mark(t.ID, func(t *Task) { t.Shelved = true })
			archived[t.ID] = o.inspector.ArchiveTask(name, t.ID) == nil
		}
		_ = sleep.For(ctx, i.For)
		for n, t := range tasks { // except the first, which stays there
			if n > 0 && o.inspector.RunTask(name, t.ID) == nil && archived[t.ID] {
				fault.Hits++
				o.feed.mark(t.ID, func(t *Task) { t.Shelved, t.RunAgain = false, Now() })
			}
		}
	case DeleteLock:
		fault.Resource = o.held(ctx, r)
		fault.Hits = int(o.rdb.Del(ctx, "lock:"+fault.Resource).Val())
	case RevokeLease:
		o.revoke(ctx, r, fault)
	case OverrideLimit:
		return o.override(ctx, r, i.For, fault)
	default:
		return fmt.Errorf("%s: not a fault of operators", i.Kind)
	}
	return nil
}

// unpause unpauses all queues: a pause without an answer may have taken effect.
func (o *operator) unpause(ctx context.Context) error {
	for _, name := range Queues {
		err := expect.Until(ctx, func() error {
			// The client that has filled a queue since Redis came back empty may be older, and lists it only after a minute.
			if err := o.rdb.SAdd(ctx, "asynq:queues", name).Err(); err != nil {
				return err
			}
			_ = o.inspector.UnpauseQueue(name) // "is not paused", most often
			info, err := o.inspector.GetQueueInfo(name)
			if err == nil && info.Paused {
				err = errors.New("paused")
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// override pauses a resource for a time, or lowers its limit.
func (o *operator) override(ctx context.Context, r *rand.Rand, length time.Duration, fault *Fault) error {
	o.limiting.Lock()
	defer o.limiting.Unlock()
	all := Resources()
	limit := queue.LimitOverride{Pattern: all[r.IntN(len(all))], By: "carol", Reason: "chaos"}
	if IsPool(limit.Pattern) {
		limit.Holders = r.IntN(PoolHolders)
	}
	fault.Resource = limit.Pattern
	err := queue.SetLimit(ctx, o.rdb, limit)
	override := &Override{Holders: limit.Holders, Since: Now()}
	_ = sleep.For(ctx, length)
	var held inspect.Lock
	if i, err := inspect.New(o.rdb, inspect.Config{}); err == nil {
		held, _, _ = i.Show(ctx, limit.Pattern, 1, 0)
	}
	override.Until = Now()
	if err == nil {
		fault.Hits, fault.Override = held.Waiting, override
	}
	return expect.Until(ctx, func() error { return o.removeOverrides(ctx) })
}

// removeOverrides removes all overrides: one without an answer may have taken effect.
func (o *operator) removeOverrides(ctx context.Context) error {
	limits, err := queue.Limits(ctx, o.rdb, "")
	for _, l := range limits {
		_, unset := queue.UnsetLimit(ctx, o.rdb, "", l.Pattern)
		err = errors.Join(err, unset)
	}
	return err
}

// held returns a resource that somebody holds, or any if nobody holds one.
func (o *operator) held(ctx context.Context, r *rand.Rand) string {
	names := Things()
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		if strings.HasPrefix(o.rdb.Get(ctx, "lock:"+name).Val(), "siding:") {
			return name
		}
	}
	return names[0]
}

// waiting returns some tasks that wait for a lock, or for a worker.
func (o *operator) waiting(name string, r *rand.Rand) []*asynq.TaskInfo {
	const some = 4
	list := o.inspector.ListRetryTasks
	if r.IntN(4) == 0 {
		list = o.inspector.ListPendingTasks
	}
	tasks, err := list(name, asynq.PageSize(100))
	if err != nil {
		return nil
	}
	r.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	return tasks[:min(some, len(tasks))]
}
