package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/queue"
)

// A History is all that is known of a run once it is over. All times are those of [Now].
type History struct {
	Tasks     map[string]*Task // by id
	Runs      []Run
	Effects   []Effect // in the order of their commits
	Faults    []Fault  // by their start
	Processes map[string]*Process
	// Planned says how many faults of each kind were to come.
	Planned map[Kind]int
	// Concurrency is how many tasks each of them takes at a time.
	Concurrency int
	Requeued    []Requeued
	Ends        []End
	// Archived are the tasks in asynq's archive at the end, with their last errors.
	Archived map[string]string
	// Started are those of them of which an attempt was about to start, by its mark in Redis.
	Started map[string]bool
	// Forever are the keys without expiry, except those that asynq keeps by design.
	Forever []string
}

// A Task is one that was enqueued.
type Task struct {
	ID       string
	Queue    string
	Resource string // empty when unguarded
	Fate     Fate
	Policy   queue.Policy // zero for none
	Priority int
	// Sent is when it was enqueued, at the earliest.
	Sent time.Duration
	// Unknown says that no answer to the enqueue came: it may be there or not.
	Unknown bool
	// Accepted is when the answer came.
	Accepted time.Duration
	// Deleted and Shelved are what an operator did to the task, or may have done.
	Deleted, Shelved bool
	// RunAgain is when an operator took it out of the archive again, 0 if none did.
	RunAgain time.Duration
}

// A Fate is what becomes of a task by itself.
type Fate string

// The fates. Those with "once" have no retries.
const (
	FateOK        Fate = "ok"
	FateOnce      Fate = "ok, once"
	FateFlaky     Fate = "fails, then succeeds"
	FateTwice     Fate = "fails twice, soon after each other, then succeeds"
	FateHopeless  Fate = "fails, once"
	FatePermanent Fate = "fails for good"
)

// fails says whether the task ends in the archive.
func (f Fate) fails() bool { return f == FateHopeless || f == FatePermanent }

// once says whether the task has no retries.
func (f Fate) once() bool { return f == FateOnce || f == FateHopeless }

// A Run is one execution of a task's handler.
type Run struct {
	Task     string
	Process  string
	Resource string
	Fence    int64
	Retried  int // how many retries the task had used
	Begin    time.Duration
	// Lost is when its context ended, 0 if it did not. Returned is when the handler returned, 0
	// if its process died first.
	Lost, Returned time.Duration
	Outcome        Outcome
}

// told says where and when it was, and how it ended.
func (r Run) told() string {
	return fmt.Sprintf(" on %s from %v to %v (%s)", r.Process, r.Begin, r.Returned, cmp.Or(r.Outcome, "killed"))
}

// An Outcome is how a run ended.
type Outcome string

// The outcomes.
const (
	Done   Outcome = "done"   // its effect is in the ledger, by this run or an earlier one
	Failed Outcome = "failed" // by itself, as its fate is
	Stale  Outcome = "stale"  // the ledger has seen a higher fence
	Ended  Outcome = "ended"  // its context ended
	Broken Outcome = "broken" // the ledger did not answer
)

// An Effect is a row of the ledger.
type Effect struct {
	Task     string
	Resource string
	Fence    int64
}

// A Fault is one that was injected.
type Fault struct {
	Kind       Kind
	Start, End time.Duration
	// Process or Resource is what it hit, if that was only one.
	Process, Resource string
	// Forgot are the tasks that were in Redis when its data was thrown away.
	Forgot map[string]bool
	// Hits is how many tasks, keys or connections it hit, for those kinds whose effect the runs do
	// not show.
	Hits int
	// Revocations are the operators' calls, if they revoked a lease.
	Revocations []Revocation
	// Override is the limit that an operator set for the resource, nil if there was no answer.
	Override *Override
}

// A Revocation is a call of an operator who takes a lock from its holder.
type Revocation struct {
	Outcome    Revoked
	Fence      int64 // of the lease that it has ended, 0 if that is not known
	Start, End time.Duration
}

// Revoked is how a revocation ended.
type Revoked string

// The outcomes of revocations.
const (
	WasRevoked  Revoked = "revoked"
	WasFree     Revoked = "found the lock free"
	WasOthers   Revoked = "found another holder"
	WasNoAnswer Revoked = "had no answer" // the lease may be revoked, also later
)

// String says what it was, and when.
func (f *Fault) String() string {
	if f == nil {
		return "no fault"
	}
	return fmt.Sprintf("%s, from %v to %v", f.Kind, f.Start, f.End)
}

// A Requeued says when a task was requeued whose worker had died or been cut off.
type Requeued struct {
	Task string
	At   time.Duration
}

// A Process is a worker.
type Process struct {
	Name            string
	Started, Exited time.Duration
	// Serving is when it was seen to take tasks, 0 if it never was.
	Serving time.Duration
	Stops   []Span // in which it stood still
	// Crash says how it ended, if it should not have.
	Crash string
}

// A Span is a time. A span is empty unless it ends after its beginning.
type Span struct {
	From, To time.Duration

	most int // of the result of when: the most spans of the first list at a time
}

// Now is the clock of all times.
func Now() time.Duration { return proc.Now() }

// believed returns when the run stopped believing that it has the lock.
func (h *History) believed(r Run) time.Duration {
	end := h.Processes[r.Process].Exited
	for _, t := range []time.Duration{r.Lost, r.Returned} {
		if t != 0 {
			end = min(end, t)
		}
	}
	return max(end, r.Begin)
}

// ended returns when the run's handler returned or its process died.
func (h *History) ended(r Run) time.Duration {
	if r.Returned != 0 {
		return r.Returned
	}
	return h.Processes[r.Process].Exited
}

// outlasted returns the stop of its process in which the lock of a run ran out, if any. Such a stop
// lasts for the TTL or longer: between shorter stops a process renews its locks. Further stops
// that follow before the process can notice anything are a part of it.
func (h *History) outlasted(r Run) (Span, bool) {
	stops := h.Processes[r.Process].Stops
	i := slices.IndexFunc(stops, func(s Span) bool {
		return s.To-s.From >= TTL && r.Begin <= s.From && s.From < h.believed(r)
	})
	if i < 0 {
		return Span{}, false
	}
	stop := stops[i]
	for _, next := range stops[i+1:] {
		if next.From-stop.To < awakening {
			stop.To = next.To
		}
	}
	return stop, true
}
