package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/limits"
	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// A Server runs tasks, guarded ones under the lock of their resource. Register handlers with
// [Handle], or set one in [ServerConfig]. Then call Run; or Start and, at the end, Shutdown.
//
// Below the handlers there is package engine, which fetches and settles tasks. A Server decides what a task needs
// before it runs, and what its error means.
type Server struct {
	cfg    ServerConfig
	rdb    redis.UniversalClient
	own    bool // rdb is the server's to close
	self   string
	probed string // the resource whose lock Ready takes

	locker  *lock.Locker  // takes the locks of handlers
	locks   *lease.Client // of locker's locks, for those that the engine takes: it adopts them, see Server.withLock
	outside bool          // the engine cannot take the locks: they are in a Store or a Cluster
	queued  bool          // who waits for locker's locks joins a wait queue, and does not poll
	limits  atomic.Pointer[limits.Table]

	typed      map[string]func([]byte) string // by kind: the resource of a task without a header, see Handle
	routes     map[string]asynq.HandlerFunc   // by kind; fixed once started
	middleware []asynq.MiddlewareFunc         // likewise
	onMaxWait  engine.Handler                 // once started: ServerConfig.OnMaxWait, nil for none
	engine     *engine.Server                 // once started

	mu       sync.Mutex
	starting bool          // a Start or Run has begun, and nothing is started yet
	started  chan struct{} // closed once engine is set
	stopped  bool          // Stop was called

	missing        atomic.Pointer[error] // why no tasks are taken, see Unavailable; nil if they are
	asks           chan struct{}         // one for each call of Available that is under way
	work           sync.WaitGroup        // background work
	background     context.Context       //nolint:containedctx // of that, until Shutdown is called
	end            context.CancelFunc    // called with mu held
	faults         logEvery
	unguardedKinds logEvery // of noteUnguarded
}

// NewServer returns a server on the Redis of opt: one of asynq's options, such as
// asynq.RedisClientOpt, or a [RedisOpt]. An error names the option or the field that cannot work.
// NewServer does not connect yet.
//
// The server makes one client, with the settings of [Redis] and, unless opt has a PoolSize, a pool for all tasks at once. It
// closes the client on Shutdown. An opt of a type of your own makes the client as it likes, and closes it: it may
// be one that others use, too.
func NewServer(opt asynq.RedisConnOpt, cfg ServerConfig) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	rdb, own, err := connect(opt, func(o *RedisOpt) { // all handlers may be in a call at once, besides the server itself
		own := 10
		if o.IsClusterMode || len(o.Addrs) > 1 {
			own += len(shardQueues(served(cfg.Asynq.Queues), cfg.Shards)) // each waits for notifications of its own; all may be on one node
		}
		o.PoolSize = cmp.Or(o.PoolSize, cfg.withDefaults().Asynq.Concurrency+own)
	})
	if err != nil {
		return nil, err
	}
	s, err := NewServerFromRedisClient(rdb, cfg)
	if err != nil {
		if own {
			err = errors.Join(err, rdb.Close())
		}
		return nil, err
	}
	s.own = own
	return s, nil
}

// NewServerFromRedisClient returns a server on an existing client of the Redis of its tasks, which the server never
// closes. Make rdb by [Redis], or set ContextTimeoutEnabled on it, so that calls to a Redis that hangs end in time. The
// server needs a few of its connections at once, and one more for each handler that calls the server's Locker; in a Cluster also one
// for each queue. An error says so if the PoolSize of a Cluster's client is below that.
func NewServerFromRedisClient(rdb redis.UniversalClient, cfg ServerConfig) (*Server, error) {
	if err := cmp.Or(checkClient(rdb), cfg.Validate()); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg.withDefaults(), rdb: rdb, self: store.Process(),
		routes: make(map[string]asynq.HandlerFunc), typed: make(map[string]func([]byte) string),
		probed: "siding-probe:" + uuid.NewString(), started: make(chan struct{}),
		asks: make(chan struct{}, availableAtOnce), unguardedKinds: logEvery{interval: 24 * time.Hour},
	}
	if err := s.checkPool(); err != nil {
		return nil, err
	}
	rules, _ := rulesOf(cfg.Limits) // Validate has checked them
	table := limits.New(rules)
	if cfg.Store != nil { // whose locks have one holder
		table = table.AtMost(1)
	}
	s.limits.Store(table)
	if err := s.makeLocks(); err != nil {
		return nil, err
	}
	s.background, s.end = context.WithCancel(context.Background())
	return s, nil
}

// checkPool refuses a pool of which the queues that wait for notifications could take all connections: in a Cluster each takes one, and
// all may be on one node.
func (s *Server) checkPool() error {
	client, is := s.rdb.(*redis.ClusterClient)
	if queues := len(shardQueues(s.cfg.Asynq.Queues, s.cfg.Shards)); is && client.Options().PoolSize < queues+ownCalls {
		return fmt.Errorf("queue: redis: PoolSize: want %d or more, as each of %d queues waits for notifications on a connection of its own, have %d",
			queues+ownCalls, queues, client.Options().PoolSize)
	}
	return nil
}

// ownCalls is how many calls a server makes at once besides: steps, heartbeats and upkeep.
const ownCalls = 4

// makeLocks makes what takes locks beside the engine.
func (s *Server) makeLocks() error {
	onRedis := lockredis.WithRules(s.rdb, s.ruleOf)
	s.outside = s.cfg.Store != nil || lockredis.IsCluster(s.rdb)
	deciding := cmp.Or[lock.Store](s.cfg.Store, onRedis)
	_, s.queued = deciding.(store.Listener)
	var errs [2]error
	s.locks, errs[0] = lease.New(onRedis, lease.Config(s.cfg.Lock))
	s.locker, errs[1] = lock.New(deciding, s.cfg.Lock)
	return cmp.Or(errs[:]...)
}

// plus adds two durations. What is too long for a [time.Duration] is the longest there is.
func plus(a, b time.Duration) time.Duration {
	if a > 0 && b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// Locker returns the Locker of the server, for a handler that needs a second lock. A handler that
// takes the lock of its own task's resource gets it again at once with [lock.Options.Reentrant].
// Without, it gets [lock.ErrReentry], which is a failure of the task's own. With a Locker of its own
// the handler would wait for itself. [Server.Shutdown] closes the Locker.
func (s *Server) Locker() *lock.Locker { return s.locker }

// Stop has the server take no more tasks, as asynq's Stop does. Those that run go on. Call Shutdown at the end all the
// same. Before a Start, and after a Shutdown, Stop does nothing.
func (s *Server) Stop() {
	s.mu.Lock()
	server := s.engine
	s.stopped = server != nil
	s.mu.Unlock()
	if server != nil {
		_ = server.Stop(s.background) // an error says that the server has ended
	}
}

// Shutdown stops taking tasks, waits until the running ones have ended and released their locks,
// and closes the connection. After ShutdownTimeout of asynq.Config the contexts of running tasks
// end, and other servers may take those without a lock. Shutdown still waits for the handlers of the others.
//
// When ctx ends, Shutdown returns its error at once. The locks of tasks that still run then expire,
// and other servers recover them; the process should end. If no task runs any more, and only a
// function of yours has not returned, such as a GroupAggregator or [ServerConfig.Observe], the error
// says so, and all is closed. A second call does nothing, and waits for nothing.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	server, before := s.engine, s.isShutDown()
	s.end()
	s.mu.Unlock()
	if before {
		return nil
	}
	var err error
	if server != nil {
		err = server.Shutdown(ctx)
		if err != nil && !errors.Is(err, engine.ErrNotReturned) {
			return fmt.Errorf("queue: shutdown: tasks are still running: %w", err)
		}
		if worked := s.worked(ctx); err != nil || !worked {
			err = fmt.Errorf("queue: shutdown: no task runs any more, but the server still waits for a function of the program, "+
				"such as a GroupAggregator or Observe, or for Redis: %w", ctx.Err())
		}
	}
	s.locker.Close()
	s.locks.Close()
	if s.own {
		err = errors.Join(err, s.rdb.Close())
	}
	return err
}

// worked waits for the background work, and reports whether it has ended before ctx.
func (s *Server) worked(ctx context.Context) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.work.Wait()
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
