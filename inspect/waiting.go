package inspect

import (
	"fmt"
	"strings"
)

// waiting is the verdict of a task that waits for its lock.
func (j judge) waiting() Verdict {
	l := j.e.Lock
	switch {
	case j.guarded == 0:
		return Verdict{
			Wrong:  fmt.Sprintf("Yes: no server of the queue %s takes locks, so none takes tasks that wait for them.", j.x.Queue),
			Clears: "Not before a guarded server of that queue starts. The task keeps its place.",
			Do:     fmt.Sprintf("Start a guarded worker of %s; `lockctl show %s` shows the holder.", ShellWord(j.x.Queue), ShellArg(j.x.resource)),
		}
	case j.guarded < j.all:
		return j.unguarded()
	case j.x.lock.Position == 0:
		return Verdict{
			Wrong:  "Yes: the task has lost its place, as after an eviction or a failover.",
			Clears: "A server puts it back, at its old place, when it comes upon it: within a minute, or later if many tasks wait.",
			Do:     fmt.Sprintf("Look again: `lockctl why %s`.", ShellArg(j.x.ID)),
		}
	}
	if v, ok := j.limited(l); ok {
		return v
	}
	switch l.State {
	case Foreign:
		return j.behindForeign(l)
	case Reserved:
		return Verdict{
			Wrong:  "No: the lock is reserved for a goroutine that came before.",
			Clears: fmt.Sprintf("That goroutine takes it, or its reservation ends %s, and the next waiter gets the lock.%s", j.lockEnd(), j.before()),
			Do:     fmt.Sprintf("Wait; `lockctl show %s` shows the reservation.", ShellArg(j.x.resource)),
		}
	case Held, Revoked:
		return j.behindHolder(l)
	case Free:
	}
	if j.x.state == StateReady {
		return j.ready()
	}
	if j.x.lock.elsewhere {
		return Verdict{
			Wrong:  "No: the first of the queue did not get the lock from its store: " + strings.TrimSuffix(j.e.LastError, ".") + "." + j.history(),
			Clears: "It asks again about once a second, and keeps its place." + j.before(),
			Do:     "Wait; if the lock is busy in its store, find the holder there.",
		}
	}
	return Verdict{
		Wrong:  "No: the lock is free for those who came before.",
		Clears: "The first waiter gets the lock as soon as a server of its queue has a free slot, or at its next look at the lock." + j.before(),
		Do:     fmt.Sprintf("Look again: `lockctl why %s`.", ShellArg(j.x.ID)),
	}
}

// unguarded is the verdict of a task that a server without locks may take.
func (j judge) unguarded() Verdict {
	bad := fmt.Sprintf("%d of %d servers of the queue %s take no locks, and run", j.all-j.guarded, j.all, j.x.Queue)
	if j.all-j.guarded == 1 {
		bad = fmt.Sprintf("1 of %d servers of the queue %s takes no locks, and runs", j.all, j.x.Queue)
	}
	return Verdict{
		Wrong:  fmt.Sprintf("Yes: %s tasks without their locks.", bad),
		Clears: "Not by itself: any server of the queue may take the task.",
		Do:     fmt.Sprintf("Pause the queue by `lockctl queue pause --reason TEXT %s`, stop each such server, and resume the queue; `lockctl doctor` names them.", ShellArg(j.x.Queue)),
	}
}

// before says how many come first; nothing of a task that has lost its place.
func (j judge) before() string {
	switch n := j.x.lock.Position; n {
	case 0:
		return ""
	case 1:
		return " This task is the first."
	case 2:
		return " This task is the second."
	default:
		return fmt.Sprintf(" %d waiters are before this task.", n-1)
	}
}

func (j judge) behindForeign(l *Lock) Verdict {
	v := Verdict{
		Wrong:  fmt.Sprintf("No fault is known: a program that is not Siding's holds %s.", j.x.resource),
		Clears: fmt.Sprintf("Unless that program renews the lock, it expires %s; the first waiter gets the lock then.%s", j.lockEnd(), j.before()),
		Do:     fmt.Sprintf("Wait, or ask who runs that program; `lockctl release --reason TEXT %s` takes the lock from it while it works.", ShellArg(j.x.resource)),
	}
	if l.Endless {
		v.Wrong = fmt.Sprintf("Yes: a program that is not Siding's holds %s without a TTL.", j.x.resource)
		v.Clears = fmt.Sprintf("Not by itself: only that program ends its lock; the first waiter gets it within a second after that.%s", j.before())
		v.Do = fmt.Sprintf("Ask who runs that program; if it is gone: `lockctl release --reason TEXT %s`.", ShellArg(j.x.resource))
	}
	return v
}

// behindHolder is the verdict of a task behind one that holds the lock.
func (j judge) behindHolder(l *Lock) Verdict {
	name := l.Holder
	if l.Task != nil {
		name = "the task " + l.Task.ID
		if l.Worker != nil {
			name += " on " + l.Worker.Label()
		}
	}
	if l.Gone {
		v := Verdict{
			Wrong:  fmt.Sprintf("Yes: the worker of the holder, %s, is dead or cut off from Redis, and Redis cannot tell which.", name),
			Clears: fmt.Sprintf("The lock expires %s.%s", j.lockEnd(), j.before()),
			Do:     "Wait, as the holder may still trust its lock; see whether that worker lives.",
		}
		if h := j.holder; h != nil && h.State == "active" {
			v.Clears += j.there() + " " + j.runsAgain(h, "The task of the holder")
		}
		return v
	}
	v := Verdict{
		Wrong:  fmt.Sprintf("No: %s.", j.holding(name, l)),
		Clears: fmt.Sprintf("When the holder ends, the first waiter gets the lock at once.%s", j.before()),
		Do:     fmt.Sprintf("Wait; `lockctl show %s` shows who waits.", ShellArg(j.x.resource)),
	}
	if l.Task != nil && j.x.lock.elsewhere { // lockctl cannot release a lock of an external store
		v.Do = fmt.Sprintf("Wait; `lockctl why %s` explains the holder.", ShellArg(l.Task.ID))
	} else if l.Task != nil {
		v.Do = fmt.Sprintf("Wait; `lockctl why %s` explains the holder, and `lockctl release --reason TEXT %s` takes the lock from it.", ShellArg(l.Task.ID), ShellArg(j.x.resource))
	}
	if l.State == Revoked {
		v.Wrong = fmt.Sprintf("No: an operator takes %s from %s.", j.x.resource, name)
		v.Clears = fmt.Sprintf("The first waiter gets the lock when the holder returns, and %s at the latest.%s", j.lockEnd(), j.before())
		v.Do = fmt.Sprintf("Wait; `lockctl show %s` says who took the lock, and why.", ShellArg(j.x.resource))
	}
	if l.Endless {
		v.Wrong = fmt.Sprintf("Yes: the lock of %s, which %s holds, has no TTL.", j.x.resource, name)
		v.Do = fmt.Sprintf("If that holder is gone, release the lock: `lockctl release --reason TEXT %s`.", ShellArg(j.x.resource))
	}
	return v
}

// holding says that name holds the lock, and since when if that is known.
func (j judge) holding(name string, l *Lock) string {
	if l.Since.IsZero() {
		return name + " holds " + j.x.resource
	}
	return fmt.Sprintf("%s has held %s since %s", name, j.x.resource, j.clock(l.Since))
}
