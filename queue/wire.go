package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/redisstore"
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

// hooked returns client, which one server uses, with the guard's hook.
func (g *Guard) hooked(client redis.UniversalClient) redis.UniversalClient {
	if checkClient(client) != nil {
		g.redisRing.Store(true)
	}
	client.AddHook(g.hook.Server(g.notifier.Fetcher()))
	return client
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

// guardKey is the key under which the contexts of a wrapped server carry its guard.
type guardKey struct{}

// Wrap returns cfg with what the guard needs of a server. A task that waits for its resource is no
// failure. It comes again when the guard says so, and cfg's ErrorHandler is not told.
// [GuardConfig.NoNotifier] says how TaskCheckInterval is used. Wrap changes nothing else of cfg.
//
// The guard recovers tasks in the queues of all configurations that it has wrapped. If these differ
// in Queues or StrictPriority, nothing is prefetched.
func (g *Guard) Wrap(cfg asynq.Config) asynq.Config {
	g.wrapped.Store(true)
	queues := served(cfg.Queues)
	g.serves(queues)
	g.notifier.Serves(queues, cfg.StrictPriority)
	if !g.cfg.NoNotifier {
		if cfg.TaskCheckInterval <= 0 {
			cfg.TaskCheckInterval = defaultPoll
		}
		g.notifier.Poll(cfg.TaskCheckInterval)
		cfg.TaskCheckInterval = sleepInterval
	}
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
			err = g.endedByAsynq(ctx, t, err)
		}
		if onError != nil {
			onError.HandleError(ctx, t, err)
		}
	})
	return cfg
}

// A guard's three parts work together only. If Conn or Wrap is missing, or is another guard's, no
// guarded task runs. Conn finds the fault at the first dequeue, before a task is taken, and
// Middleware at the first guarded task. If Middleware is missing, Conn finds that when a guarded
// task is done.

// errRedisRing refuses a client that spreads keys over independent servers.
var errRedisRing = errors.New("queue: a redis.Ring spreads keys over servers that know nothing of one another; want a Redis, one with Sentinel, or a Cluster")

// checkContext refuses a nil context.
func checkContext(ctx context.Context) error {
	if ctx == nil {
		return errors.New("queue: ctx: want a context, have nil")
	}
	return nil
}

// checkNil refuses a nil client.
func checkNil(rdb redis.Scripter) error {
	if redisstore.None(rdb) {
		return errors.New("queue: redis: want a client, such as one made by Redis, have none")
	}
	return nil
}

// checkClient refuses a nil client and a redis.Ring.
func checkClient(rdb redis.Scripter) error {
	if err := checkNil(rdb); err != nil {
		return err
	}
	if _, spreads := rdb.(*redis.Ring); spreads {
		return errRedisRing
	}
	return nil
}

// guards reports whether a task is guarded, by all that is known before its handler starts.
func (g *Guard) guards(kind string, headers map[string]string) bool {
	_, named := headers[HeaderResource]
	_, ours := g.cfg.Resources[kind]
	return named || ours
}

// check returns why no task may be taken. The hook calls check before the first task on a
// connection of Conn. It also does so when a guarded task is done that did not pass through
// Middleware.
func (g *Guard) check(ctx context.Context, tasks redis.ProcessHook) (err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			const text = "no tasks are taken"
			g.faults.log(ctx, g.cfg.Logger, slog.LevelError, text, text, "error", err)
		}
	}()
	switch {
	case g.redisRing.Load():
		return errRedisRing
	case g.hook.Unguarded():
		return errors.New("queue: a guarded task has run on a server whose handler did not pass through Guard.Middleware")
	case !g.wrapped.Load():
		return errors.New("queue: the server's connection passed through Guard.Conn, but no asynq.Config through Guard.Wrap")
	}
	if err := g.checkSameRedis(ctx, tasks); err != nil {
		return err
	}
	return g.startLimits(ctx)
}

// checkSameRedis writes through the server's connection and reads through the guard's client. A guard
// whose client reaches another Redis, or another database, would lock there and wake nobody. On a
// single Redis it writes keys of several slots at once, as the guard's scripts do. A proxy that
// sends each key to another server refuses that, or loses some.
func (g *Guard) checkSameRedis(ctx context.Context, tasks redis.ProcessHook) error {
	const lasts = 10 * time.Second
	n := 8
	if !oneStep(g.rdb) {
		n = 1
	}
	const write = "for i = 1, #KEYS do redis.call('SET', KEYS[i], '1', 'PX', ARGV[1]) end return 1"
	args := []any{"eval", write, n}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "siding:{probe-" + uuid.NewString() + "}"
		args = append(args, keys[i])
	}
	if err := tasks(ctx, redis.NewCmd(ctx, append(args, lasts.Milliseconds())...)); err != nil {
		return fmt.Errorf("queue: the server's connection takes no writes of several keys by one script: %w", err)
	}
	for _, key := range keys {
		there, err := g.rdb.Eval(ctx, "return redis.call('DEL', KEYS[1])", []string{key}).Int()
		if err != nil {
			return fmt.Errorf("queue: the guard's client does not read what the server's connection has written: %w", err)
		}
		if there != 1 {
			return errors.New("queue: the guard's client and the server's connection reach different Redis servers or databases, or a proxy; want the same one")
		}
	}
	return nil
}

// checkParts returns nil if the server of a guarded task has all parts of the guard. Otherwise it
// keeps the task from running there, and returns the error that parks it. The task uses no retry
// and is not archived. A task that asynq would archive waits in its worker until its context ends.
// A shutdown of the server requeues such a task.
func (r *run) checkParts(ctx context.Context) error {
	wrapped, _ := ctx.Value(guardKey{}).(*Guard)
	unhooked := r.attempt == nil
	var missing string
	switch {
	case wrapped == nil && unhooked:
		missing = "the server's connection did not pass through Guard.Conn, nor its asynq.Config through Guard.Wrap"
	case wrapped == nil:
		missing = "the server's asynq.Config did not pass through Guard.Wrap"
	case wrapped != r.Guard:
		missing = "the server's asynq.Config passed through Guard.Wrap of another guard than its Guard.Middleware is of; a handler for NewServer needs no Guard.Middleware"
	case unhooked:
		missing = "the server's connection did not pass through Guard.Conn of the guard that its Guard.Middleware is of"
	default:
		return nil
	}
	r.log().ErrorContext(ctx, "a guarded task was refused", "missing", missing)
	e := &parkedError{reason: "siding: " + missing, after: unwiredDelay}
	if !unhooked || wrapped != nil && r.info.Retried < r.info.Retries {
		return r.park(e)
	}
	<-ctx.Done()
	return e
}
