//go:build unix

package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/queue"
)

// A feed enqueues the tasks of a run and remembers them.
type feed struct {
	seed      uint64
	brief     bool
	rdb       redis.UniversalClient
	inspector *asynq.Inspector

	mu    sync.Mutex
	tasks map[string]*Task
}

// newFeed returns a feed of all tasks of the seed. A brief one leaves out the tasks that Siding does
// not bring back in seconds when their worker dies.
func newFeed(seed uint64, brief bool, rdb redis.UniversalClient) *feed {
	return &feed{
		seed: seed, brief: brief, rdb: rdb, inspector: asynq.NewInspectorFromRedisClient(rdb),
		tasks: make(map[string]*Task),
	}
}

// run keeps tasks waiting until ctx ends. Some resources get hundreds at once, and no more before
// these are gone. A new task would hide one that was left behind. The others always have a few, and
// so have the tasks without a resource.
func (f *feed) run(ctx context.Context) {
	const (
		glance  = 250 * time.Millisecond
		crowded = 4 // resources
	)
	crowd, few := 300, 40
	if f.brief {
		crowd, few = 100, 12 // so that they are soon done
	}
	lots := append(Resources(), Sets()...)
	if !f.brief {
		lots = append(lots, "") // left to asynq if their worker dies
	}
	next := make(map[string]uint64)
	for ; ctx.Err() == nil; _ = sleep.For(ctx, glance) {
		waiting, err := f.waiting()
		if err != nil {
			continue // Redis is away
		}
		// A client of asynq makes a queue known only once, also if Redis comes back empty.
		client, err := queue.NewClient(f.rdb, queue.ClientConfig{})
		if err != nil {
			panic(err) // the configuration is a zero value
		}
		for n, resource := range lots {
			wanted := few - waiting[resource]
			if n < crowded {
				wanted = crowd
				if waiting[resource] > 0 {
					wanted = 0
				}
			}
			if IsMerged(resource) {
				wanted = min(wanted, 5) // else thousands would end without a run
			}
			for range wanted {
				task, job := NewTask(f.seed, resource, next[resource])
				next[resource]++
				// A crowd does not wait for one that rests after its own failure.
				if (f.brief || n < crowded) && task.Fate == FateFlaky {
					continue
				}
				if !f.enqueue(ctx, client, task, job) {
					break
				}
			}
		}
	}
}

// enqueue reports whether the task was accepted and more are to come.
func (f *feed) enqueue(ctx context.Context, client *queue.Client, task *Task, job queue.Job) bool {
	const patience = 2 * time.Second
	// Before the answer comes, an operator may have found and deleted it.
	task.Unknown, task.Sent = true, Now()
	f.mu.Lock()
	f.tasks[task.ID] = task
	f.mu.Unlock()
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	_, err := client.Enqueue(call, job.Task, job.Options)
	cancel()
	f.mu.Lock()
	task.Unknown, task.Accepted = err != nil, Now()
	f.mu.Unlock()
	return err == nil && ctx.Err() == nil
}

// waiting returns how many tasks wait for each resource. Tasks that a worker has do not count, as a
// dead worker may have some for long.
func (f *feed) waiting() (map[string]int, error) {
	tasks, err := f.in(f.inspector.ListPendingTasks, f.inspector.ListRetryTasks)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := make(map[string]int)
	for id := range tasks {
		if t := f.tasks[id]; t != nil {
			waiting[t.Resource]++
		}
	}
	return waiting, nil
}

// mark changes what is known of a task.
func (f *feed) mark(id string, change func(*Task)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.tasks[id]; t != nil {
		change(t)
	}
}

// A list is one of asynq's, such as that of the tasks of a queue that are pending.
type list = func(queue string, opts ...asynq.ListOption) ([]*asynq.TaskInfo, error)

// unfinished are the lists of tasks that have yet to run, or that a worker has.
func (f *feed) unfinished() []list {
	i := f.inspector
	return []list{i.ListPendingTasks, i.ListActiveTasks, i.ListRetryTasks, i.ListScheduledTasks}
}

// in returns the tasks that are in those lists.
func (f *feed) in(lists ...list) (map[string]bool, error) { return tasksIn(f.inspector, lists...) }
