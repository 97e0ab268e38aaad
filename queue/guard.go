package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/lock"
)

// HeaderResource is the task header that names the resource. [Client] sets it.
const HeaderResource = "siding-resource"

// A ResourceFunc names the resource of a task from its payload. An error, and an
// empty name, archive the task: no retry can mend its payload.
type ResourceFunc func(payload []byte) (string, error)

// GuardConfig configures a [Guard]. The zero value works.
type GuardConfig struct {
	// Lock configures the locks, on the Redis of the tasks. All guards on the same
	// resources need the same prefix.
	Lock lock.Config
	// Locker, if set, takes the locks instead, wherever its Store has them, such as on a
	// quorum of Redis nodes or in etcd; Lock must then be zero. All guards on the same
	// resources need the same locks, also while a fleet changes from one to the other: stop
	// all servers first, and reset the fences that written-to systems have seen, as those of
	// another store may be smaller. The guard does not close it; close it after [Guard.Wait].
	//
	// Tasks wait in line on their own Redis, as ever, for locks of names of their own there
	// ("wait:" and the Locker's prefix). The task whose turn it is takes the lock from the
	// Locker, which costs two round trips to its Store, and hands its turn on when it is done.
	// While somebody who is no task holds the lock, or the Store does not answer, the first in
	// line comes again after about a second, or after as long again as the Store took to
	// answer; those behind it wait.
	//
	// On a Store without fencing tokens [lock.Fence] is 0 in handlers. A write that
	// checks it then fails with [lock.ErrNoFence], which is a failure of the task's own.
	Locker *lock.Locker
	// Resources names, per task type, the resource of tasks from their payload, also where they
	// carry a [HeaderResource]. Tasks of other types, such as those of a plain asynq client, run
	// unguarded if they do not.
	Resources map[string]ResourceFunc
	// Overrun is how long a handler may go on after its context has ended
	// before it is reported and its lock no longer renewed. Defaults to 1 min.
	Overrun time.Duration
	// Recovery says what becomes of tasks whose worker died.
	Recovery Recovery
	// NoDoorbell leaves idle servers to asynq's polling. Without it they wait on a
	// connection more for word of a new task.
	NoDoorbell bool
	// PollInterval is how often idle servers with a doorbell look for tasks of which there
	// was no word, such as those of a plain asynq client, 1 ms or more. Defaults to the
	// TaskCheckInterval of the configuration that the guard wraps, or 1 s.
	PollInterval time.Duration
	// Available, if set, says why what the tasks need is not there, such as the database that
	// they write to, nil when it is. See [Unavailable]: while no tasks are taken it is asked every second, with a
	// context of at most 5 s.
	Available func(context.Context) error
	// Observe, if set, is told what happens to guarded tasks. It is called on
	// the path of the task: it must be quick and safe for concurrent use.
	Observe func(Event)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// A Guard holds the lock of a task's resource while its handler runs. It is
// made of three parts that work together, all of which an asynq.Server needs:
// [Guard.Conn] on its connection, [Guard.Wrap] on its configuration, and
// [Guard.Middleware] on its handler. Where Conn or Wrap is missing, or is another guard's, no
// guarded task is run, and an error is logged that names what is missing; nothing is charged or
// archived, unless a task's own time is over. Where Middleware is missing, the first tasks run
// unguarded, as many as the server runs at once; once a guarded one is done, no more are taken, and
// an error is logged. A [Server] is wired rightly by itself.
//
// A server without a guard on the same queues runs guarded tasks without their locks. One of the
// guarded servers logs a warning that names it within 20 s; [CheckRedis] reports it, too.
//
// The guard knows asynq v0.26.0. With any other release, which it tells by the version that the
// program was built with, and by the first script that it does not know, it logs one error and
// changes no call of asynq's but one: a task that is to wait is put aside, and never charged or
// archived for it. Tasks then stand in no line, and come again after 1 to 1.5 s; servers poll every
// 10 ms; and tasks whose worker died are left to asynq.
type Guard struct {
	cfg    GuardConfig
	locker *lock.Locker // on the Redis of the tasks: whose turn it is
	voting *lock.Locker // on the same Redis, for elections
	// elsewhere, if not nil, takes the locks that count, for those whose turn it is.
	elsewhere *lock.Locker
	rdb       redis.Scripter
	hook      *asynqredis.Hook
	bell      *asynqredis.Doorbell
	wrapped   atomic.Bool // Wrap was called
	ring      atomic.Bool // a connection was a Ring's
	self      string

	// work counts handlers that still hold a lock, and calls under way.
	work      sync.WaitGroup
	elections elections
	// watchEvery is how often watch looks; more often in tests.
	watchEvery time.Duration
	// missing, if not nil, is why no tasks are taken, see Unavailable.
	missing atomic.Pointer[error]
	// background is the context of what nobody waits for but Wait, which ends it.
	background context.Context //nolint:containedctx // see above
	end        context.CancelFunc
	faults     logEvery
}

// NewGuard returns a guard that keeps its locks on rdb, unless it is given a Locker. rdb
// must reach the Redis that the tasks are in; the guard does not close it. Make it with
// [Redis], or set ContextTimeoutEnabled on it, so that calls to a Redis that hangs end in
// time.
func NewGuard(rdb redis.Scripter, cfg GuardConfig) (*Guard, error) {
	if isRing(rdb) {
		return nil, errRing
	}
	if cfg.Overrun < 0 {
		return nil, fmt.Errorf("queue: overrun: want more than 0, have %v", cfg.Overrun)
	}
	if cfg.PollInterval != 0 && cfg.PollInterval < leastPoll {
		return nil, fmt.Errorf("queue: poll interval: want %v or more, have %v", leastPoll, cfg.PollInterval)
	}
	cfg.Overrun = cmp.Or(cfg.Overrun, time.Minute)
	cfg.Recovery = cfg.Recovery.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Event) {}
	}
	locker, err := lockerOf(rdb, cfg.Lock, cfg.Locker)
	if err != nil {
		return nil, err
	}
	voting, err := electionLocker(rdb, locker.Config())
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	g := &Guard{
		cfg:       cfg,
		locker:    locker,
		voting:    voting,
		elsewhere: cfg.Locker,
		rdb:       rdb,
		self:      fmt.Sprintf("%s (pid %d)", host, os.Getpid()),

		watchEvery: watchEvery,
	}
	g.background, g.end = context.WithCancel(context.Background())
	g.hook = asynqredis.NewHook(cfg.Logger, g.begun)
	g.hook.CheckFirst(g.check, g.guards)
	g.hook.Spare(func(t asynqredis.SilentTask) bool { return g.spared(t) != "" })
	g.hook.Prefetch(rdb, g.putBackPrefetched)
	g.bell = asynqredis.NewDoorbell(cfg.Logger)
	if _, cluster := rdb.(*redis.ClusterClient); !cluster {
		g.hook.TakeAhead(asynqredis.Ahead{
			Source: redisstore.Ahead(), Args: locker.Ahead(), Release: redisstore.Release(asynqredis.Summon()), Host: g.self,
			Unused:   func(grant lock.Grant) { g.giveBack(g.background, grant) },
			Fallback: fallback, Spread: fallbackSpread, Refused: g.refusedAhead,
		})
	}
	return g, nil
}

// checkLocks returns an error where there is a Locker as well as what to make one of.
func checkLocks(cfg lock.Config, given *lock.Locker) error {
	if given == nil {
		return cfg.Validate()
	}
	if cfg != (lock.Config{}) {
		return errors.New("queue: lock and locker: want one of them, as a locker has a configuration of its own")
	}
	return nil
}

// lockerOf returns the Locker on the Redis of the tasks. Beside a given one it takes locks of
// names of its own, by which tasks wait in line for those of the given one.
func lockerOf(rdb redis.Scripter, cfg lock.Config, given *lock.Locker) (*lock.Locker, error) {
	if err := checkLocks(cfg, given); err != nil {
		return nil, err
	}
	if given != nil {
		cfg = given.Config()
		cfg.Prefix = "wait:" + cfg.Prefix
	}
	return lock.New(redisstore.Calling(rdb, asynqredis.Summon()), cfg)
}

// begun is told when the server takes its first task.
func (g *Guard) begun() {
	g.elections.begin(func(queues []string) { g.lookAfter(g.background, queues) })
}

// holderOf is how a task is called while it holds a lock.
func holderOf(kind, id string) string { return kind + " " + id + " on " }

// shownInPart is the least length of a holder that a lock may show in part only: it
// keeps 200 bytes, less what would be a part of a character.
const shownInPart = 197

// isHolder reports whether holder, as a lock shows it, is that task.
func isHolder(kind, id, holder string) bool {
	name := holderOf(kind, id)
	return strings.HasPrefix(holder, name) || len(holder) >= shownInPart && strings.HasPrefix(name, holder)
}

// Locker returns what the guard takes its locks with. A handler that takes the lock of its
// own task's resource with it, and says [lock.Options.Reentrant], gets it again at once; if it
// does not say so it gets [lock.ErrReentry], which is a failure of the task's own. With a
// Locker of its own it would wait for itself.
func (g *Guard) Locker() *lock.Locker {
	if g.elsewhere != nil {
		return g.elsewhere
	}
	return g.locker
}
