package engine

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
)

// A Handler runs a task. The context ends with the task's timeout, its deadline, its cancellation, the loss of its
// lock, and the end of the server. It calls [Task.Begin] just before what the user has registered.
type Handler func(ctx context.Context, t *Task) error

// A Task is an attempt as its handler sees it.
type Task struct {
	*Message
	Taken *taskredis.Taken

	Resource string    // whose lock the attempt has; "" for none
	Began    time.Time // when the handler was called
	EndsBy   time.Time // when its context ends by itself
	// WaitOver says that the task has waited for longer than it may. The Handler says what becomes of it. A step that finds
	// this out gives the task no lock. A Handler that has the lock, and finds it out, sets WaitOver. It stays set when the task
	// comes again.
	WaitOver bool
	// Acquired and Fence are set by the Handler, for Settled: whether the task's own code was called under a lock, and the
	// fence of that lock.
	Acquired bool
	Fence    int64

	loop    *loop
	attempt *attempt
	batch   *Batch
	trace   atomic.Pointer[string]
}

// SetTrace says which traceparent the next holder of the lock learns, by [taskredis.Taken.FreedBy].
func (t *Task) SetTrace(traceparent string) { t.trace.Store(&traceparent) }

// A Need is what a task needs before its handler may be called.
type Need struct {
	Resource string // whose lock it needs, "" for none
	Priority int    // its head start among those who wait for that, 0 to 9
	Policy   taskredis.Policy
}

// A Refusal says why a task is not to wait for its lock, as its policy has it.
type Refusal struct {
	Holder    string // what the lock holds
	Waiting   int    // how many wait for it, if those are too many; else 0
	Coalesced string // the id of an equal task that waits; "" if there is none
}

// OnFailure says what becomes of those behind a guarded task in its line when the task is to be tried again, or is archived.
type OnFailure int

// What becomes of them.
const (
	Overtake OnFailure = iota // they go on
	Hold                      // they wait for its retries, and go on once it is archived
	Stop                      // they wait, also once it is archived, until an operator sets the line going
)

// A Config configures a [Server]. The fields of asynq.Config have their meaning there.
type Config struct {
	Redis       redis.UniversalClient
	Queues      map[string]int // priorities; at least one
	Strict      bool
	Concurrency int
	Cluster     bool // Redis is a Cluster: a step reaches one queue

	Prefix       string        // of locks' keys
	TTL          time.Duration // of locks
	RenewEvery   time.Duration // at most mostRenewEvery
	Handoff      time.Duration // for how long a lock is reserved for a goroutine
	SafetyMargin time.Duration
	FenceTTL     time.Duration // how long a fencing token is kept after the last renewal

	// Need says what a task needs, and is told with the lock of which resource the task came, "" for none. With an error the task is
	// archived. Nil has it run under the locks with which the step began it: none if it is to ask for them.
	Need    func(m *taskredis.Message, came string) (Need, error)
	Handler Handler
	// Refused returns the error of a task that is not to wait for its lock.
	Refused func(ctx context.Context, t *Task, r Refusal) error
	// Lost says what it means that a task has lost its lock, if that is found once its handler has returned.
	Lost        func(ctx context.Context, t *Task) *LostError
	PolicyKinds []string // kinds of tasks that have a policy, whatever their client wrote
	// OnFailure says what becomes of the line of a task that has failed; nil for Overtake.
	OnFailure func(m *taskredis.Message) OnFailure

	BaseContext     func() context.Context
	IsFailure       func(error) bool
	RetryDelay      asynq.RetryDelayFunc
	OnError         func(ctx context.Context, t *Task, err error)
	ShutdownTimeout time.Duration

	HealthCheck         func(error)
	HealthCheckInterval time.Duration

	DelayedTaskCheckInterval time.Duration
	JanitorInterval          time.Duration
	JanitorBatchSize         int

	GroupAggregator  asynq.GroupAggregator
	GroupGracePeriod time.Duration
	GroupMaxDelay    time.Duration
	GroupMaxSize     int

	Overrun      time.Duration // for which a handler may go on after its context has ended
	Crashes      int           // that use no retry
	NoRetriesToo bool          // a crash of a task without retries uses none either
	Losses       int           // of locks, that use no retry

	// The four below are told things one after the other, and hold up no task.

	// Failed is told of failures of tasks, once Redis has the outcome, which it names.
	Failed func(ctx context.Context, t *Task, outcome taskredis.Kind, err error)
	// Settled is told of attempts that have ended, once their locks are free: of the error of the handler, and whether the lock
	// was lost, so that the handler's result did not count.
	Settled func(t *Task, err error, lost bool)
	// Parked is told of a task that found its resource busy, and Recovered of one that was put back as its server had died.
	Parked    func(t *taskredis.ParkedTask, resource string)
	Recovered func(t taskredis.RecoveredTask, resource string)

	Versions string // what the server runs, in words, for its entry
	// Terms are what the servers of a queue should have alike. Start refuses if those of a live one are about other locks, unless
	// AllowOtherLocks is set.
	Terms           taskredis.Terms
	AllowOtherLocks bool

	Logger *slog.Logger
}

// mostRenewEvery is how often a heartbeat comes at least: however long locks last, the lease of a task without one lasts 30 s.
const mostRenewEvery = 10 * time.Second

// holds reports whether a task holds its line that has ended so.
func (cfg *Config) holds(m *taskredis.Message, outcome taskredis.Kind) bool {
	if cfg.OnFailure == nil {
		return false
	}
	does := cfg.OnFailure(m)
	return does == Stop || does == Hold && outcome != taskredis.Archive
}

// withDefaults returns cfg with the zero fields filled in that are asynq's.
func (cfg Config) withDefaults() Config {
	if cfg.IsFailure == nil {
		cfg.IsFailure = func(err error) bool { return err != nil }
	}
	if cfg.RetryDelay == nil {
		cfg.RetryDelay = asynq.DefaultRetryDelayFunc
	}
	if cfg.HealthCheckInterval <= 0 {
		cfg.HealthCheckInterval = 15 * time.Second
	}
	cfg.RenewEvery = min(cfg.RenewEvery, mostRenewEvery)
	cfg.DelayedTaskCheckInterval = cmp.Or(cfg.DelayedTaskCheckInterval, 500*time.Millisecond)
	cfg.JanitorInterval = cmp.Or(cfg.JanitorInterval, 8*time.Second)
	cfg.JanitorBatchSize = cmp.Or(cfg.JanitorBatchSize, 100)
	cfg.GroupGracePeriod = cmp.Or(cfg.GroupGracePeriod, time.Minute)
	return cfg
}
