package taskredis

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
)

// A Name identifies an attempt: a task that a server has taken. Its text is the token of the attempt's lock, the mark
// in the task's hash, and what the owner of asynq's lease goes by.
type Name struct {
	Queue   string
	ID      string // of the task
	Attempt string // unique among all attempts of all tasks
	Lock    string // the key of the lock that the attempt holds, or of its permit; "" for none
}

// A Kind says what becomes of an attempt.
type Kind string

// The kinds of outcome.
const (
	Done     Kind = "done"     // the task has succeeded and is deleted
	Complete Kind = "complete" // the task has succeeded and is kept for After
	Retry    Kind = "retry"    // the task comes again After, at the end of its line unless it is to hold that
	Snooze   Kind = "snooze"   // the task comes again After, in its place
	Archive  Kind = "archive"  // the task has failed for good
	Requeue  Kind = "requeue"  // the task comes again at once, in its place
	Ask      Kind = "ask"      // the attempt asks for the lock Want, as only this process could tell that it needs one
	More     Kind = "more"     // the attempt goes on, and the step begins attempts at tasks that wait for its lock
)

// An Outcome is what has become of an attempt. The lock of the attempt is freed with it.
type Outcome struct {
	Name

	Kind     Kind
	Message  []byte        // Complete, Retry, Snooze, Archive: the task to keep
	Unique   string        // Done, Complete, Archive: the task's key of uniqueness, which is deleted if it is still the task's
	After    time.Duration // Complete, Retry, Snooze: from now on, by Redis' clock; asynq keeps whole seconds
	Counts   bool          // Retry: it counts as a failure in asynq's statistics
	WaitOver bool          // Retry, Snooze: the task has waited for too long, and its wait stays over
	Losses   int           // Snooze: how often the task has lost its lock
	Waits    bool          // Snooze: it counts as a wait for its lock
	AtHead   bool          // Snooze: those behind it in its line wait until then, unless its lock may be free before
	MaxWait  time.Duration // Snooze: how long it may wait from now on, 0 for as long as it takes
	Last     bool          // Snooze: it comes behind those who wait
	Begun    bool          // Requeue: its handler may have begun
	Hold     bool          // Retry, Snooze: it keeps its place, and those behind it wait until then; Archive: its line stops
	Trace    string        // the traceparent that the next holder of the lock learns, "" for none

	// What an Ask asks for. Its place is that of its task, if that has waited for this lock before; or else behind those who
	// came before.
	Want     string // the key of the lock
	Priority int    // its head start
	Policy   Policy // of a task that has not waited for this lock before
	Until    int64  // the task's deadline in Unix seconds, 0 for none
	Once     bool   // the task has no retries
	Always   bool   // the task is unique whatever becomes of it

	// What a More asks for: at most so many tasks of the same kind, the first of the line. See [Taken.First].
	Most int
	Like string // the kind
}

// HeadStart is by how much earlier than it came one level of priority lets a task come.
const HeadStart = time.Minute

// A Policy says what becomes of a task that asks for a busy lock. The zero value has it wait.
type Policy struct {
	OnBusy     OnBusy
	Equal      string        // Coalesce, Replace: the same for all tasks that are equal
	MaxWaiting int           // so many may wait for the lock at most, or else the task is rejected; 0 for no end
	MaxWait    time.Duration // for so long the task may wait; 0 for no end
}

// OnBusy says what a task does that finds its lock busy; "" for one that waits.
type OnBusy string

// What a task does instead of waiting.
const (
	Reject   OnBusy = "reject"
	Coalesce OnBusy = "coalesce" // gives way to an equal task that waits
	Replace  OnBusy = "replace"  // deletes an equal task that waits, and takes its place
)

// A Draw is a queue that a step takes tasks from.
type Draw struct {
	Queue string
	// Pending says whose turn it is: that of the tasks that are pending, or of those that wait for a lock which is
	// ready.
	Pending bool
}

// Lanes is how many steps of a server may be under way in a scope at once, each in a lane of its own. With two, Redis is at
// work on one while the server is at work on the answer of the other. Four were faster by a sixth with round trips of
// 0.5 ms, and slower by as much on loopback.
const Lanes = 2

// A Step is one call of a server. It has what has ended since the last one, and the slots that are free.
type Step struct {
	// Scope is the queue whose slot of a Cluster the step is for; "" for one on a single Redis, which reaches all.
	Scope  string
	Lane   int   // below Lanes
	Number int64 // of the server's steps in this lane, from 1 on
	After  int64 // the number of the last one that was answered; 0 for none
	// OtherAfter is that of the other lane; 0 if no failover forgets it any more.
	OtherAfter int64
	Sent       int64 // when it is sent first, by Redis' clock, in µs
	Outcomes   []Outcome
	Draws      []Draw // at most 255
	Slots      []Order
}

// An Order says for one free slot from which queues to take a task: indexes of [Step.Draws], from 1 on, the first
// to be tried first.
type Order string

// A Steps makes the steps of one server.
type Steps struct {
	Redis   redis.Scripter
	Session string // unique among all servers
	Holder  string // who the server is, for people
	Prefix  string // of the keys of locks
	TTL     time.Duration
	// FenceTTL is how long a fencing token is remembered after its lock was taken or renewed.
	FenceTTL time.Duration
	// Handoff is how long a lock is reserved for a goroutine that came before the tasks; 0 for 1 s.
	Handoff      time.Duration
	Crashes      int      // how many crashes of a task use no retry
	PolicyKinds  []string // kinds of tasks that have a policy
	NoRetriesToo bool     // a crash also of a task without retries uses none

	rules atomic.Pointer[Rules]
}

var stepScript = script("step")

// Rules say how many may hold a lock at once, and how often one may start: those of the program, and those of operators,
// which count more. Each is a list of patterns and rules; see locks.lua.
type Rules struct{ Limits, Overrides string }

// SetRules has the steps from now on keep to r.
func (c *Steps) SetRules(r Rules) { c.rules.Store(&r) }

// Recorded is for how long Redis keeps what a server's last step came to: RECORD_KEPT of common.lua.
const Recorded = 10 * time.Minute

// asynq keeps its statistics of a day for so long.
const statsTTL = 90 * 24 * time.Hour

// defaultHandoff is that of package lock.
const defaultHandoff = time.Second

// Step sends s. A step may be sent again if its answer is late or lost, also while the first is under way: the
// answer is then that of the first, and the locks that it took are good for their TTL from this sending on.
func (c *Steps) Step(ctx context.Context, s *Step) (*Answer, error) {
	now := time.Now().UTC()
	rules := c.rules.Load()
	if rules == nil {
		rules = &Rules{}
	}
	argv := make([]any, 0, 20+9*len(s.Outcomes)+2*len(s.Draws)+2*len(s.Slots))
	argv = append(argv, s.Number, s.After, s.OtherAfter, s.Sent, fmt.Sprintf("siding:%s-%d-%d-", c.Session, s.Lane, s.Number), " on "+c.Holder,
		LockPrefix(s.Scope, c.Prefix), c.TTL.Milliseconds(), c.FenceTTL.Milliseconds(), cmp.Or(c.Handoff, defaultHandoff).Milliseconds(),
		c.Crashes, flag(c.NoRetriesToo), rules.Limits, rules.Overrides, c.policyKinds(), now.Format(time.DateOnly), now.Add(statsTTL).Unix())
	argv = append(argv, len(s.Outcomes))
	for i := range s.Outcomes {
		argv = s.Outcomes[i].append(argv)
	}
	argv = append(argv, len(s.Draws))
	for _, d := range s.Draws {
		argv = append(argv, d.Queue, turn(d.Pending))
	}
	argv = appendSlots(argv, s.Slots)
	answer, err := readAnswer(redisreply.NewReader(stepScript.Run(ctx, c.Redis, together(s.Scope, c.record(s.Scope, s.Lane), slotsOf(s.Scope), c.record(s.Scope, 1-s.Lane)), argv...).Result()), s)
	if err != nil {
		return nil, fmt.Errorf("taskredis: step: %w", err)
	}
	return answer, nil
}

// policyKinds returns the kinds that have a policy, each between line breaks.
func (c *Steps) policyKinds() string {
	if len(c.PolicyKinds) == 0 {
		return ""
	}
	return "\n" + strings.Join(c.PolicyKinds, "\n") + "\n"
}

// record is the key of what the server's last step in a lane came to.
func (c *Steps) record(scope string, lane int) string {
	name := fmt.Sprintf("%s-%d", c.Session, lane)
	if scope != "" {
		return sidingKey(scope, "step:"+name)
	}
	return "siding:step:" + name
}

// slotsOf is the key that says of each queue when a server of it had a free slot last.
func slotsOf(scope string) string {
	if scope != "" {
		return sidingKey(scope, "slots")
	}
	return "siding:slots"
}

func turn(pending bool) string {
	if pending {
		return "pending"
	}
	return "ready"
}

// append appends the outcome as step.lua reads it.
func (o *Outcome) append(argv []any) []any {
	argv = append(argv, o.Queue, o.ID, o.Attempt, o.Lock, o.Trace, string(o.Kind))
	switch o.Kind {
	case Done:
		return append(argv, o.Unique)
	case Complete:
		return append(argv, o.Unique, o.Message, o.After.Microseconds())
	case Retry:
		return append(argv, o.Message, o.After.Microseconds(), flag(o.Counts), flag(o.WaitOver), o.order())
	case Snooze:
		return append(argv, o.Message, o.After.Microseconds(), flag(o.WaitOver), o.Losses, flag(o.Waits), wholeSeconds(o.MaxWait), o.order())
	case Archive:
		return append(argv, o.Unique, o.Message, o.order())
	case Ask:
		p := o.Policy
		return append(argv, o.Want, (time.Duration(o.Priority) * HeadStart).Microseconds(), o.Until,
			string(p.OnBusy), p.Equal, p.MaxWaiting, wholeSeconds(p.MaxWait), flag(o.Once), flag(o.Always))
	case More:
		return append(argv, o.Most, (&Message{Type: o.Like}).Encode())
	case Requeue:
		return append(argv, flag(o.Begun))
	}
	return argv
}

// appendSlots appends the slots as step.lua reads them: those in a row that try the same queues are one argument and a number.
func appendSlots(argv []any, slots []Order) []any {
	at, kinds := len(argv), 0
	argv = append(argv, 0)
	for ; len(slots) > 0; kinds++ {
		n := 1
		for n < len(slots) && slots[n] == slots[0] {
			n++
		}
		argv = append(argv, string(slots[0]), n)
		slots = slots[n:]
	}
	argv[at] = kinds
	return argv
}

// order says where in its line a task comes again.
func (o *Outcome) order() string {
	switch {
	case o.Hold:
		return "hold"
	case o.AtHead:
		return "head"
	case o.Last:
		return "last"
	default:
		return ""
	}
}

func flag(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Follows reports whether Redis knew of the steps before s, in both lanes. If not, s has done nothing.
func (a *Answer) Follows(s *Step) bool {
	return a.Known == s.Number || a.Known == s.After && a.OtherKnown >= s.OtherAfter
}
