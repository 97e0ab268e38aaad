package queue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/fastpath"
	"github.com/sidingq/siding/internal/fetch"
	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/limits"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// HeaderResource is the header of a task that names its resource. A [Client] sets it; so can every
// other client of asynq's queues.
const HeaderResource = "siding-resource"

// headerPrefix begins the names of headers that are kept for Siding.
const headerPrefix = "siding-"

// A ResourceFunc returns the resource of a task by its payload. With an error, or an empty name,
// the task is archived: no retry can mend its payload.
type ResourceFunc func(payload []byte) (string, error)

// GuardConfig configures a [Guard], alone or in a [Server]. The zero value works.
type GuardConfig struct {
	// Lock configures the locks. All guards on the same resources need the same Prefix.
	Lock lock.Config
	// Store keeps the locks elsewhere than on the Redis of the tasks. Examples are a quorum of
	// Redis nodes (lock/redlock), and etcd (lock/etcdlock). The guard makes a Locker on the
	// Store, and closes the Locker; see [Guard.Locker]. The caller closes the clients of the
	// Store, after [Server.Shutdown] or [Guard.Wait].
	//
	// All guards on the same resources need the same Store at all times. To change the Store of
	// a fleet, first stop all servers. Then reset the fences that your databases have seen, as
	// those of another Store may be smaller.
	//
	// Tasks wait on their own Redis all the same, for locks with "wait:" before the Prefix. The
	// first task then takes the lock from the Store, in two round trips. Somebody who is no task
	// may hold that lock, or the Store may not answer. The first task then comes again after about
	// a second, or after as long again as the Store took to answer. The tasks behind the first
	// wait.
	//
	// On a Store without fencing tokens [lock.Fence] is 0 in handlers. A write that checks the
	// fence then fails with [lock.ErrNoFence], which is a failure of the task's own.
	Store lock.Store
	// Resources has, by the kind of a task, the function that finds the resource in the payload.
	// The result of the function counts more than a [HeaderResource]. A task of another kind
	// without that header runs unguarded. The guard logs that once a day for each such kind.
	Resources map[string]ResourceFunc
	// Limits has how many tasks may hold a resource at once, and how often one may start, by pattern:
	// a resource such as "account:42", or a class such as "account:*". Of several patterns that fit a
	// resource the longest counts. A resource without a Limit has one holder at a time. Operators
	// override Limits by [SetLimit]. All guards on the same resources need the same Limits: each keeps
	// to its own. With a Store the most is one holder.
	Limits map[string]Limit
	// Policies say what becomes of a task whose resource is busy, by the kind of the task. A task with
	// an [Options.Policy] has that one instead. A kind without a Policy parks. All guards on the same
	// queues need the same Policies.
	Policies map[string]Policy
	// OnMaxWait is called, in place of the handler, with a task that has waited for longer than its
	// [Policy.MaxWait]. The task holds no lock then. It is done if OnMaxWait returns nil. An error of
	// OnMaxWait is one of the task's own, and uses a retry. OnMaxWait is then called again, and also if
	// its worker dies: the handler does not run any more. Nil archives such tasks.
	OnMaxWait func(context.Context, *asynq.Task) error
	// Overrun is how long a handler may go on after its context has ended. Then the guard logs
	// an error and stops renewing the lock. Defaults to 1 min.
	Overrun time.Duration
	// Recovery says what becomes of tasks whose worker died, or that lost their lock.
	Recovery Recovery
	// NoNotifier has idle servers poll every TaskCheckInterval of asynq.Config. Otherwise idle
	// servers wait for a notification of a new task. That takes one more connection, and in a
	// Cluster one for each queue. A [Client], a connection by [NotifyingConn] and other servers
	// notify. TaskCheckInterval is then how often idle servers look for the tasks of others, such
	// as plain asynq clients.
	NoNotifier bool
	// Available returns an error while something is missing that all tasks need, such as the
	// database to which they write. [Server.Ready] calls it. The guard calls Available each second
	// while no tasks are taken; see [Unavailable]. The context of a call ends after 5 s. Nil means
	// that nothing is ever missing.
	Available func(context.Context) error
	// Observe is called with what happens to tasks. Tasks wait for the call: it must be
	// quick, and safe for concurrent use. Nil means that nobody observes.
	Observe func(Event)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

func (c GuardConfig) withDefaults() GuardConfig {
	c.Overrun = cmp.Or(c.Overrun, time.Minute)
	c.Recovery.Crashes = cmp.Or(c.Recovery.Crashes, 3)
	c.Recovery.Losses = cmp.Or(c.Recovery.Losses, 10)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	return c
}

// validate returns an error that names the first field that cannot work.
func (c GuardConfig) validate() error {
	if c.Overrun < 0 {
		return fmt.Errorf("queue: overrun: want 0 or more, have %v", c.Overrun)
	}
	for _, kind := range slices.Sorted(maps.Keys(c.Resources)) {
		if c.Resources[kind] == nil {
			return fmt.Errorf("queue: resources: %s: want a function, have nil", kind)
		}
	}
	if err := c.checkPolicies(); err != nil {
		return err
	}
	rules, err := rulesOf(c.Limits)
	if err != nil {
		return err
	}
	for _, pattern := range slices.Sorted(maps.Keys(rules)) {
		if n := rules[pattern].Limit; n > 1 && c.Store != nil {
			return fmt.Errorf("queue: limits: %s: want one holder with a store of another kind, have %d", pattern, n)
		}
	}
	return c.Lock.Validate()
}

// A Guard holds the lock of a task's resource while its handler runs, for an asynq.Server that
// stays your own. The server needs all three parts of one guard: [Guard.Conn] on its connection,
// [Guard.Wrap] on its configuration, and [Guard.Middleware] on its handler. A [Server] has them by
// itself.
//
// If Conn or Wrap is missing, or is another guard's, no guarded task runs. The log names what is
// missing. No retry is used, and nothing is archived unless a task's own time is over. If Middleware
// is missing, the first tasks run unguarded, as many as the server runs at once. When a guarded one of
// them is done, no more are taken, and an error is logged.
//
// A server without a guard on the same queues runs guarded tasks without their locks. One of the
// guarded servers logs a warning that names it within 20 s. [CheckRedis] reports it, too.
//
// The guard knows asynq v0.26.0. The version in the program's build information tells any other
// release, and so does the first script that the guard does not know. The guard then logs one
// error. A task that has to wait is still parked, uses no retry and is not archived. Tasks are then
// not queued, and come again after 1 to 1.5 s. Servers poll every 10 ms. Tasks whose worker died
// are left to asynq.
type Guard struct {
	cfg    GuardConfig
	locks  *lease.Client // on the Redis of the tasks, where they wait
	locker *lock.Locker  // for handlers
	voting *lock.Locker  // on the same Redis, for elections
	// deciding takes the locks under which handlers run: locks, or on [GuardConfig.Store] after those
	// of locks.
	deciding  *lease.Client
	path      path
	limits    atomic.Pointer[limits.Table]
	following sync.Once // begins to read the overrides of limits
	rdb       redis.Scripter
	hook      *hook.Hook
	typed     map[string]func([]byte) string // by kind: the resource of a task without a header, see Handle
	notifier  *fetch.Notifier
	wrapped   atomic.Bool // Wrap was called
	redisRing atomic.Bool // a connection was a redis.Ring's
	self      string

	// work counts what Wait waits for: handlers that hold a lock, and all background work.
	work      sync.WaitGroup
	elections elections
	// watchEvery is how often watch looks for unguarded servers; more often in tests.
	watchEvery time.Duration
	// missing is why no tasks are taken, see Unavailable; nil if they are.
	missing atomic.Pointer[error]
	// background is the context of background work, until Wait ends it.
	background     context.Context //nolint:containedctx // see above
	end            context.CancelFunc
	faults         logEvery
	unguardedKinds logEvery // of noteUnguarded
}

// NewGuard returns a guard for asynq servers of your own. The client rdb must reach the Redis of the
// tasks. The guard does not close rdb. Make rdb by [Redis], or set ContextTimeoutEnabled on it, so
// that calls to a Redis that hangs end in time. Call [Guard.Wait] when its servers have stopped.
func NewGuard(rdb redis.Scripter, cfg GuardConfig) (*Guard, error) {
	if err := checkClient(rdb); err != nil {
		return nil, err
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	g := &Guard{
		cfg: cfg, rdb: rdb, self: fmt.Sprintf("%s (pid %d)", host, os.Getpid()), watchEvery: watchEvery,
		typed: make(map[string]func([]byte) string), unguardedKinds: logEvery{interval: 24 * time.Hour},
	}
	rules, err := rulesOf(cfg.Limits)
	if err != nil {
		return nil, err
	}
	g.limits.Store(limits.New(rules))
	if err := g.makeLocks(); err != nil {
		return nil, err
	}
	g.background, g.end = context.WithCancel(context.Background())
	g.hook = hook.NewHook(cfg.Logger, g.started)
	g.hook.CheckFirst(g.check, g.guards)
	g.hook.Tolerate(func(t asynqredis.Orphan) bool { return g.recoverable(t) != "" })
	g.hook.Prefetch(rdb)
	g.notifier = fetch.NewNotifier(cfg.Logger, g.requeuePrefetched)
	g.path = stepwisePath{}
	if oneStep(rdb) {
		g.lockInDequeue()
		g.path = fastPath{}
	}
	if cfg.Store != nil {
		g.path = externalPath{g.path}
	}
	return g, nil
}

// externalPrefix comes before the prefix of the locks for which tasks wait on their own Redis while the
// locks themselves are in a [GuardConfig.Store].
const externalPrefix = "wait:"

// makeLocks makes what takes locks. With a [GuardConfig.Store], tasks wait for locks of other names on
// their own Redis.
func (g *Guard) makeLocks() error {
	tasks := redisstore.New(g.rdb)
	if oneStep(g.rdb) {
		tasks = redisstore.Waking(g.rdb, fastpath.Wake())
	}
	tasks = redisstore.WithRules(tasks, g.ruleOf)
	deciding, waiting := g.cfg.Store, lease.Config(g.cfg.Lock).Defaults()
	if deciding == nil {
		deciding = tasks
	} else {
		waiting.Prefix = externalPrefix + waiting.Prefix
	}
	var errs [4]error
	g.locks, errs[0] = lease.New(tasks, waiting)
	g.deciding = g.locks
	if g.cfg.Store != nil {
		g.deciding, errs[1] = lease.New(deciding, lease.Config(g.cfg.Lock))
	}
	g.locker, errs[2] = lock.New(deciding, g.cfg.Lock)
	g.voting, errs[3] = lock.New(lock.Redis(g.rdb), lock.Config{Prefix: waiting.Prefix, TTL: min(waiting.TTL, electionTTL)})
	if err := cmp.Or(errs[:]...); err != nil {
		return err
	}
	g.locks.WakeBy(func(r *store.Reservation) { g.wake(g.background, r) })
	return nil
}

// Locker returns the Locker of the guard, for a handler that needs a second lock. A handler that
// takes the lock of its own task's resource gets it again at once with [lock.Options.Reentrant].
// Without, it gets [lock.ErrReentry], which is a failure of the task's own. With a Locker of its own
// the handler would wait for itself. [Guard.Wait] and [Server.Shutdown] close the Locker.
func (g *Guard) Locker() *lock.Locker {
	return g.locker
}

// stopTaking ends the background work of the guard, requeues prefetched tasks and wakes the
// servers.
func (g *Guard) stopTaking() {
	g.elections.mu.Lock() // this process becomes no candidate from now on
	g.end()
	g.elections.mu.Unlock()
	g.notifier.Close()
}

// Wait returns when no handler holds a lock any more, or when ctx ends, with an error. Wait ends
// the background work of the guard, and closes its Locker. Call Wait once all servers of the guard
// have been shut down, and before you close the client of Redis. asynq itself does not wait for
// handlers whose time is over.
func (g *Guard) Wait(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	err := until(ctx, func() {
		g.stopTaking()
		g.work.Wait()
		g.locker.Close()
		g.locks.Close()
		g.deciding.Close()
		g.voting.Close()
	})
	if err != nil {
		return fmt.Errorf("queue: handlers still hold their locks: %w", err)
	}
	return nil
}

// until calls f, and returns nil once f has returned, or why ctx has ended before.
func until(ctx context.Context, f func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
