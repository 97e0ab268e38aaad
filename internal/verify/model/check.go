package model

import (
	"fmt"
	"slices"
)

// broken returns the property that the step from one state to the next breaks, "" for none.
func (m *Model) broken(from, to *State, move Move) string {
	for _, check := range []func(from, to *State, move Move) string{m.holders, m.places, m.ticketed, m.outcomes, m.sets, m.order, m.servers, m.queues} {
		if broken := check(from, to, move); broken != "" {
			return broken
		}
	}
	return ""
}

// holders: whoever may trust a lock has it.
func (m *Model) holders(_, to *State, _ Move) string {
	for i := range to.Attempts {
		a := &to.Attempts[i]
		if a.Phase != Running || !a.Locked || a.Lost || a.Disowned {
			continue
		}
		for _, r := range m.Tasks[a.Task-1].Locks() {
			if to.Locks[r].Token != to.Holder(token(i)) {
				return fmt.Sprintf("one holder: task %d is at work, trusts lock %d, and does not have it", a.Task, r+1)
			}
		}
	}
	return ""
}

// places: a task is where its hash says, and in one place. Where a script has failed, it may be in another one
// as well.
func (m *Model) places(from, to *State, move Move) string {
	for n := range m.Tasks {
		id := ID(n + 1)
		was, t := &from.Tasks[n], &to.Tasks[n]
		pending := 0
		for _, other := range to.Queues[m.Tasks[n].Queue].Pending {
			if other == id {
				pending++
			}
		}
		there, waits := true, t.Status == Retry && (t.Set == Waits || t.Set == Held)
		switch t.Status {
		case Pending:
			there = pending > 0
		case Active:
			there = t.Lease != NoLease
		case Retry:
			there = t.Set != NotIn
		default:
		}
		spare := pending > 1 || t.Status != Pending && pending > 0 || t.Status != Active && t.Lease != NoLease || t.Status != Retry && t.Set != NotIn && !t.holds()
		misplaced, displaced := false, false
		for _, r := range m.Tasks[n].Locks() {
			spare = spare || t.Line[r] > 0 && t.Status == Active
			misplaced = misplaced || waits && t.Line[r] != t.Ticket
			displaced = displaced || was.Line[r] > 0 && t.Line[r] == 0 && t.Status == Retry && t.Ticket == was.Line[r]
		}
		back := (was.Status == Done || was.Status == Deleted || was.Status == Archived && was.Set != Stopped) && t.Status != was.Status && move.Event != EnqueueAgain
		switch {
		case back && move.Event != Failover && (was.Status != Archived || t.Status != Deleted):
			return fmt.Sprintf("one place: task %d is back, although it was gone", id)
		case !there:
			return fmt.Sprintf("lost: task %d is not where its hash says", id)
		case spare && !to.Torn:
			return fmt.Sprintf("one place: task %d is in more than one", id)
		case misplaced && !to.Damaged:
			return fmt.Sprintf("lost: task %d waits, and is not at its place in its line", id)
		case displaced && !to.Damaged && !to.Torn:
			return fmt.Sprintf("lost: task %d waits, and loses its place in its line", id)
		case was.Status == Active && t.Status == Pending && t.Known && move.Event != Failover:
			return fmt.Sprintf("order: task %d comes back, and not to its line", id)
		case t.Retried > 0 && t.Crashes <= FreeCrashes:
			return fmt.Sprintf("crashes: a free crash of task %d used a retry", id)
		}
	}
	return ""
}

// ticketed: a new ticket is later than all of its resources, and a task keeps its own until it has failed.
func (m *Model) ticketed(from, to *State, move Move) string {
	if move.Event == Failover {
		return ""
	}
	for n := range m.Tasks {
		was, t := &from.Tasks[n], &to.Tasks[n]
		if was.Ticket > 0 && t.Ticket != was.Ticket && t.hash() && (t.Set != Backoff || t.Ticket > 0) && move.Event != EnqueueAgain {
			return fmt.Sprintf("tickets: task %d has another one now", n+1)
		}
		for k := range m.Tasks {
			other := from.Tasks[k].Ticket
			if was.Ticket == 0 && k != n && m.share(n, k) && t.Ticket > 0 && t.Ticket <= other {
				return fmt.Sprintf("tickets: task %d gets one that is not later than that of task %d", n+1, k+1)
			}
		}
	}
	return ""
}

// outcomes: a task is moved by its latest attempt, or when that cannot trust its lock any more. It is done by
// one that has its lock.
func (m *Model) outcomes(from, to *State, move Move) string {
	if move.Event == Failover {
		return ""
	}
	for n := range m.Tasks {
		id := ID(n + 1)
		was, t := &from.Tasks[n], &to.Tasks[n]
		if was.Status == Active {
			a, is := &from.Attempts[was.Attempt-1], &to.Attempts[was.Attempt-1]
			lives := (a.Phase == Running || a.Phase == Ended || a.Phase == Begun && !a.Untrusted) && !a.Lost && !a.Disowned && a.Kind != Requeue
			works := is.Phase == Running || is.Phase == Begun || is.Phase == Ended && is.Result == NoResult && move.Event != StepFails
			own := !a.Locked && was.Lease == Runs || a.Locked && m.has(&from.Redis, id, from.Holder(was.Attempt))
			moved := t.Status != Active || t.Attempt != was.Attempt
			switch {
			case lives && works && own && moved && is.Task == id:
				return fmt.Sprintf("own outcome: task %d is taken from an attempt that may trust its lock", id)
			case t.Status == Done && a.Locked && !own:
				return fmt.Sprintf("own lock: task %d is done by an attempt that had lost its lock", id)
			}
			continue
		}
		if t.Status == Done && was.Status != Done || was.Status == Pending && t.Set == Backoff || was.Set != NotIn && t.Set != NotIn && was.Set != t.Set && was.Status != Pending && move.Event != TimeComes && move.Event != RetryHeld && move.Event != Retime {
			return fmt.Sprintf("own outcome: task %d is moved by an attempt that it has left", id)
		}
	}
	return ""
}

// sets: a lock with a line in a queue is in the ready set of that queue, and lists that line. The entry is due if
// the head could start.
func (m *Model) sets(_, to *State, move Move) string {
	if to.Damaged {
		return ""
	}
	for q := range uint8(MaxQueues) {
		for r := range uint8(MaxResources) {
			entry, head := to.Queues[q].Ready[r], m.head(&to.Redis, q, r)
			switch {
			case head == 0:
			case entry == NoEntry:
				return fmt.Sprintf("ready: lock %d has a line in queue %d, and no entry in the ready set", r+1, q+1)
			case to.Locks[r].Lines[q] == 0:
				return fmt.Sprintf("listed: lock %d does not list its line in queue %d", r+1, q+1)
			case to.Locks[r].Token == free && (entry == Expiry || entry == Later && to.Actions == m.Actions && !move.Event.action() || entry == Never && !to.Back) && m.startable(to, q, r):
				return fmt.Sprintf("score: lock %d is free, and its line in queue %d is to be looked at later", r+1, q+1)
			}
		}
	}
	return ""
}

// order: within the line of a queue the older ticket comes first, also that of a crashed task.
func (m *Model) order(from, to *State, move Move) string {
	if from.Damaged || to.Failed {
		return ""
	}
	for n := range m.Tasks {
		for _, r := range m.Tasks[n].Locks() {
			if broken := m.within(from, to, move, n, r); broken != "" {
				return broken
			}
		}
	}
	return ""
}

// within checks one task, in one of its lines.
func (m *Model) within(from, to *State, move Move, n int, r uint8) string {
	was, t, l := &from.Tasks[n], &to.Tasks[n], &to.Locks[r]
	locked := t.Status == Active && t.Known && l.Token == to.Holder(t.Attempt) && !l.Revoked
	if !locked || from.Locks[r].Token == l.Token && from.Attempts[t.Attempt-1].Phase != None {
		return ""
	}
	if joins := l.Token != t.Attempt; joins && (t.Crashes > 0 || to.task(to.Attempts[l.Token-1].Task).Crashes > 0) {
		return fmt.Sprintf("alone: task %d runs in a batch, and one of it has crashed", n+1)
	}
	if was.Line[r] > 0 && was.Line[r] != was.Ticket && was.Status != Active && t.Ticket == was.Line[r] {
		return fmt.Sprintf("heads: task %d starts at a place that is not its own", n+1)
	}
	for k, spec := range m.Tasks {
		before, other := &from.Tasks[k], &to.Tasks[k]
		if k == n || spec.Queue != m.Tasks[n].Queue || !slices.Contains(spec.Locks(), r) || other.Ticket == 0 || other.Ticket > t.Ticket {
			continue
		}
		waits := other.Status == Retry && other.Set == Waits && other.Line[r] > 0
		waits = waits || other.holds() && (other.Line[r] > 0 || before.Line[r] > 0 || before.Status == Active)
		waits = waits && (before.Status != Pending || before.Line[r] > 0)
		if other.Status == Active && (to.told(other.Attempt) || to.Holder(other.Attempt) == l.Token) {
			continue // its lock was somebody else's, and nothing keeps its place until its server has answered; or it is of the same batch
		}
		if waits || other.Status == Active && other.Known && before.Status == Active && move.Event != StepFails {
			return fmt.Sprintf("order: task %d starts before task %d, which has an older ticket", n+1, k+1)
		}
	}
	return ""
}

// told reports whether an attempt has lost its lock, and a step has said so.
func (s *State) told(attempt uint8) bool {
	a := &s.Attempts[attempt-1]
	return a.Phase == Ended && (a.Result == IsLost || a.Lost && a.Kind == Snooze)
}

// servers: a living server hears of each attempt that is begun for it, and has no more than it has slots.
func (m *Model) servers(from, to *State, move Move) string {
	for i := range to.Attempts {
		a := &to.Attempts[i]
		own := a.Task != 0 && to.task(a.Task).Status == Active && to.task(a.Task).Attempt == token(i) &&
			(!a.Locked || m.has(&to.Redis, a.Task, to.Holder(token(i))))
		switch {
		case from.Attempts[i].Phase == Begun && a.Phase == Gone && own && move.Event == Resend:
			return fmt.Sprintf("unheard: server %d sends a step again, and does not hear that it has task %d", a.Server+1, a.Task)
		case a.Phase == Begun && !to.Servers[a.Server].Waits:
			return fmt.Sprintf("unheard: server %d will never hear that it has task %d", a.Server+1, a.Task)
		case a.Phase == Gone && from.Attempts[i].Phase == None && (move.Event == ArriveAged || move.Event == Arrive && from.Servers[a.Server].Way == Older && from.Records[a.Server] != Forgotten):
			return fmt.Sprintf("unheard: a step for which nobody waits begins an attempt of task %d", a.Task)
		}
	}
	for n := range uint8(len(m.Servers)) {
		if to.working(n) > m.Servers[n].Slots {
			return fmt.Sprintf("slots: server %d has more attempts than slots", n+1)
		}
	}
	return ""
}

// queues: a lock is not kept for queues that nobody serves, and not taken from an older waiter of another queue to
// which it is offered. Within a queue, the ready set and pending take turns, and the resource that has been ready longest
// comes first.
func (m *Model) queues(from, to *State, move Move) string {
	if move.Event == Failover {
		return ""
	}
	for q := range uint8(MaxQueues) {
		servers := uint8(0)
		for n := range m.Servers {
			if m.serves(uint8(n), q) {
				servers++
			}
		}
		switch queue := &to.Queues[q]; {
		case to.Unfair:
			return "turns: a resource is served before one that was ready longer"
		case queue.PassedReady > servers:
			return fmt.Sprintf("turns: a resource is ready in queue %d, and pending is served again and again", q+1)
		case queue.PassedPending > servers:
			return fmt.Sprintf("turns: a task is pending in queue %d, and ready resources are served again and again", q+1)
		}
		for r := range uint8(MaxResources) {
			if broken := m.between(from, to, q, r); broken != "" {
				return broken
			}
		}
	}
	return ""
}

// between checks one lock and one queue of several.
func (m *Model) between(from, to *State, q, r uint8) string {
	was, l := &from.Locks[r], &to.Locks[r]
	oldest, quiet := l.oldest(), to.Actions == m.Actions && !from.Damaged && !to.Torn
	entry, before := to.Queues[q].Ready[r], from.Queues[q].Ready[r]
	older := oldest < MaxQueues && oldest != q && (to.Queues[oldest].Seen && from.Queues[oldest].Seen ||
		was.attempt() && m.Tasks[from.Attempts[was.Token-1].Task-1].Queue == oldest) // whose server has just freed the lock
	if l.Token == free && entry == Offer && before != Offer {
		switch {
		case quiet && !older:
			return fmt.Sprintf("offer: lock %d is kept from queue %d for a queue that nobody serves", r+1, q+1)
		case !l.Fresh && was.Lines[q] == l.Lines[q]: // a new head waits once
			return fmt.Sprintf("offer: lock %d is kept from queue %d once more", r+1, q+1)
		}
	}
	if !l.attempt() || l.Token == was.Token || was.Token == free && !was.Fresh || was.Token == Foreign || before.due() {
		return ""
	}
	id := to.Attempts[l.Token-1].Task
	older = older && (m.Tasks[id-1].Resource != Both || m.GoesOn(from, oldest, r)) // a set is offered nothing: it heeds a line that goes on
	if quiet && older && m.Tasks[id-1].Queue == q && l.Lines[oldest] < to.task(id).Ticket {
		return fmt.Sprintf("offer: task %d takes lock %d, which was offered to an older waiter of queue %d", id, r+1, oldest+1)
	}
	return ""
}
