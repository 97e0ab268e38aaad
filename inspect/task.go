package inspect

import "time"

// A State says what a task does.
type State string

// The states of a task.
const (
	// StatePending: a worker may take the task.
	StatePending State = "pending"
	// StateReady: the task has waited, is the first, and could have its lock. A server takes it.
	StateReady State = "ready"
	// StateScheduled: the task comes at a time that its client chose.
	StateScheduled State = "scheduled"
	// StateWaiting: the task waits for its lock, in its place.
	StateWaiting State = "waiting"
	// StateSnoozed: the task comes again by itself, for no failure of its own: as something was missing, a second
	// lock was busy, or it has lost its lock. It keeps its place, unless an operator has taken the lock.
	StateSnoozed State = "snoozed"
	// StateRetrying: the task has failed, and comes again after asynq's delay.
	StateRetrying State = "retrying"
	// StateRunning: a worker has the task, and the task has its lock, if it needs one.
	StateRunning State = "running"
	// StateStarting: a worker has the task, which does not have its lock yet.
	StateStarting State = "starting"
	// StateLost: a worker has the task, but the lock has expired, or somebody else has taken it.
	StateLost State = "lost"
	// StateOrphaned: a worker took the task, and has not renewed its lease of it.
	StateOrphaned State = "orphaned"
	// StateArchived: the task has failed for good, or an operator has archived it.
	StateArchived State = "archived"
	// StateCompleted: the task has succeeded, and is kept for its retention.
	StateCompleted State = "completed"
	// StateAggregating: the task waits for others of its group.
	StateAggregating State = "aggregating"
)

// An Explanation says what a task does, and why.
type Explanation struct {
	Task  Task  `json:"task"`
	State State `json:"state"`
	// AlsoIn are other queues that have a task of this id.
	AlsoIn []string `json:"also_in,omitempty"`
	// Resource is empty for a task that needs no lock. Of the Resources of a task that needs several it is the first that keeps
	// the task from its work.
	Resource  string   `json:"resource,omitempty"`
	Resources []string `json:"resources,omitempty"`
	// Lock is that of the resource, with its holder; nil without a resource.
	Lock *Lock `json:"lock,omitempty"`
	// Position is the rank among all who wait for the lock, 1 for the first, or 0. Since is when the task
	// first asked for its lock, and Waited how long ago that is.
	Position int       `json:"position,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Waited   Duration  `json:"waited_seconds,omitempty"`
	// Priority is that with which the task was enqueued, and Policy its own as JSON; see
	// [queue.HeaderPolicy]. The policy of its kind is not known here.
	Priority int    `json:"priority,omitempty"`
	Policy   string `json:"policy,omitempty"`
	// Line is that of the task if it is held, by this task or by the one before it; else nil.
	Line *HeldLine `json:"line,omitempty"`
	// Pending is the rank of a pending task, 1 for the one that a worker takes next. It is 0 for a
	// task behind more than PendingMore others.
	Pending     int `json:"pending,omitempty"`
	PendingMore int `json:"pending_more,omitempty"`
	// Next is when the task comes by itself; of one that waits for its lock, when it is looked at again if it has
	// not come by then.
	Next time.Time `json:"next,omitzero"`
	// Worker has the task, and Started is since when.
	Worker  *Worker   `json:"worker,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// LeaseEnds is when the lease of an active task ends, unless its worker renews it.
	LeaseEnds time.Time `json:"lease_ends,omitzero"`
	// Paused says that the task's queue is paused. Servers is how many servers serve that queue.
	Paused  bool `json:"paused"`
	Servers int  `json:"servers"`
	// Retried is how many of its Retries the task has used.
	Retried int `json:"retried"`
	Retries int `json:"retries"`
	// Parks is how often the task came to wait, as it did not get its lock.
	Parks int `json:"parks"`
	// Crashes is how often a worker died with the task. The first Tolerated crashes use no retry.
	Crashes   int `json:"crashes"`
	Tolerated int `json:"tolerated"`
	// Losses is how often the task lost its lock while it ran.
	Losses int `json:"losses"`
	// LastError is the last error in asynq's dashboard. Of a task that waits that is for what it waits.
	// Failure is the task's own last failure.
	LastError string    `json:"last_error,omitempty"`
	Failure   string    `json:"failure,omitempty"`
	FailedAt  time.Time `json:"failed_at,omitzero"`
	// Deadline is when asynq gives the task up; zero for never.
	Deadline time.Time `json:"deadline,omitzero"`
	Verdict  Verdict   `json:"verdict"`
}

// A Verdict is what an operator wants to know of a task.
type Verdict struct {
	// Trouble says whether Wrong names a fault.
	Trouble bool   `json:"trouble"`
	Wrong   string `json:"wrong"`  // whether something is wrong
	Clears  string `json:"clears"` // whether it clears by itself, and when
	Do      string `json:"do"`     // what the operator can do, with the command
}

// An Orphan is an active task whose worker died or was cut off, or once did.
type Orphan struct {
	Task     Task   `json:"task"`
	Resource string `json:"resource,omitempty"`
	// Orphaned says that the lease of the task has ended. Otherwise a worker runs the
	// task again, after Crashes.
	Orphaned bool `json:"orphaned"`
	// Crashes is how often a worker died with the task. The first Tolerated crashes use no retry.
	Crashes   int       `json:"crashes"`
	Tolerated int       `json:"tolerated"`
	LeaseEnds time.Time `json:"lease_ends,omitzero"`
	// UsesRetry says that this crash uses a retry, as the task has no resource, or has crashed too often; or that it archives the
	// task, as that has no retries, and its handler has begun.
	UsesRetry bool `json:"uses_retry,omitempty"`
}

// A Server is an asynq server.
type Server struct {
	Worker

	ID      string   `json:"id"`
	Queues  []string `json:"queues"`
	Guarded bool     `json:"guarded"`
	// Versions are the versions of Siding, asynq and Go of a guarded server, in words. It is empty for
	// a server that takes no locks.
	Versions string `json:"versions,omitempty"`
	// Unguarded are the queues of a server that takes no locks which guarded servers serve, too. The
	// server runs tasks of these queues without their locks.
	Unguarded []string `json:"unguarded_queues,omitempty"`
}

// A Queue is one of asynq's queues, which may be a shard.
type Queue struct {
	Name        string `json:"name"`
	Paused      bool   `json:"paused"`
	Pending     int    `json:"pending"`
	Active      int    `json:"active"`
	Scheduled   int    `json:"scheduled"`
	Aggregating int    `json:"aggregating,omitempty"`
	// Waiting and Retrying are the two parts of asynq's retry set: tasks that wait for a lock, and others that come
	// again. They are exact for up to 500 contended locks, and else estimates from 500 of them. If tasks need several resources,
	// they are estimates, too: each line is taken for one whose tasks all need as many as the last of them.
	Waiting   int  `json:"waiting"`
	Retrying  int  `json:"retrying"`
	Estimated bool `json:"estimated,omitempty"`
	Archived  int  `json:"archived"`
	Completed int  `json:"completed"`
	// Contended is the number of locks for which tasks of the queue wait.
	Contended int `json:"contended"`
	// Held is the number of lines of the queue that wait for a task which has failed, and Stopped that of those among them which
	// wait for an operator; see [Inspector.HeldLines].
	Held    int `json:"held"`
	Stopped int `json:"stopped"`
	// Servers is how many servers serve the queue.
	Servers int `json:"servers"`
}
