package inspect

import (
	"fmt"
	"time"
)

// A LockState says who may take a lock.
type LockState string

// The states of a lock.
const (
	Held     LockState = "held"     // by a lease
	Revoked  LockState = "revoked"  // by a lease that an operator took; its holder has not returned yet
	Reserved LockState = "reserved" // released, and kept for a goroutine that waits until the hand-off timeout is over
	Foreign  LockState = "foreign"  // held by a program on the plain protocol, which tells nobody when it leaves
	// Free locks are nobody's. If tasks wait, the first starts once a server of its queue has a free slot,
	// unless a pause or a rate keeps it.
	Free LockState = "free"
)

// A Task names a task.
type Task struct {
	Queue string `json:"queue"` // asynq's, which may be a shard
	ID    string `json:"id"`
	Kind  string `json:"kind,omitempty"` // empty if it is not known
}

// A Worker is the process that runs a task.
type Worker struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
}

// Label names the process as the labels of holders do: "<host> (pid <number>)".
func (w Worker) Label() string { return fmt.Sprintf("%s (pid %d)", w.Host, w.PID) }

// A Lock is the lock of a resource, with those who wait for it.
type Lock struct {
	Resource string    `json:"resource"`
	State    LockState `json:"state"`
	// Holder is the label of the holder: "<id> on <host> (pid <number>)" for a task. Of a
	// foreign holder it is "another program". It is never the lock's token.
	Holder string `json:"holder,omitempty"`
	// Task is the holder, if that is a task of a queue. A label alone, which any program may choose, makes
	// no task.
	Task *Task `json:"task,omitempty"`
	// Worker is the process of the holder, if the label names one.
	Worker *Worker `json:"worker,omitempty"`
	// Gone says that the worker of the holder is dead or cut off from Redis: its server has written no entry for 10 s, or
	// nobody renews asynq's lease of the task. Redis cannot tell
	// which. [Inspector.Show] does not find it out.
	Gone bool `json:"gone,omitempty"`
	// Since is when the lock was granted or reserved. It is zero for a foreign holder.
	Since time.Time `json:"since,omitzero"`
	// Left is how long the lock lives if nobody renews it.
	Left Duration `json:"left_seconds,omitempty"`
	// Endless says that the lock has no TTL: it never expires by itself.
	Endless bool `json:"endless,omitempty"`
	// Fence is the last fencing token, 0 if it is not known.
	Fence int64 `json:"fence,omitempty"`
	// Waiting is how many wait. Paused of them are tasks of paused queues, which keep their places and let
	// others go before them.
	Waiting int `json:"waiting"`
	Paused  int `json:"paused,omitempty"`
	// OldestWait is how long the first of those who wait has waited. Tasks of paused queues count only if
	// nobody else waits.
	OldestWait Duration `json:"oldest_wait_seconds"`
	// Ready is since when a waiting task could have the lock, and Unserved how long ago that is, if no server
	// has taken the task for 3 s: as no server of its queue is there, or has a free slot.
	Ready    time.Time `json:"ready,omitzero"`
	Unserved Duration  `json:"unserved_seconds,omitempty"`
	// Elsewhere says that the lock itself is in an external store. The other fields describe the lock
	// for which its tasks wait on their own Redis; in a Cluster those of one queue. Its holder is the task
	// that has the lock in the external store, or asks for it.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// Revoked is what the operator did to the lock last.
	Revoked *Revocation `json:"revoked,omitempty"`
	// Permits are those that are held or reserved, of a lock with a [queue.Limit]. If there are several,
	// Holder is their number, such as "3 holders", Gone is true if that holds for one of them, and Task,
	// Worker and Since are not set.
	Permits []Permit `json:"permits,omitempty"`
	// Limit is what an operator has set for the resource. The limits of the servers themselves are not known here.
	Limit *Limit `json:"limit,omitempty"`
	// Lines are those of its tasks, one of a queue each, that wait for a task which has failed. Only
	// [Inspector.Show] finds them out, of a free lock.
	Lines []HeldLine `json:"lines,omitempty"`
	// Rated says that rates hold for the lock, of an operator or of the servers, so its waiters may wait for
	// their time.
	Rated bool `json:"rated,omitempty"`
}

// A Permit of a lock is held by one of its holders, or reserved for a waiter. The fields are as in [Lock].
type Permit struct {
	State LockState `json:"state"` // Held, Revoked or Reserved
	// Holder is the label of the holder, or the name of the waiter.
	Holder string `json:"holder"`
	// Task is the holder, if [Inspector.Held] or [Inspector.Scan] has found it.
	Task   *Task     `json:"task,omitempty"`
	Worker *Worker   `json:"worker,omitempty"`
	Gone   bool      `json:"gone,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Left   Duration  `json:"left_seconds,omitempty"`
	Fence  int64     `json:"fence,omitempty"`
}

// Leased reports whether a lease has the lock: it is held or revoked.
func (l Lock) Leased() bool { return l.State == Held || l.State == Revoked }

// A Revocation is the record of an operator who took a lock from its holder.
type Revocation struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Holder string    `json:"holder"` // from whom
}

// A Waiter is a task or a goroutine that waits for a lock.
type Waiter struct {
	// Position is the rank among all who wait, 1 for the first.
	Position int `json:"position"`
	// Task is nil for a goroutine, and Name is that of a goroutine.
	Task *Task  `json:"task,omitempty"`
	Name string `json:"name,omitempty"`
	// Since is when the waiter first asked for the lock, less the head start of its priority.
	Since  time.Time `json:"since"`
	Waited Duration  `json:"waited_seconds"`
	// Paused says that the queue of the task is paused.
	Paused bool `json:"paused,omitempty"`
}

// A List is a list of locks.
type List struct {
	Locks []Lock `json:"locks"`
	// LeftOut is how many contended locks were not read, as there were too many. Held never leaves out
	// the locks of running tasks.
	LeftOut int `json:"left_out,omitempty"`
}
