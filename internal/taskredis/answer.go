package taskredis

import (
	"fmt"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/redisreply"
)

// A Result is what a step made of an [Outcome].
type Result string

// The results.
const (
	Settled Result = "settled" // as the outcome says
	Granted Result = "granted" // Ask: the attempt holds the lock
	Parked  Result = "parked"  // Ask: the lock is busy, and the task waits, or is pending again; the attempt is over
	// Ask: the lock is busy, and the policy does not have the task wait; the attempt goes on.
	Rejected  Result = "rejected"
	Coalesced Result = "coalesced" // likewise, as an equal task waits
	Begun     Result = "more"      // More: those in Taken have it as their First, maybe none
	Stale     Result = "stale"     // the attempt was not the task's latest, so nothing has changed
	Lost      Result = "lost"      // the lock is not the attempt's any more; nothing has changed, and the attempt has still to end
)

// A Taken is an attempt that a step has begun.
type Taken struct {
	Name

	Fence  int64   // of the lock, or the first one; 0 without one; DeadlineOver or WaitOver if the task has none, as it must not run
	Fences []int64 // of several locks, in their order
	Ticket int64   // the task's place
	At     int64   // when a server heard of it, by Redis' clock in µs: Now of the answer; set by package engine
	Parks  int     // how often the task has been parked
	Losses int     // how often it lost its lock
	// Waited says that the task was parked, and has waited since Ticket: its handler has not begun at this place before.
	Waited bool
	// Freed is when somebody freed the lock while the task waited for it, by Redis' clock in µs; 0 if it did not wait, or if
	// nobody did, as the holder has gone. FreedBy is the traceparent of who did; "" if that is not known.
	Freed   int64
	FreedBy string
	Encoded []byte // the task, see [DecodeMessage]
	// First is the attempt that has asked for more, empty for none. This one runs under the lock of that, and has none itself. It keeps its
	// ticket, and goes back to its place if it is to: so it is to be settled before the lock is freed.
	First Name
}

// What a [Taken] has in place of a fence if the task may wait no longer.
const (
	DeadlineOver = -1 // its deadline is over
	WaitOver     = -2 // its [Policy.MaxWait] is
)

// A Drawn is what a step says of a [Draw].
type Drawn struct {
	Untried bool          // no slot tried it, as the first queues had enough; nothing is known of it
	Pending bool          // whose turn is next
	Paused  bool          // the queue is paused
	More    bool          // there is more to take
	Due     time.Duration // in how long a lock should be looked at; below 0 for never
}

// An Answer is what a step came to.
type Answer struct {
	Now int64 // Redis' clock, in µs
	// Known is the number of the step that Redis had recorded before in this lane; 0 for none. OtherKnown is that of the other lane,
	// which it may say only if Step.OtherAfter asks for it. Unless the step [Answer.Follows] them, Redis has forgotten steps, and has
	// done nothing: the rest is empty.
	Known, OtherKnown int64
	Results           []Result
	Replies           []Reply // to what the outcomes have asked for
	Drawn             []Drawn // as Step.Draws; empty if the step was answered from its record
	Taken             []Taken
	Parked            []ParkedTask
	Recovered         []RecoveredTask
	Troubles          []string // for the log
}

// A Reply is what a step says to an Ask.
type Reply struct {
	Lock    string  // Granted: its key, which is that of a permit if the lock has a rule
	Fence   int64   // Granted: as that of Taken
	Fences  []int64 // Granted: likewise
	Holder  string  // Rejected: what the lock holds
	Waiting int     // Rejected: how many wait, if those are too many; else 0
	Other   string  // Coalesced: the id of the task that waits
}

// A ParkedTask is a task that a step has put into the line of its lock.
type ParkedTask struct {
	Queue, ID, Lock string
	Kind            string // "" if the client did not write it
	Holder          string // what the lock holds; "" if it is free, and others were there before
	Parks           int    // how often the task has waited, this time included
	Replaced        string // the id of the task whose place it has taken, "" for none
}

// A RecoveredTask is a task whose server has died, and that a step has put back into its place.
type RecoveredTask struct {
	Queue, ID, Lock string
	Kind            string // "" if the client did not write it
}

func readAnswer(r *redisreply.Reader, s *Step) (*Answer, error) {
	a := &Answer{Now: r.Number(), Known: r.Number(), OtherKnown: r.Number()}
	results, drawn, tasks, parked, recovered := r.List(), r.List(), r.List(), r.List(), r.List()
	for results.More() {
		result, reply := readResult(r, results.Text())
		a.Results, a.Replies = append(a.Results, result), append(a.Replies, reply)
	}
	for drawn.More() {
		next := drawn.Text()
		a.Drawn = append(a.Drawn, Drawn{
			Untried: next == "", Pending: next == turn(true), Paused: drawn.Number() == 1, More: drawn.Number() == 1,
			Due: time.Duration(drawn.Number()) * time.Microsecond,
		})
	}
	queue := func(index int64) string {
		if index < 1 || index > int64(len(s.Draws)) {
			r.Fail("want a queue, have another number")
			return ""
		}
		return s.Draws[index-1].Queue
	}
	source := func(index int64) string { // below 0 it is that of an outcome
		if asked := -index - 1; asked >= 0 && asked < int64(len(s.Outcomes)) {
			return s.Outcomes[asked].Queue
		}
		return queue(index)
	}
	if n := tasks.Len() / 8; n > 0 {
		a.Taken = make([]Taken, 0, n)
	}
	for tasks.More() {
		index := tasks.Number()
		a.Taken = append(a.Taken, Taken{
			Name: Name{source(index), tasks.Text(), tasks.Text(), tasks.Text()},
		})
		t := &a.Taken[len(a.Taken)-1]
		if index < 0 && t.Queue != "" {
			t.First = s.Outcomes[-index-1].Name
		}
		t.Fence, t.Fences = readFences(r, tasks.Text())
		t.Ticket, t.Encoded = tasks.Number(), []byte(tasks.Text())
		t.readPast(r, tasks.Text())
	}
	for parked.More() {
		group := parked.List()
		p := ParkedTask{Queue: source(group.Number()), Lock: group.Text(), Holder: group.Text(), Replaced: group.Text()}
		for tasks := group.List(); tasks.More(); {
			p.ID, p.Kind, p.Parks = tasks.Text(), tasks.Text(), int(tasks.Number())
			a.Parked = append(a.Parked, p)
		}
	}
	for recovered.More() {
		a.Recovered = append(a.Recovered, RecoveredTask{source(recovered.Number()), recovered.Text(), recovered.Text(), recovered.Text()})
	}
	a.Troubles = r.Texts()
	if err := r.Err(); err != nil {
		return nil, err
	}
	if !a.Follows(s) {
		return a, nil
	}
	if len(a.Results) != len(s.Outcomes) || len(a.Drawn) != 0 && len(a.Drawn) != len(s.Draws) {
		return nil, fmt.Errorf("%w: want %d results and %d queues, have %d and %d", redisreply.ErrReply, len(s.Outcomes), len(s.Draws), len(a.Results), len(a.Drawn))
	}
	return a, nil
}

// readFences reads the fences of an attempt's locks: the first, and all if there are several.
func readFences(r *redisreply.Reader, text string) (first int64, all []int64) {
	one, rest, several := strings.Cut(text, ",")
	first = r.Parse(one)
	if !several {
		return first, nil
	}
	all = append(all, first)
	for fence := range strings.SplitSeq(rest, ",") {
		all = append(all, r.Parse(fence))
	}
	return first, all
}

// readPast reads what has become of a task before it was taken, "" for nothing.
func (t *Taken) readPast(r *redisreply.Reader, text string) {
	if text == "" {
		return
	}
	parked, rest, _ := strings.Cut(text, " ")
	losses, rest, _ := strings.Cut(rest, " ")
	waited, rest, _ := strings.Cut(rest, " ")
	freed, by, _ := strings.Cut(rest, " ")
	t.Parks, t.Losses, t.Waited, t.Freed, t.FreedBy = int(r.Parse(parked)), int(r.Parse(losses)), waited == "1", r.Parse(freed), by
}

// readResult reads the result of an outcome: a word, and what belongs to it.
func readResult(r *redisreply.Reader, text string) (Result, Reply) {
	word, rest, _ := strings.Cut(text, " ")
	number, other, _ := strings.Cut(rest, " ")
	switch result := Result(word); result {
	case Granted:
		fence, fences := readFences(r, number)
		return result, Reply{Fence: fence, Fences: fences, Lock: other}
	case Rejected:
		return result, Reply{Waiting: int(r.Parse(number)), Holder: other}
	case Coalesced:
		return result, Reply{Other: rest}
	default:
		return Result(text), Reply{}
	}
}
