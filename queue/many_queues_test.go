package queue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// A server has a busy key in one of many queues, and the others are empty. It does not look for each next
// task in one queue after the other.
func TestBusyKeyInOneOfManyQueues(t *testing.T) {
	t.Parallel()
	const queues, tasks = 100, 100
	b, st := setupFast(t), newStage(t)
	var dequeues atomic.Int32
	p := &plain{
		config: asynq.Config{Queues: map[string]int{b.queue: 1}, DelayedTaskCheckInterval: time.Hour},
		onTasks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			if args := cmd.Args(); isDequeue(cmd) || cmd.Name() == "evalsha" && len(args) > 2 && args[2] == 0 {
				dequeues.Add(1)
			}
			return send()
		},
	}
	for i := range queues - 1 {
		p.config.Queues[fmt.Sprintf("%s-%d", b.queue, i)] = 1
	}
	var ids []string
	var order []int
	for i := range tasks {
		ids = append(ids, b.enqueue(t, b.job(i)))
		order = append(order, i)
	}
	p.start(t, b, handlerOf(st.run))
	b.awaitGone(t, ids...)
	st.wantOrder(order...)
	start := time.Now()
	p.stop(t)
	if took := time.Since(start); took > 20*time.Second { // a second for each queue, if each was waited for
		t.Errorf("want the server stopped soon, have it take %v", took)
	}
	if have := dequeues.Load(); have > 5*tasks {
		t.Errorf("want at most five dequeues for a task, have %d for %d tasks in %d queues", have, tasks, queues)
	} else {
		t.Logf("%d dequeues for %d tasks in %d queues", have, tasks, queues)
	}
}
