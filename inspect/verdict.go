package inspect

import (
	"fmt"
	"strings"

	"github.com/sidingq/siding/internal/taskredis"
)

// A judge finds the verdict of a task. Its sentence on what is wrong begins with Yes if there is trouble.
type judge struct {
	*fleet

	x       *exam
	e       *Explanation
	holder  *exam // the task that holds the lock for which x waits; nil if it is none
	all     int   // servers that serve the task's queue
	guarded int   // those of them that take locks
}

func (f *fleet) verdict(x *exam, e *Explanation, holder *exam) Verdict {
	j := judge{fleet: f, x: x, e: e, holder: holder}
	j.all, j.guarded = serving(f.servers, x.Queue)
	v := j.judge()
	v.Trouble = strings.HasPrefix(v.Wrong, "Yes")
	return v
}

func (j judge) judge() Verdict {
	switch j.x.state {
	case StatePending, StateReady, StateWaiting, StateSnoozed:
		if v, stuck := j.queueStuck(); stuck {
			return v
		}
	default:
	}
	if j.x.line != nil && (j.x.Holds || j.e.Lock.State == Free || j.e.Lock.State == Reserved) {
		return j.held()
	}
	switch j.x.state {
	case StatePending:
		return j.pending()
	case StateReady, StateWaiting:
		return j.waiting()
	case StateSnoozed:
		return j.snoozed()
	case StateRunning, StateStarting, StateLost:
		return j.active()
	case StateOrphaned:
		return j.orphaned()
	default:
		return j.atRest()
	}
}

// queueStuck is the verdict of a task whose queue no worker empties.
func (j judge) queueStuck() (Verdict, bool) {
	keeps := ""
	if j.x.waits() {
		keeps = " The task keeps its place."
	}
	switch {
	case j.x.Paused:
		return Verdict{
			Wrong:  fmt.Sprintf("Yes: the queue %s is paused.", j.x.Queue),
			Clears: "Not by itself: somebody has to resume the queue." + keeps,
			Do:     fmt.Sprintf("Resume the queue: `lockctl queue resume %s`.", ShellArg(j.x.Queue)),
		}, true
	case j.all == 0:
		return Verdict{
			Wrong:  fmt.Sprintf("Yes: no server serves the queue %s.", j.x.Queue),
			Clears: "Not before a server of that queue starts." + keeps,
			Do:     fmt.Sprintf("Start a worker that serves %s; %s.", ShellWord(j.x.Queue), whileAway),
		}, true
	}
	return Verdict{}, false
}

func (j judge) pending() Verdict {
	if j.x.resource != "" && j.guarded < j.all {
		return j.unguarded()
	}
	v := Verdict{Wrong: "No: the task waits for a worker." + j.history()}
	switch {
	case j.x.Rank == 1:
		v.Clears = "The next worker of the queue that is free takes the task."
	case j.x.Rank > 1:
		v.Clears = fmt.Sprintf("A worker takes the task once those before it are taken, %d in all.", j.x.Rank-1)
	default:
		v.Clears = fmt.Sprintf("A worker takes the task once the tasks before it are taken, which are more than %d.", taskredis.LookDepth)
	}
	if j.paused() {
		v.Clears += " It then waits: " + j.pausedBy() + "."
	} else if l := j.e.Lock; l != nil && (l.State != Free || l.Waiting > 0) && !j.roomy() {
		v.Clears += fmt.Sprintf(" It then waits for %s, for which %s.", j.x.resource, waitingNow(l.Waiting))
	}
	v.Do = "Wait, or start more workers."
	if j.x.resource != "" {
		v.Do = fmt.Sprintf("Wait, or start more workers; `lockctl show %s` shows its lock.", ShellArg(j.x.resource))
	}
	return v
}

func waitingNow(n int) string {
	switch n {
	case 0:
		return "nobody else waits"
	case 1:
		return "one other waits"
	default:
		return fmt.Sprintf("%d others wait", n)
	}
}

// ready is the verdict of a task that could have its lock.
func (j judge) ready() Verdict {
	v := Verdict{
		Wrong:  "No: the lock is free for the task, which is taken in its turn" + j.turn() + "." + j.history(),
		Clears: "The next server of its queue with a free slot takes the task.",
		Do:     fmt.Sprintf("Look again: `lockctl why %s`.", ShellArg(j.x.ID)),
	}
	if d := j.x.lock.unserved(); d > 0 {
		v.Wrong = fmt.Sprintf("Yes: the lock has been free for the task for %s, and no server of the queue %s has taken it: all of their slots are in use, or go to others%s.%s",
			Duration(d), j.x.Queue, j.turn(), j.history())
		v.Do = "Start more workers, or raise their concurrency; see what their tasks do: `lockctl list`."
	}
	return v
}

// turn says what a server takes before a task whose lock is free: resources that are longer ready, and new tasks, in turns.
func (j judge) turn() string {
	fresh := min(j.x.New, j.x.Before+1)
	if j.x.Before == 0 && fresh == 0 {
		return ""
	}
	return fmt.Sprintf(": %s and %s are before it", things(j.x.Before, "resource"), things(fresh, "new task"))
}

func (j judge) snoozed() Verdict {
	place := "keeps its place"
	if j.x.Ticket == 0 {
		place = "then comes behind those who wait"
	}
	v := Verdict{
		Wrong:  fmt.Sprintf("No: the task comes again by itself: %s.%s", strings.TrimSuffix(j.x.Sentence, "."), j.history()),
		Clears: fmt.Sprintf("The task comes again %s, or up to a second later, and %s.", j.at(j.x.At), place),
		Do:     fmt.Sprintf("Wait, or run it now: %s.", j.run()),
	}
	if j.x.Sentence == "" { // the script that takes tasks leaves none when it puts one off
		v.Wrong = "Yes: nothing says why the task waits: a key of its resource has a wrong type, or the task cannot be read." + j.history()
		v.Do = fmt.Sprintf("Look for WRONGTYPE in the logs of the queue's servers. Mend the cause, then run it now: %s.", j.run())
	}
	if j.x.lock.elsewhere {
		v.Do += " If the lock is busy in its store, find the holder there."
	}
	return v
}

// active is the verdict of a task that a worker has.
func (j judge) active() Verdict {
	switch {
	case j.x.gone:
		return j.orphaned()
	case j.x.resource != "" && !j.x.guarded && !j.x.holds():
		return Verdict{
			Wrong:  fmt.Sprintf("Yes: the server %s takes no locks, and runs the task without its lock.", j.x.worker.Label()),
			Clears: "When the task ends; the next ones meet the same server.",
			Do:     fmt.Sprintf("Pause the queue by `lockctl queue pause --reason TEXT %s`, stop that server, and resume the queue.", ShellArg(j.x.Queue)),
		}
	case j.x.state == StateLost:
		return j.lost()
	case j.x.state == StateStarting:
		return Verdict{
			Wrong:  "No: a worker has taken the task, and asks for its lock." + j.history(),
			Clears: "Within a moment the task runs, or waits for its lock.",
			Do:     fmt.Sprintf("Look again: `lockctl why %s`.", ShellArg(j.x.ID)),
		}
	}
	v := Verdict{
		Wrong:  fmt.Sprintf("No: the task %s.%s", j.runs(), j.history()),
		Clears: "It ends when its handler returns.",
		Do:     fmt.Sprintf("Wait; `asynq task cancel %s` ends the attempt, which uses a retry.", ShellArg(j.x.ID)),
	}
	if j.x.resource != "" && !j.x.lock.elsewhere { // lockctl cannot release a lock of an external store
		v.Do = fmt.Sprintf("Wait; `lockctl release --reason TEXT %s` takes its lock, which uses no retry: the task runs again.", ShellArg(j.x.resource))
	}
	if !j.e.Deadline.IsZero() {
		v.Clears = fmt.Sprintf("It ends when its handler returns; its context ends %s.", j.at(j.e.Deadline))
	}
	if j.x.lock.Revoking {
		v.Clears = fmt.Sprintf("Its context ends at its next renewal; the lock is free when its handler returns, and %s at the latest.", j.lockEnd())
		v.Do = fmt.Sprintf("Wait; `lockctl show %s` shows who waits.", ShellArg(j.x.resource))
	}
	return v
}

// lost is the verdict of a task whose handler goes on without the lock.
func (j judge) lost() Verdict {
	v := Verdict{
		Wrong:  fmt.Sprintf("Yes: the task has lost its lock while it ran%s.%s", j.onWorker(), j.history()),
		Clears: "Its context has ended; once the handler returns, the task waits a moment and runs again, and uses no retry. If the lock expires before that, the task counts as crashed, and runs again beside the handler.",
		Do:     "See why the worker could not renew its lock; if",
	}
	if j.takenFrom() {
		v.Do = "Wait; if"
	}
	v.Do += fmt.Sprintf(" the handler does not return, restart its worker. `lockctl show %s` shows who has the lock now.", ShellArg(j.x.resource))
	return v
}

// takenFrom reports whether an operator was the last to release the lock, and took it from this task.
func (j judge) takenFrom() bool {
	r := j.x.lock.Revoked
	return r != nil && isHolder(j.x.Message, j.x.First, r.Holder)
}

// atRest is the verdict of a task that no worker should have now.
func (j judge) atRest() Verdict {
	switch j.x.state {
	case StateScheduled:
		return Verdict{
			Wrong:  "No: its client has chosen a later time.",
			Clears: fmt.Sprintf("The task comes %s.%s", j.at(j.x.At), j.unlessStuck()),
			Do:     fmt.Sprintf("Wait, or run it now: %s.", j.run()),
		}
	case StateRetrying:
		return Verdict{
			Wrong:  fmt.Sprintf("Yes: the task has failed: %s.", strings.TrimSuffix(j.e.Failure, ".")),
			Clears: fmt.Sprintf("It runs again %s, as retry %d of %d.%s", j.at(j.x.At), j.e.Retried, j.e.Retries, j.unlessStuck()),
			Do:     fmt.Sprintf("Mend the cause, then run it now: %s.", j.run()),
		}
	case StateArchived:
		reason := strings.TrimSuffix(j.x.Sentence, ".")
		if reason == "" || j.x.Sentence != j.e.Failure { // it is still the sentence of a task that waits
			reason = "an operator has archived it"
		}
		return Verdict{
			Wrong:  fmt.Sprintf("Yes: the task is archived: %s.%s", reason, j.history()),
			Clears: "No: an archived task does not run again by itself.",
			Do:     fmt.Sprintf("Mend the cause, then run it: %s.", j.run()),
		}
	case StateCompleted:
		return Verdict{
			Wrong:  "No: the task has succeeded.",
			Clears: fmt.Sprintf("It is deleted %s.", j.at(j.x.At)),
			Do:     fmt.Sprintf("Nothing; `asynq task inspect --queue=%s --id=%s` shows its result.", ShellWord(j.x.Queue), ShellWord(j.x.ID)),
		}
	default:
		return Verdict{
			Wrong:  "No: the task waits for others of its group.",
			Clears: "asynq makes one task of the group when its time or its size is reached." + j.unlessStuck(),
			Do:     fmt.Sprintf("Wait; `asynq group ls --queue=%s` shows the group.", ShellWord(j.x.Queue)),
		}
	}
}

// unlessStuck says what keeps a task from running once it comes.
func (j judge) unlessStuck() string {
	switch {
	case j.x.Paused:
		return fmt.Sprintf(" It then waits until the queue %s is resumed.", j.x.Queue)
	case j.all == 0:
		return fmt.Sprintf(" It then waits until a server of the queue %s starts.", j.x.Queue)
	}
	return ""
}

// history says what has befallen the task before.
func (j judge) history() string {
	var before string
	if n := j.x.Crashes; n > 0 {
		before = fmt.Sprintf(" Before, its worker died or was cut off %s; %d such crashes use no retry.", times(n), j.tolerated())
	}
	if n := j.x.Losses; n > 0 {
		before += fmt.Sprintf(" Before, it lost its lock %s.", times(n))
	}
	if j.takenFrom() {
		r := j.x.lock.Revoked
		before += fmt.Sprintf(" At %s the operator %s took the lock from it: %s.", j.clock(r.At), r.By, r.Reason)
	}
	return before
}

// onWorker names the worker that has the task, if it is known.
func (j judge) onWorker() string {
	if j.x.worker == nil {
		return ""
	}
	return " on " + j.x.worker.Label()
}
