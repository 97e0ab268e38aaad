package queue_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// Two servers with different queues share a connection of the guard's. Neither gets a task of a
// queue that it does not serve. That holds if the guard wraps both, or only one.
func TestServersOnOneConnectionKeepToTheirQueues(t *testing.T) {
	t.Parallel()
	for name, wrapped := range map[string]bool{"both wrapped": true, "one wrapped": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st := setup(t), newStage(t)
			logs := newLogs(t)
			locks := queue.Redis(b.opts)
			t.Cleanup(func() { _ = locks.Close() })
			guard, err := queue.NewGuard(locks, queue.GuardConfig{Resources: resources(), Logger: logs.logger})
			if err != nil {
				t.Fatal(err)
			}
			shared, ok := guard.Conn(b.redisOpt()).MakeRedisClient().(redis.UniversalClient)
			if !ok {
				t.Fatal("want a client")
			}
			t.Cleanup(func() { _ = shared.Close() })
			other := b.queue + ".other"
			start := func(queueName string, wrap bool, fn asynq.HandlerFunc) *asynq.Server {
				cfg := asynq.Config{
					Concurrency: 2, Queues: map[string]int{queueName: 1}, Logger: plainLogger{logs.logger}, TaskCheckInterval: glance,
				}
				if wrap {
					cfg = guard.Wrap(cfg)
				}
				mux := asynq.NewServeMux()
				if wrap {
					mux.Use(guard.Middleware)
				}
				mux.HandleFunc("test:", fn)
				s := asynq.NewServerFromRedisClient(shared, cfg)
				if err := s.Start(mux); err != nil {
					t.Fatal(err)
				}
				return s
			}
			var strays atomic.Int32
			stray := func(want string, fn func(context.Context, *asynq.Task) error) asynq.HandlerFunc {
				return func(ctx context.Context, task *asynq.Task) error {
					if have, _ := asynq.GetQueueName(ctx); have != want {
						strays.Add(1)
					}
					if fn != nil {
						return fn(ctx, task)
					}
					return nil
				}
			}
			first := start(b.queue, true, stray(b.queue, handlerOf(st.run)))
			second := start(other, wrapped, stray(other, nil))
			const tasks = 300
			for n := range tasks {
				b.enqueuePlain(t, b.job(n))
			}
			poll.Eventually(t, "all to be gone", func() bool { return b.stats(t).Size == 0 })
			first.Shutdown()
			second.Shutdown()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := guard.Wait(ctx); err != nil {
				t.Error(err)
			}
			if have := strays.Load(); have != 0 {
				t.Errorf("want no task with a server that does not serve its queue, have %d of %d", have, tasks)
			}
			if have := len(st.order()); have != tasks {
				t.Errorf("want %d runs, have %d", tasks, have)
			}
		})
	}
}
