//go:build unix

package chaos_test

import (
	"context"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/chaos"
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
	tasks map[string]*chaos.Task
}

// newFeed returns a feed of all tasks of the seed, or briefly of those that Siding
// brings back in seconds, whatever becomes of their worker.
func newFeed(seed uint64, brief bool, rdb redis.UniversalClient) *feed {
	return &feed{
		seed: seed, brief: brief, rdb: rdb, inspector: asynq.NewInspectorFromRedisClient(rdb),
		tasks: make(map[string]*chaos.Task),
	}
}

// run keeps so many tasks waiting until ctx ends.
func (f *feed) run(ctx context.Context) {
	const (
		glance   = 100 * time.Millisecond
		patience = 2 * time.Second // with one enqueue
	)
	waiting := 500
	if f.brief {
		waiting = 200 // so that they are soon done
	}
	for n := uint64(0); ctx.Err() == nil; _ = sleep.For(ctx, glance) {
		have, _, err := f.unfinished()
		if err != nil {
			continue // Redis is away
		}
		// A client of asynq makes a queue known once, and not again when Redis has
		// come back empty.
		client, err := queue.NewClient(f.rdb, queue.ClientConfig{})
		if err != nil {
			panic(err) // the configuration is a zero value
		}
		for range waiting - have {
			task, job := chaos.NewTask(f.seed, n)
			n++
			if f.brief && (task.Resource == "" || task.Fate == chaos.FateFlaky) {
				continue
			}
			// Before the answer comes, an operator may have found and deleted it.
			task.Unknown = true
			f.mu.Lock()
			f.tasks[task.ID] = task
			f.mu.Unlock()
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			_, err := client.Enqueue(call, job.Task, job.Options)
			cancel()
			f.mu.Lock()
			task.Unknown, task.Accepted = err != nil, chaos.Now()
			f.mu.Unlock()
			if err != nil || ctx.Err() != nil {
				break
			}
		}
	}
}

// mark changes what is known of a task.
func (f *feed) mark(id string, change func(*chaos.Task)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.tasks[id]; t != nil {
		change(t)
	}
}

// unfinished returns how many tasks are still to be run, and how many were begun.
func (f *feed) unfinished() (waiting, active int, err error) {
	known, err := f.inspector.Queues()
	if err != nil {
		return 0, 0, err
	}
	for _, queue := range known {
		info, err := f.inspector.GetQueueInfo(queue)
		if err != nil {
			return 0, 0, err
		}
		waiting += info.Pending + info.Scheduled + info.Retry
		active += info.Active
	}
	return waiting, active, nil
}
