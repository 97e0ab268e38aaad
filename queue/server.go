package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
)

// A Server runs tasks, guarded ones under the lock of their resource. Register handlers with
// [Handle], or set one in [ServerConfig]. Then call Run; or Start and, at the end, Shutdown.
type Server struct {
	cfg        ServerConfig
	server     *asynq.Server
	other      otherServer // in place of server, see startOther
	guard      *Guard
	tasks      redis.UniversalClient // the server's connections, with the guard's hook
	locks      redis.UniversalClient
	probed     string // the resource whose lock Ready takes
	mu         sync.Mutex
	routes     map[string]asynq.HandlerFunc // by kind; fixed once started
	middleware []asynq.MiddlewareFunc       // likewise
	starting   bool                         // a Start or Run has begun, and nothing is started yet
	started    bool
	closed     bool
}

// NewServer returns a server on the Redis of opt: one of asynq's options, such as
// asynq.RedisClientOpt, or a [RedisOpt]. An error names the option or the field that cannot work.
// NewServer does not connect yet.
//
// The server makes three clients, and closes them on Shutdown. One is for asynq, one for the locks and
// other calls, and one waits for notifications of new tasks. They have the settings of clients made by
// [Redis]. The first two have a pool for all tasks at once, unless opt has a PoolSize. An opt of a
// type of your own makes the clients as it likes.
func NewServer(opt asynq.RedisConnOpt, cfg ServerConfig) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	size := func(o *RedisOpt) { // all tasks may be in a call at once, besides the few of asynq's own roles
		o.PoolSize = cmp.Or(o.PoolSize, cfg.Asynq.Concurrency+10)
	}
	locks, err := connect(opt, size)
	if err != nil {
		return nil, err
	}
	guard, err := NewGuard(locks, cfg.Guard)
	if err != nil {
		return nil, errors.Join(err, locks.Close())
	}
	tasks, err := connect(opt, size)
	if err != nil {
		return nil, errors.Join(err, locks.Close())
	}
	guard.connectNotifier(func() (redis.UniversalClient, bool) {
		client, err := connect(opt, func(o *RedisOpt) {
			// In a Cluster this client waits for each queue on a separate connection. These may all
			// be to one node.
			o.PoolSize, o.MaxActiveConns = len(shardQueues(cfg.Asynq.Queues, cfg.Shards))+1, 0
		})
		return client, err == nil
	})
	s := &Server{
		cfg: cfg, guard: guard, tasks: guard.hooked(tasks), locks: locks,
		routes: make(map[string]asynq.HandlerFunc), probed: "siding-probe:" + uuid.NewString(),
	}
	s.server = asynq.NewServerFromRedisClient(s.tasks, s.asynqConfig())
	return s, nil
}

// startOther starts a server on something else than asynq.Server, in tests; nil elsewhere.
var startOther func(ctx context.Context, s *Server, handler asynq.Handler) (otherServer, error)

type otherServer interface {
	Shutdown(ctx context.Context) error
}

// Handle registers fn as the handler of the tasks of type T. Handle panics if fn is nil, T's kind
// is empty or has a handler, or the server was started. A task whose payload does not decode into
// T, or is refused by T's Validate, is archived at once.
//
// If T is [Guarded], fn runs under the lock of the resource that the payload names. That also holds
// if a plain asynq client enqueued the task, or if its payload was changed since.
func Handle[T Task](s *Server, fn func(context.Context, T) error) {
	var zero T
	kind := zero.Kind()
	if fn == nil {
		panic("queue: Handle: " + kind + ": the handler is nil")
	}
	s.handle(kind, func(ctx context.Context, task *asynq.Task) error {
		t, err := decode[T](kind, task.Payload())
		if err != nil {
			return Permanent(err)
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
		return fn(context.WithValue(ctx, taskKey{}, task), t)
	})
	if _, ok := any(zero).(Guarded); !ok {
		return
	}
	s.guard.typed[kind] = func(payload []byte) string {
		t, err := decode[T](kind, payload)
		g, ok := any(t).(Guarded)
		if err != nil || !ok {
			return "" // the handler says what is wrong
		}
		return g.Resource()
	}
}

// decode returns the task that a payload holds, and checks it.
func decode[T Task](kind string, payload []byte) (t T, err error) {
	if err := json.Unmarshal(payload, &t); err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			e.Value, _, _ = strings.Cut(e.Value, " ") // without the number itself, which is not for logs
		}
		return t, fmt.Errorf("%s: payload: %w", kind, err)
	}
	if v, ok := any(t).(Validator); ok {
		err = v.Validate()
	}
	return t, err
}

func (s *Server) handle(kind string, r asynq.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case kind == "":
		panic("queue: Handle: a task's kind is empty")
	case s.started || s.closed:
		panic("queue: Handle: " + kind + ": the server has been started")
	case s.routes[kind] != nil:
		panic("queue: Handle: " + kind + " has a handler already")
	}
	s.routes[kind] = r
}

// Use wraps the handlers of all tasks, inside the guard, as the Use of asynq.ServeMux does: the first
// middleware is the outermost. It runs twice for a task whose payload names another resource than its
// header. Use panics if the server was started. [Server.Start] refuses a nil middleware.
func (s *Server) Use(middleware ...asynq.MiddlewareFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.closed {
		panic("queue: Use: the server has been started")
	}
	s.middleware = append(s.middleware, middleware...)
}

// dispatch runs the handler of a task.
func (s *Server) dispatch(ctx context.Context, t *asynq.Task) error {
	r, ok := s.routes[t.Type()]
	switch {
	case !ok && s.cfg.Handler != nil:
		r = s.cfg.Handler.ProcessTask
	case !ok:
		// The error is not Permanent: in a rolling upgrade a newer worker may know the kind.
		return fmt.Errorf("queue: no handler for %q; this server has %s", t.Type(), strings.Join(s.Kinds(), ", "))
	}
	if InfoFrom(ctx).ID == "" { // unguarded
		ctx = withInfo(ctx, infoOf(ctx, t))
	}
	start := time.Now()
	err := r(ctx, t)
	if err == nil && s.guard.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		info := InfoFrom(ctx)
		s.guard.cfg.Logger.DebugContext(ctx, "task done", "task_id", info.ID, "task_kind", info.Kind, "queue", info.Queue, "resource", info.Resource, "took", time.Since(start))
	}
	return err
}

// logFailure logs a task's own failure.
func (s *Server) logFailure(ctx context.Context, t *asynq.Task, err error) {
	info := infoOf(ctx, t)
	log := s.guard.cfg.Logger.With("task_id", info.ID, "task_kind", info.Kind, "queue", info.Queue, "retried", info.Retried, "error", err)
	if info.Retried >= info.Retries || errors.Is(err, asynq.SkipRetry) {
		log.ErrorContext(ctx, "task archived")
		return
	}
	log.InfoContext(ctx, "task failed and will be tried again")
}

// Kinds returns the kinds of tasks for which [Handle] has registered a handler, sorted.
func (s *Server) Kinds() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.routes))
}

// Start begins to take tasks, and returns. Start first tries a dequeue of each queue, as
// [Server.Ready] does. If Redis gives no tasks, or the server has no handler, Start starts nothing, and
// returns why. Then you may call Start again. Start does not ask for a lock. On a server that was
// started or shut down, or that another call starts just now, Start changes nothing and returns an
// error.
func (s *Server) Start(ctx context.Context) error {
	if err := s.claim(ctx); err != nil {
		return err
	}
	err := s.start(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = false
	return err
}

// claim keeps other calls from starting the server. It returns an error if one has done so before.
func (s *Server) claim(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errShutDown
	case s.started:
		return errors.New("queue: the server was started before")
	case s.starting:
		return errors.New("queue: another call starts the server just now")
	}
	s.starting = true
	return nil
}

var errShutDown = errors.New("queue: the server was shut down before: make another one")

// start starts a server that the caller has claimed.
func (s *Server) start(ctx context.Context) error {
	if err := s.probe(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // meanwhile
		return errShutDown
	}
	if i := slices.IndexFunc(s.middleware, func(wrap asynq.MiddlewareFunc) bool { return wrap == nil }); i >= 0 {
		return fmt.Errorf("queue: use: middleware %d: want a function, have nil", i+1)
	}
	if len(s.routes) == 0 && s.cfg.Handler == nil {
		return errors.New("queue: start: want a handler, have none: call Handle, or set Handler of ServerConfig")
	}
	handler := asynq.Handler(asynq.HandlerFunc(s.dispatch))
	for _, wrap := range slices.Backward(s.middleware) {
		handler = wrap(handler)
	}
	if startOther != nil {
		other, err := startOther(ctx, s, handler)
		s.other, s.started = other, err == nil
		return err
	}
	handler = s.guard.Middleware(handler)
	if err := s.server.Start(handler); err != nil {
		return fmt.Errorf("queue: start: %w", err)
	}
	s.started = true
	return nil
}

// Run starts the server, as [Server.Start] does, and drains it, as [Server.Shutdown] does, once ctx
// has ended. Unlike asynq's, Run handles no signals: make ctx by signal.NotifyContext. Run returns
// nil if all tasks have ended by then, or if somebody else has called Shutdown. Draining takes at most
// ShutdownTimeout of asynq.Config and [GuardConfig.Overrun] together; the process should then end.
// On a server that was started or shut down, or that another call starts just now, Run changes
// nothing and returns an error. If the server cannot be started otherwise, Run closes its
// connections.
func (s *Server) Run(ctx context.Context) error {
	if err := s.claim(ctx); err != nil {
		return err
	}
	err := s.start(ctx) // Shutdown ends the claim
	if err == nil {
		<-ctx.Done()
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Asynq.ShutdownTimeout+s.guard.cfg.Overrun)
	defer cancel()
	return errors.Join(err, s.Shutdown(limit))
}

// Locker returns the Locker with which the server takes its locks, see [Guard.Locker].
func (s *Server) Locker() *lock.Locker { return s.guard.Locker() }

// Shutdown stops taking tasks, waits until the running ones have ended and released their locks,
// and closes the connections. After ShutdownTimeout of asynq.Config the contexts of running tasks
// end, and other servers may take the tasks. Shutdown still waits for the handlers.
//
// When ctx ends, Shutdown returns its error at once. The locks then expire and other servers
// recover the tasks; the process should end. A second call does nothing, and waits for nothing.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	started, closed := s.started, s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.guard.stopTaking() // also if ctx ends before the rest
	if !started {
		ctx = context.WithoutCancel(ctx) // no task runs, and the rest takes no time
	} else if s.other != nil {
		if err := s.other.Shutdown(ctx); err != nil {
			return fmt.Errorf("queue: shutdown: tasks are still running: %w", err)
		}
	} else if err := until(ctx, s.server.Shutdown); err != nil {
		return fmt.Errorf("queue: shutdown: tasks are still running: %w", err)
	}
	if err := s.guard.Wait(ctx); err != nil {
		return err
	}
	return errors.Join(s.locks.Close(), s.tasks.Close())
}
