package taskredis

// A Name identifies an attempt: a task that a server has taken. Its text is the token of the attempt's lock, the mark
// in the task's hash, and what the owner of asynq's lease goes by.
type Name struct {
	Queue   string
	ID      string // of the task
	Attempt string // unique among all attempts of all tasks
	Lock    string // the key of the lock that the attempt holds; "" for none
}

// A Kind says what becomes of an attempt.
type Kind string

// The kinds of outcome.
const (
	Done     Kind = "done"     // the task has succeeded and is deleted
	Complete Kind = "complete" // the task has succeeded and is kept until At
	Retry    Kind = "retry"    // the task comes again at At, at the end of its line
	Again    Kind = "again"    // the task comes again at At, in its place
	Archive  Kind = "archive"  // the task has failed for good
	Requeue  Kind = "requeue"  // the task comes again at once, in its place
	Ask      Kind = "ask"      // the attempt asks for the lock Want, as only this process could tell that it needs one
)

// An Outcome is what has become of an attempt. The lock of the attempt is freed with it.
type Outcome struct {
	Name

	Kind    Kind
	Message []byte // Complete, Retry, Again, Archive: the task to keep
	Unique  string // Done, Complete: the task's key of uniqueness, which is deleted if it is still the task's
	At      int64  // Complete, Retry, Again: Unix seconds
	Counts  bool   // Retry: it counts as a failure in asynq's statistics
	Want    string // Ask: the key of the lock
	Ticket  int64  // Ask: the task's place
	Until   int64  // Ask: the task's deadline in Unix seconds, 0 for none
}

// A Result is what a step made of an [Outcome].
type Result string

// The results.
const (
	Settled Result = "settled" // as the outcome says
	Granted Result = "granted" // Ask: the attempt holds the lock
	Parked  Result = "parked"  // Ask: the lock is busy, and the task waits; the attempt is over
	Stale   Result = "stale"   // the attempt was not the task's latest, so nothing has changed
	Lost    Result = "lost"    // the lock is not the attempt's any more; nothing has changed, and the attempt has still to end
)

// A Taken is an attempt that a step has begun.
type Taken struct {
	Name

	Fence   int64  // of the lock; 0 without one
	Ticket  int64  // the task's place
	Parked  int    // how often the task has waited
	Crashes int    // how often its server died
	Losses  int    // how often it lost its lock
	Encoded []byte // the task, see [DecodeMessage]
}
