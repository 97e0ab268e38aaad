package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

// Conn returns opt with the guard's hook on the connections that it makes. Call it for each
// asynq.Server anew. No task is taken, and the error is logged, while no configuration has passed
// through [Guard.Wrap], where the connection is that of two guards, and where the guard's client
// reaches another Redis than the connection. On a Redis Cluster opt should make
// clients by [Redis], see its example: those of asynq.RedisClusterClientOpt may ask a master
// that has died for a minute, as that has no setting for it.
func (g *Guard) Conn(opt asynq.RedisConnOpt) asynq.RedisConnOpt {
	g.connectBell(func() (redis.UniversalClient, bool) {
		client, ok := opt.MakeRedisClient().(redis.UniversalClient)
		return client, ok
	})
	return changed(opt, g.hooked)
}

// Ringing returns opt for asynq's clients, schedulers and inspectors: idle servers with a
// doorbell then take at once what these put into a queue. On a Redis Cluster opt should make
// clients by [Redis], see [Guard.Conn].
func Ringing(opt asynq.RedisConnOpt) asynq.RedisConnOpt {
	return changed(opt, func(made redis.UniversalClient) redis.UniversalClient { return asynqredis.NewRinger(made) })
}

// changed returns opt with change made to the clients that it makes.
func changed(opt asynq.RedisConnOpt, change func(redis.UniversalClient) redis.UniversalClient) asynq.RedisConnOpt {
	return connOpt(func() any {
		made := opt.MakeRedisClient()
		if client, ok := made.(redis.UniversalClient); ok {
			return change(client)
		}
		return made // asynq will refuse it
	})
}

type connOpt func() any

// MakeRedisClient implements [asynq.RedisConnOpt].
func (c connOpt) MakeRedisClient() any { return c() }

const (
	// sleepInterval is asynq's sleep between its dequeues where a doorbell holds them back.
	// Should the doorbell not know them, it is how often the server polls.
	sleepInterval = 10 * time.Millisecond
	// defaultPoll is what asynq calls its default TaskCheckInterval.
	defaultPoll = time.Second
	leastPoll   = time.Millisecond
)

// connectBell gives the doorbell what makes its client.
func (g *Guard) connectBell(connect func() (redis.UniversalClient, bool)) {
	if !g.cfg.NoDoorbell {
		g.bell.Connect(connect)
	}
}

// hear has idle servers hear the bell, and look for themselves as often as cfg said.
func (g *Guard) hear(cfg *asynq.Config) {
	if g.cfg.NoDoorbell {
		return
	}
	g.bell.Poll(cmp.Or(g.cfg.PollInterval, cfg.TaskCheckInterval, defaultPoll))
	cfg.TaskCheckInterval = sleepInterval
}

// guardKey is the key under which the contexts of a wrapped server carry its guard.
type guardKey struct{}

// Wrap returns cfg with what the guard needs of a server: waiting for a busy
// resource is no failure, is tried again when the guard says so, and is not
// reported to cfg's ErrorHandler. Everything else is left to cfg. Killed tasks are
// recovered in the queues of all configurations that the guard has wrapped.
//
// Where the guard has a doorbell, cfg's TaskCheckInterval becomes the doorbell's, see
// [GuardConfig]. If the configurations that a guard has wrapped differ in Queues or StrictPriority, no
// task is taken in advance.
func (g *Guard) Wrap(cfg asynq.Config) asynq.Config {
	g.wrapped.Store(true)
	g.elections.serves(cfg.Queues)
	g.hook.Serves(cfg.Queues, cfg.StrictPriority)
	g.hear(&cfg)
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
		if _, ok := uncharged(err); ok {
			return false
		}
		return isFailure == nil || isFailure(err)
	}
	cfg.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
		if u, ok := uncharged(err); ok {
			return u.after
		}
		return retryDelay(n, err, t)
	}
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
		if _, ok := uncharged(err); ok {
			return
		}
		if errors.Is(err, context.DeadlineExceeded) {
			g.leaveLine(ctx, t)
		}
		if onError != nil {
			onError.HandleError(ctx, t, err)
		}
	})
	return cfg
}

// leaveLine takes a task out of the line it may stand in: asynq has ended it
// because its time is over, without asking the guard.
func (g *Guard) leaveLine(ctx context.Context, t *asynq.Task) {
	resource, err := g.resourceOf(t)
	if err != nil || resource == "" {
		return
	}
	info := infoOf(ctx, t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	next, err := g.locker.Leave(ctx, resource, asynqredis.WaiterName(info.Queue, info.ID))
	if next != nil { // its turn had come
		g.call(ctx, next)
	}
	if err != nil {
		// It costs those behind it one grace when its turn comes.
		g.cfg.Logger.WarnContext(ctx, "a task that has ended is still in line", "task_id", info.ID, "queue", info.Queue, "resource", resource, "error", err)
	}
}

// stopTaking ends what nobody waits for but Wait, puts back the tasks that were prefetched, and wakes
// the servers.
func (g *Guard) stopTaking() {
	g.end()
	g.hook.Close()
	g.bell.Close()
}

// Wait returns when no handler holds a lock any more and nobody is being
// called, or when ctx ends, with its error. It also ends what the guard has running
// in the background, and closes its own Locker, not one that it was given. Call it once all its
// servers have been shut down, and before Redis is closed: asynq itself does not wait for
// handlers whose time is over.
func (g *Guard) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		g.stopTaking()
		g.elections.close()
		g.work.Wait()
		g.locker.Close()
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
