package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/lock"
)

// HeaderResource is the header of a task that names its resource. A [Client] sets it; so can every
// other client of asynq's queues.
const HeaderResource = "siding-resource"

// headerPrefix begins the names of headers that are kept for Siding.
const headerPrefix = "siding-"

// maxNumber bounds numbers that are added up, or that things in memory are made for.
const maxNumber = 1_000_000

// A ResourceFunc returns the resource of a task by its payload. With an error, or an empty name,
// the task is archived: no retry can mend its payload.
type ResourceFunc func(payload []byte) (string, error)

// ServerConfig configures a [Server]. The zero value works.
type ServerConfig struct {
	// Asynq is what asynq.NewServer takes, with the same meaning in every field but these:
	//
	//   - Concurrency defaults to 20, as most tasks wait for other systems.
	//   - DelayedTaskCheckInterval is how often one server, on behalf of all, looks for new delayed and
	//     retried tasks. Those that it has seen come up in time. It defaults to 0.5 s, and more than 1 s
	//     counts as 1 s.
	//   - TaskCheckInterval has no meaning: an idle server is told of new tasks.
	//   - Logger and LogLevel have none either: Logger, below, has its own level.
	//   - Numbers and times below 0 are errors, and so is a queue of weight 0 or below. asynq leaves such a
	//     queue out, and takes its default for some of the others. Concurrency and weights are a million at most.
	//
	// Names of queues are as [Options.Queue] wants them. A task that waits for its resource is
	// no failure: ErrorHandler, IsFailure and RetryDelayFunc are not asked about it. A panic in one of
	// these functions is logged, and counts as if the function were not set.
	Asynq asynq.Config
	// Handler runs the tasks of kinds without a handler by [Handle]: your asynq.ServeMux with
	// its middleware, unchanged. A task that names a resource, by its header or by
	// Resources, runs under the lock of that resource.
	Handler asynq.Handler
	// Shards says over how many asynq queues, 1 to [MaxShards], each of these queues is spread.
	// So the masters of a Redis Cluster share the load of a queue. All clients and servers need
	// the same Shards. Tasks of one resource are in one shard. Each shard has the weight of its
	// queue. The server need not serve all of these queues. A queue with shards that it serves
	// excludes StrictPriority, as asynq would empty one shard after the other.
	Shards map[string]int

	// Lock configures the locks. All servers on the same resources need the same Prefix.
	Lock lock.Config
	// AllowOtherLocks lets the server start beside live servers of its queues whose locks have another prefix, or are in
	// another Store, although tasks of one resource may then run at once. Otherwise Start refuses with [ErrOtherLocks].
	AllowOtherLocks bool
	// Store keeps the locks elsewhere than on the Redis of the tasks. Examples are a quorum of
	// Redis nodes (lock/redlock), and etcd (lock/etcdlock). The server makes a Locker on the
	// Store, and closes the Locker; see [Server.Locker]. The caller closes the clients of the
	// Store, after [Server.Shutdown].
	//
	// All servers on the same resources need the same Store at all times. To change the Store of
	// a fleet, first stop all servers. Then reset the fences that your databases have seen, as
	// those of another Store may be smaller.
	//
	// Tasks wait on their own Redis all the same, each queue in its order. The first of a queue then
	// takes the lock from the Store. If somebody else holds it, or the Store does not answer, that task
	// comes again after about a second, or after as long again as the Store took to answer. The
	// tasks behind it wait.
	//
	// On a Store without fencing tokens [lock.Fence] is 0 in handlers. A write that checks the
	// fence then fails with [lock.ErrNoFence], which is a failure of the task's own.
	Store lock.Store
	// Resources has, by the kind of a task, the function that finds the resource in the payload.
	// The result of the function counts more than a [HeaderResource]. A kind that [Handle] runs as
	// [Guarded] tasks needs no function, and [Server.Start] refuses one. A task of another kind
	// without that header runs unguarded. If there are Resources, the server logs that once a day for each
	// such kind, unless its handler is by [Handle].
	Resources map[string]ResourceFunc
	// Limits has how many tasks may hold a resource at once, and how often one may start, by pattern:
	// a resource such as "account:42", or all that begin with some text, such as "account:*". Of several patterns that fit a
	// resource the longest counts. A resource without a Limit has one holder at a time. Operators
	// override Limits by [SetLimit]. All servers on the same resources need the same Limits: each keeps
	// to its own. With a Store the most is one holder.
	Limits map[string]Limit
	// Policies say what becomes of a task whose resource is busy, by the kind of the task. A task with
	// an [Options.Policy] has that one instead. A kind without a Policy parks. All servers on the same
	// queues need the same Policies.
	Policies map[string]Policy
	// OnMaxWait is called, in place of the handler, with a task that has waited for longer than its
	// [Policy.MaxWait]. Its arguments are like those of a handler, but no middleware of [Server.Use] runs.
	// The task is done if OnMaxWait returns nil. An error of OnMaxWait is one of the task's own, and uses
	// a retry. OnMaxWait is then called again, and also if its worker dies: the handler does not run any
	// more. Nil archives such tasks.
	OnMaxWait func(context.Context, *asynq.Task) error
	// Overrun is how long a handler may go on after its context has ended. Then the server logs
	// an error, stops renewing the lock, and uses the slot for another task. Defaults to 1 min.
	Overrun time.Duration
	// Recovery says what becomes of tasks whose worker died, or that lost their lock.
	Recovery Recovery
	// Available returns an error while something is missing that all tasks need, such as the
	// database to which they write. [Server.Ready] calls it. The server calls Available each second
	// while no tasks are taken; see [Unavailable]. The context of a call ends after 5 s; who has not
	// returned by then is asked again, until ten calls go on. Nil means that nothing is ever missing.
	Available func(context.Context) error
	// Observe is called with what happens to tasks. Tasks wait for the call, or the next events, in
	// memory: it must be quick, and safe for concurrent use. It must not wait for [Server.Shutdown],
	// which waits for it. A panic is logged. Nil means that nobody observes.
	Observe func(Event)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Recovery says what becomes of a task whose worker died, or that lost its lock.
//
// asynq would run a task of a dead worker again after a minute or more, and count a retry. Siding
// runs a guarded one again as soon as its lock has expired and a slot is free, before those that wait
// for its resource: within 25 s if the TTL of the lock is the default. That uses no retry, but Siding counts
// the task's crashes. A task without a resource uses a retry about a minute after its worker died, and runs after
// the delay of that retry (15 to 44 s at first), as with asynq.
type Recovery struct {
	// Crashes is how many crashes of a task use no retry. Each one after that uses one, and the task
	// comes again after asynq's delay. So a task that kills its worker comes to an end. Defaults to 3;
	// -1 for none.
	Crashes int
	// Losses is how many times a task runs again after its lock was lost, or after its write was
	// refused with [lock.ErrStale]. That uses no retry. The task waits a second at first, and then
	// twice as long each time, up to a minute. A further loss is a failure of the task's own. So a
	// task that can never finish comes to an end. Defaults to 10; -1 tolerates none.
	Losses int
	// NoRetriesToo has a task without retries (MaxRetry(0)), too, run again after a crash, although
	// its handler may have started. Otherwise such a task is archived.
	NoRetriesToo bool
}

func (c ServerConfig) withDefaults() ServerConfig {
	c.Overrun = cmp.Or(c.Overrun, time.Minute)
	c.Recovery.Crashes = cmp.Or(c.Recovery.Crashes, 3)
	c.Recovery.Losses = cmp.Or(c.Recovery.Losses, 10)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	a := &c.Asynq
	a.Queues = served(a.Queues)
	a.Concurrency = cmp.Or(a.Concurrency, 20)
	a.ShutdownTimeout = cmp.Or(a.ShutdownTimeout, 8*time.Second)
	return c
}

// served returns the queues that a server takes tasks from: the one that is called default unless
// there are others.
func served(queues map[string]int) map[string]int {
	if len(queues) == 0 {
		return map[string]int{"default": 1}
	}
	return maps.Clone(queues)
}

// Validate returns an error that names the first field that cannot work. Zero
// fields stand for their defaults.
func (c ServerConfig) Validate() error {
	if err := cmp.Or(c.checkQueues(), c.checkSet(), c.checkNumbers()); err != nil {
		return err
	}
	if c.Lock.Prefix == lock.NoPrefix {
		return errors.New("queue: lock: prefix: want one, as the resource of a task could name any key otherwise, have NoPrefix")
	}
	c = c.withDefaults()
	if err := checkShards(c.Asynq.Queues, c.Shards); err != nil {
		return err
	}
	for _, queue := range slices.Sorted(maps.Keys(c.Asynq.Queues)) {
		if n := c.Shards[queue]; n > 0 && c.Asynq.StrictPriority {
			return fmt.Errorf("queue: shards: %s: want none with strict priority, as one shard would go before the other, have %d", queue, n)
		}
	}
	for _, d := range []struct {
		name        string
		have, least time.Duration
	}{
		{"delayed task check interval", cmp.Or(c.Asynq.DelayedTaskCheckInterval, time.Second), 10 * time.Millisecond},
		{"shutdown timeout", c.Asynq.ShutdownTimeout, time.Millisecond},
		{"group grace period", cmp.Or(c.Asynq.GroupGracePeriod, time.Minute), time.Second},
	} {
		if d.have < d.least {
			return fmt.Errorf("queue: %s: want %v or more, have %v", d.name, d.least, d.have)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(c.Resources)) {
		if err := checkKind("resources", kind); err != nil {
			return err
		}
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

// checkQueues returns an error that names the first queue that cannot be served.
func (c ServerConfig) checkQueues() error {
	for _, name := range slices.Sorted(maps.Keys(c.Asynq.Queues)) {
		if want := wantName(name, maxName); want != "" {
			return fmt.Errorf("queue: queues: want names of %s, have %q", want, clip(name))
		}
		if weight := c.Asynq.Queues[name]; weight < 1 || weight > maxNumber {
			return fmt.Errorf("queue: queues: %s: want a weight of 1 to %d, have %d", name, maxNumber, weight)
		}
	}
	return nil
}

// checkSet returns an error that names the first field that is set to a nil pointer or a nil
// function, of which an interface does not tell that it is nil.
func (c ServerConfig) checkSet() error {
	for _, f := range []struct {
		name  string
		value any
	}{
		{"handler", c.Handler},
		{"store", c.Store},
		{"error handler", c.Asynq.ErrorHandler},
		{"group aggregator", c.Asynq.GroupAggregator},
	} {
		if f.value != nil && lockredis.None(f.value) {
			return fmt.Errorf("queue: %s: want one, or none at all, have a nil %T", f.name, f.value)
		}
	}
	return nil
}

// checkNumbers returns an error that names the first number or time that is below what it may be, or above.
func (c ServerConfig) checkNumbers() error {
	a, r := c.Asynq, c.Recovery
	for _, f := range []struct {
		name string
		low  bool
		have any
	}{
		{"concurrency", a.Concurrency < 0, a.Concurrency},
		{"health check interval", a.HealthCheckInterval < 0, a.HealthCheckInterval},
		{"group max delay", a.GroupMaxDelay < 0, a.GroupMaxDelay},
		{"group max size", a.GroupMaxSize < 0, a.GroupMaxSize},
		{"janitor interval", a.JanitorInterval < 0, a.JanitorInterval},
		{"janitor batch size", a.JanitorBatchSize < 0, a.JanitorBatchSize},
		{"overrun", c.Overrun < 0, c.Overrun},
	} {
		if f.low {
			return fmt.Errorf("queue: %s: want 0 or more, have %v", f.name, f.have)
		}
	}
	if a.Concurrency > maxNumber {
		return fmt.Errorf("queue: concurrency: want %d at most, have %d", maxNumber, a.Concurrency)
	}
	if r.Crashes < -1 {
		return fmt.Errorf("queue: recovery: crashes: want 0 or more, or -1 for none, have %d", r.Crashes)
	}
	if r.Losses < -1 {
		return fmt.Errorf("queue: recovery: losses: want 0 or more, or -1 for none, have %d", r.Losses)
	}
	return nil
}
