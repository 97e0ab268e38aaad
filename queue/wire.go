package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/hook"
)

// Conn returns opt with the guard's hook on the connections that it makes. Call it once for each
// asynq.Server. The clients have the settings of those of [Redis], unless opt is of a type of your
// own. In three cases no task is taken, and an error is logged:
//
//   - no configuration has passed through [Guard.Wrap];
//   - the connection is that of two guards;
//   - the guard's client reaches another Redis than the connection.
func (g *Guard) Conn(opt asynq.RedisConnOpt) asynq.RedisConnOpt {
	g.connectNotifier(func() (redis.UniversalClient, bool) {
		client, ok := tuned(opt).MakeRedisClient().(redis.UniversalClient)
		return client, ok
	})
	return changedConn{tuned(opt), g.hooked}
}

// NotifyingConn returns opt for asynq's own clients, schedulers and inspectors, so that they notify
// idle guarded servers of new tasks. Without it these find the tasks at their next poll. The clients
// have the settings of those of [Redis], unless opt is of a type of your own. A [Client] notifies by
// itself.
func NotifyingConn(opt asynq.RedisConnOpt) asynq.RedisConnOpt {
	return changedConn{tuned(opt), func(made redis.UniversalClient) redis.UniversalClient { return hook.NewNotifyingConn(made) }}
}

// A changedConn makes the clients of opt and changes them.
type changedConn struct {
	opt    asynq.RedisConnOpt
	change func(redis.UniversalClient) redis.UniversalClient
}

// MakeRedisClient implements [asynq.RedisConnOpt].
func (c changedConn) MakeRedisClient() any {
	made := c.opt.MakeRedisClient()
	if client, ok := made.(redis.UniversalClient); ok {
		return c.change(client)
	}
	return made // asynq refuses it
}

const (
	// sleepInterval is asynq's sleep between its dequeues, which a fetcher holds back. A server
	// of an unknown asynq polls so often.
	sleepInterval = 10 * time.Millisecond
	// defaultPoll is asynq's default TaskCheckInterval.
	defaultPoll = time.Second
)

// connectNotifier gives the notifier a function that makes its client.
func (g *Guard) connectNotifier(connect func() (redis.UniversalClient, bool)) {
	if !g.cfg.NoNotifier {
		g.notifier.Connect(connect)
	}
}

// notify has idle servers wait for notifications, and poll every TaskCheckInterval of cfg.
func (g *Guard) notify(cfg *asynq.Config) {
	if g.cfg.NoNotifier {
		return
	}
	if cfg.TaskCheckInterval <= 0 {
		cfg.TaskCheckInterval = defaultPoll
	}
	g.notifier.Poll(cfg.TaskCheckInterval)
	cfg.TaskCheckInterval = sleepInterval
}

// guardKey is the key under which the contexts of a wrapped server carry its guard.
type guardKey struct{}

// Wrap returns cfg with what the guard needs of a server. A task that waits for its resource is no
// failure, comes again when the guard says so, and is not reported to cfg's ErrorHandler.
// [GuardConfig.NoNotifier] says how TaskCheckInterval is used. Wrap changes nothing else of cfg.
//
// The guard recovers tasks in the queues of all configurations that it has wrapped. If these differ
// in Queues or StrictPriority, nothing is prefetched.
func (g *Guard) Wrap(cfg asynq.Config) asynq.Config {
	g.wrapped.Store(true)
	queues := served(cfg.Queues)
	g.elections.serves(queues)
	g.notifier.Serves(queues, cfg.StrictPriority)
	g.notify(&cfg)
	baseContext, isFailure, retryDelay, onError := cfg.BaseContext, cfg.IsFailure, cfg.RetryDelayFunc, cfg.ErrorHandler
	if retryDelay == nil {
		retryDelay = asynq.DefaultRetryDelayFunc
	}
	cfg.BaseContext = func() context.Context {
		ctx := context.Background()
		if baseContext != nil {
			ctx = baseContext()
		}
		return context.WithValue(ctx, guardKey{}, g)
	}
	cfg.IsFailure = func(err error) bool {
		if _, ok := parkedBy(err); ok {
			return false
		}
		return isFailure == nil || isFailure(err)
	}
	cfg.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
		if e, ok := parkedBy(err); ok {
			return e.after
		}
		return retryDelay(n, err, t)
	}
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
		if _, ok := parkedBy(err); ok {
			return
		}
		if errors.Is(err, context.DeadlineExceeded) {
			g.leaveQueue(ctx, t)
		}
		if onError != nil {
			onError.HandleError(ctx, t, err)
		}
	})
	return cfg
}

// leaveQueue takes a task out of its wait queue, if it is in one. asynq has ended the task because its
// time is over, without a call of the guard.
func (g *Guard) leaveQueue(ctx context.Context, t *asynq.Task) {
	resource, err := g.resourceOf(t)
	if err != nil || resource == "" {
		return
	}
	info := infoOf(ctx, t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	next, err := g.locks.Leave(ctx, resource, asynqredis.WaiterName(info.Queue, info.ID))
	if next != nil { // the lock was reserved for this task
		g.wake(ctx, next)
	}
	if err != nil {
		// Those behind it lose one hand-off timeout when its reservation expires.
		g.cfg.Logger.WarnContext(ctx, "a task that has ended is still in the wait queue", "task_id", info.ID, "queue", info.Queue, "resource", resource, "error", err)
	}
}

// stopTaking ends the background work of the guard, requeues prefetched tasks and wakes the
// servers.
func (g *Guard) stopTaking() {
	g.end()
	g.notifier.Close()
}

// Wait returns when no handler holds a lock any more, or when ctx ends, with an error. It ends the
// background work of the guard, and closes its Locker. Call Wait once all servers of the guard have
// been shut down, and before Redis is closed. asynq itself does not wait for handlers whose time is
// over.
func (g *Guard) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		g.stopTaking()
		g.elections.close()
		g.work.Wait()
		g.locker.Close()
		g.locks.Close()
		if g.external != nil {
			g.external.Close()
		}
		g.voting.Close()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("queue: handlers still hold their locks: %w", context.Cause(ctx))
	}
}
