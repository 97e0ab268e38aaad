package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
)

// ServerConfig configures a [Server]. The zero value works.
type ServerConfig struct {
	// Queues maps queue names to weights (1 or more): tasks are taken from a
	// queue in proportion to its weight. Defaults to {"default": 1}.
	Queues map[string]int
	// Shards says over how many asynq queues (1 to [MaxShards]) a queue is spread, by
	// its name, so that the masters of a Redis Cluster share its load; all clients
	// and servers need the same. All tasks of one resource are in one shard. Each
	// shard has the weight of its queue. Queues that the server does not serve may be
	// among the names.
	Shards map[string]int
	// StrictPriority takes tasks of a lower weight only while all queues of
	// higher weights are empty. Not together with Shards of these queues: asynq would
	// empty one shard after the other.
	StrictPriority bool
	// Concurrency is how many tasks run at once, 1 to 10000. Defaults to 20.
	Concurrency int
	// NoDoorbell leaves an idle server to polling. Without it the server waits on a
	// connection more for word of a new task, from a [Client], from a connection made by
	// [Ringing], or from another server.
	NoDoorbell bool
	// PollInterval is how often an idle server looks for tasks of which there was no
	// word, such as those of a plain asynq client, and defaults to 1 s. Without a doorbell it is how
	// often it looks for any task, half to one and a half of it, at random, and defaults to
	// 10 ms. 1 ms or more.
	PollInterval time.Duration
	// TimerInterval is how often delayed tasks, and those that are tried again, are looked at
	// for timers that have run out, 10 ms or more. Defaults to 0.5 s.
	TimerInterval time.Duration
	// ShutdownTimeout is how long running tasks may take to finish once
	// Shutdown is called; then their contexts end and they are put back.
	// Defaults to 8 s.
	ShutdownTimeout time.Duration
	// Lock configures the locks that guard tasks, on the Redis of the tasks.
	Lock lock.Config
	// Locker, if set, takes the locks instead, wherever its Store has them; see
	// [GuardConfig]. The server does
	// not close it; close it after Shutdown.
	Locker *lock.Locker
	// Resources names, per task type, the resource of tasks that name none
	// themselves, such as those of a plain asynq client.
	Resources map[string]ResourceFunc
	// Recovery says what becomes of guarded tasks whose worker died.
	Recovery Recovery
	// Handler, if set, runs the tasks of kinds for which [Handle] has registered nothing, such as
	// your asynq.ServeMux with its middleware. It runs those under the lock of their resource that
	// have one by their header, or by Resources.
	Handler asynq.Handler
	// Asynq has further settings for asynq's server, such as its ErrorHandler, RetryDelayFunc,
	// IsFailure, BaseContext and groups. A waiting task is no failure to them. A setting for which
	// ServerConfig has a field must be zero in it.
	Asynq asynq.Config
	// Available, if set, says why what the tasks need is not there, such as the database that
	// they write to, nil when it is. It is asked by [Server.Ready], and every second while no
	// tasks are taken, see [Unavailable]. Its context ends after 5 s at most.
	Available func(context.Context) error
	// Observe, if set, is told what happens to guarded tasks. It is called on
	// the path of the task: it must be quick and safe for concurrent use.
	Observe func(Event)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

func (c ServerConfig) withDefaults() ServerConfig {
	if len(c.Queues) == 0 {
		c.Queues = map[string]int{"default": 1}
	}
	c.Concurrency = cmp.Or(c.Concurrency, 20)
	if c.NoDoorbell {
		c.PollInterval = cmp.Or(c.PollInterval, sleepInterval)
	}
	c.PollInterval = cmp.Or(c.PollInterval, defaultPoll)
	c.TimerInterval = cmp.Or(c.TimerInterval, 500*time.Millisecond)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 8*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate returns an error that names the first field that cannot work. Zero
// fields stand for their defaults.
func (c ServerConfig) Validate() error {
	c = c.withDefaults()
	for name, weight := range c.Queues {
		if badName(name, maxName) {
			return fmt.Errorf("queue: queues: want names of %s, have %q", wantName(maxName), clip(name))
		}
		if weight < 1 {
			return fmt.Errorf("queue: queues: %s: want a weight of 1 or more, have %d", name, weight)
		}
	}
	if err := checkShards(c.Queues, c.Shards); err != nil {
		return err
	}
	if c.StrictPriority && len(shardQueues(c.Queues, c.Shards)) > len(c.Queues) {
		return errors.New("queue: shards: want no strict priority with them, as one shard would go before the other")
	}
	if c.Concurrency < 1 || c.Concurrency > 10000 {
		return fmt.Errorf("queue: concurrency: want 1 to 10000, have %d", c.Concurrency)
	}
	for _, d := range []struct {
		name        string
		have, least time.Duration
	}{
		{"poll interval", c.PollInterval, leastPoll},
		{"timer interval", c.TimerInterval, 10 * time.Millisecond},
		{"shutdown timeout", c.ShutdownTimeout, time.Millisecond},
	} {
		if d.have < d.least {
			return fmt.Errorf("queue: %s: want %v or more, have %v", d.name, d.least, d.have)
		}
	}
	return errors.Join(checkLocks(c.Lock, c.Locker), checkAsynq(c.Asynq))
}

// A Server runs tasks. Register handlers with [Handle], then Start, then Shutdown.
type Server struct {
	cfg    ServerConfig
	server *asynq.Server
	guard  *Guard
	tasks  redis.UniversalClient // the server's connections, with the guard's hook
	locks  redis.UniversalClient
	probed string // what Ready takes the lock of
	mu     sync.Mutex
	routes map[string]route // by kind; fixed once started
	state  serverState
}

type serverState int

const (
	stateNew serverState = iota
	stateRunning
	stateClosed
)

// A route decodes a payload and runs its handler.
type route func(ctx context.Context, payload []byte) error

// NewServer checks the configuration; it does not connect yet. The server makes its
// own clients from opts by [Redis], one for asynq, one for the locks and its other calls, and one
// for the doorbell, and closes them on Shutdown.
func NewServer(opts *redis.UniversalOptions, cfg ServerConfig) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	o := *opts // the doorbell's client is made later
	s := &Server{cfg: cfg, routes: make(map[string]route), locks: newClient(o, cfg.Concurrency), probed: "siding-probe:" + uuid.NewString()}
	var err error
	s.guard, err = NewGuard(s.locks, GuardConfig{
		Lock: cfg.Lock, Locker: cfg.Locker, Resources: cfg.Resources, Recovery: cfg.Recovery, NoDoorbell: cfg.NoDoorbell,
		Available: cfg.Available, Observe: cfg.Observe, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, s.locks.Close())
	}
	s.guard.connectBell(func() (redis.UniversalClient, bool) {
		// In a Cluster it waits for each queue on a connection of its own, which may all be to one node.
		bell := o
		bell.PoolSize, bell.MaxActiveConns = len(shardQueues(cfg.Queues, cfg.Shards))+1, 0
		return newClient(bell, 0), true
	})
	s.tasks = s.guard.hooked(newClient(o, cfg.Concurrency))
	s.server = asynq.NewServerFromRedisClient(s.tasks, s.guard.Wrap(s.asynqConfig()))
	return s, nil
}

// newClient returns a client on which every running task may be in a call at once,
// besides the few of asynq's own roles.
func newClient(o redis.UniversalOptions, concurrency int) redis.UniversalClient {
	if o.PoolSize == 0 {
		o.PoolSize = concurrency + 10
	}
	return Redis(&o)
}

// Handle registers fn for the tasks of type T. It panics when T's kind is
// empty or has a handler already, and when the server has been started. A
// payload that does not decode into T, or that T's Validate refuses, archives
// its task at once.
//
// If T is [Guarded] then fn runs under the lock of the resource that its payload names, also where
// the task was enqueued by a plain asynq client, or its payload was changed since.
func Handle[T Task](s *Server, fn func(context.Context, T) error) {
	var zero T
	kind := zero.Kind()
	s.handle(kind, func(ctx context.Context, payload []byte) error {
		var t T
		if err := json.Unmarshal(payload, &t); err != nil {
			if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
				e.Value, _, _ = strings.Cut(e.Value, " ") // the number itself, which would be logged
			}
			return Permanent(fmt.Errorf("%s: payload: %w", kind, err))
		}
		if v, ok := any(t).(Validator); ok {
			if err := v.Validate(); err != nil {
				return Permanent(err)
			}
		}
		if g, ok := any(t).(Guarded); ok {
			resource := g.Resource()
			if err := checkResource(kind, resource); err != nil {
				return Permanent(err)
			}
			if resource != InfoFrom(ctx).Resource {
				return &otherResourceError{kind, resource}
			}
		}
		return fn(ctx, t)
	})
}

func (s *Server) handle(kind string, r route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case kind == "":
		panic("queue: Handle: a task's kind is empty")
	case s.state != stateNew:
		panic("queue: Handle: " + kind + ": the server has been started")
	case s.routes[kind] != nil:
		panic("queue: Handle: " + kind + " has a handler already")
	}
	s.routes[kind] = r
}

// dispatch runs the handler of a task.
func (s *Server) dispatch(ctx context.Context, t *asynq.Task) error {
	r, ok := s.routes[t.Type()]
	switch {
	case !ok && s.cfg.Handler != nil:
		r = func(ctx context.Context, _ []byte) error { return s.cfg.Handler.ProcessTask(ctx, t) }
	case !ok:
		// Not Permanent: in a rolling upgrade a newer worker may know it.
		return fmt.Errorf("queue: no handler for %q; this server has %s", t.Type(), strings.Join(s.kinds(), ", "))
	}
	if InfoFrom(ctx).ID == "" { // unguarded
		ctx = WithInfo(ctx, infoOf(ctx, t))
	}
	start := time.Now()
	err := r(ctx, t.Payload())
	if err == nil && s.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		info := InfoFrom(ctx)
		s.cfg.Logger.DebugContext(ctx, "task done", "task_id", info.ID, "task_type", info.Kind, "queue", info.Queue, "resource", info.Resource, "took", time.Since(start))
	}
	return err
}

// logFailure is the one place that logs a task's own failure.
func (s *Server) logFailure(ctx context.Context, t *asynq.Task, err error) {
	info := infoOf(ctx, t)
	log := s.cfg.Logger.With("task_id", info.ID, "task_type", info.Kind, "queue", info.Queue, "retried", info.Retried, "error", err)
	if info.Retried >= info.Retries || errors.Is(err, asynq.SkipRetry) {
		log.ErrorContext(ctx, "task archived")
		return
	}
	log.InfoContext(ctx, "task failed and will be tried again")
}

func (s *Server) kinds() []string {
	kinds := make([]string, 0, len(s.routes))
	for kind := range s.routes {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

// Start asks Redis whether it gives tasks, as [Server.Ready] does, and begins to take them. It
// starts nothing where Redis does not; whether locks can be had it does not ask.
func (s *Server) Start(ctx context.Context) error {
	if err := s.probe(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateNew {
		return errors.New("queue: the server was started before")
	}
	handler := s.guard.Middleware(asynq.HandlerFunc(s.dispatch))
	if err := s.server.Start(handler); err != nil {
		return fmt.Errorf("queue: start: %w", err)
	}
	s.state = stateRunning
	return nil
}

// Locker returns what the server takes its locks with, see [Guard.Locker].
func (s *Server) Locker() *lock.Locker { return s.guard.Locker() }

// Shutdown stops taking tasks, waits for the running ones and for their locks to
// be released, and closes the connections. Tasks that are not done after
// ShutdownTimeout are put back for other servers; their handlers, whose contexts
// have ended, are still waited for. ctx is the hard limit: when it ends, Shutdown
// returns its error at once and leaves the rest to the locks' expiry and
// asynq's recovery; the process should then end. A second call does nothing.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	was := s.state
	s.state = stateClosed
	s.mu.Unlock()
	if was == stateClosed {
		return nil
	}
	s.guard.stopTaking() // also where the hard limit leaves the rest as it is
	if was == stateRunning {
		stopped := make(chan struct{})
		go func() {
			s.server.Shutdown()
			close(stopped)
		}()
		select {
		case <-stopped:
		case <-ctx.Done():
			return fmt.Errorf("queue: shutdown: tasks are still running: %w", context.Cause(ctx))
		}
		if err := s.guard.Wait(ctx); err != nil {
			return err
		}
	}
	return errors.Join(s.locks.Close(), s.tasks.Close())
}
