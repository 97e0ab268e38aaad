package inspect

import (
	"fmt"
	"time"
)

const (
	// recovers is how soon a server has put a crashed task back, or ended its attempt, once it may.
	recovers = 3 * time.Second
	// asynqWaits is for how long after the end of its lease a task may still be at work whose server says what becomes of it if it
	// lives: as in asynq, or as its crash would use a retry although there were few.
	asynqWaits = 30 * time.Second
)

// tolerated is how many crashes of a task use no retry.
func (i *Inspector) tolerated() int { return max(0, i.cfg.Crashes) }

// usesRetry reports whether a crash of a task uses a retry, or archives the task. guarded and last are those of
// [taskredis.TaskLook], and crashes is how many there were before.
func (i *Inspector) usesRetry(guarded, last bool, crashes int) bool {
	return !guarded || last || crashes >= i.tolerated()
}

// orphaned is the verdict of a task whose worker is dead or cut off.
func (j judge) orphaned() Verdict {
	worker := "its worker"
	if j.x.worker != nil {
		worker += " " + j.x.worker.Label()
	}
	v := Verdict{
		Wrong:  fmt.Sprintf("Yes: %s is dead or cut off from Redis, and Redis cannot tell which.%s", worker, j.history()),
		Clears: j.runsAgain(j.x, "The task"),
		Do:     "Wait; see whether that worker lives.",
	}
	if j.x.holds() {
		v.Clears = fmt.Sprintf("The lock expires %s.%s %s", j.lockEnd(), j.there(), v.Clears)
		v.Do = "Wait, as the worker may still trust its lock; see whether it lives."
	}
	return v
}

// there says what the lock here does not.
func (j judge) there() string {
	if j.x.lock.elsewhere {
		return " The lock in the external store expires by its own TTL."
	}
	return ""
}

// runsAgain says when a task runs again whose worker is dead or cut off. name is that of the task, at the start of a sentence.
func (j judge) runsAgain(x *exam, name string) string {
	all, guarded := serving(j.servers, x.Queue)
	if all == 0 {
		return fmt.Sprintf("%s runs again only after a server of the queue %s starts.", name, x.Queue)
	}
	at := x.Lease
	if end := x.Now.Add(x.lock.Left); x.holds() && end.After(at) {
		at = end
	}
	usesRetry := j.usesRetry(x.Guarded, x.Last, x.Crashes)
	if guarded == 0 || usesRetry && (!x.Guarded || x.Lock == "" || x.Crashes < j.tolerated()) { // as upkeep_leases.lua
		at = at.Add(asynqWaits)
	}
	if x.Now.After(at) {
		at = x.Now
	}
	by := j.by(at.Add(recovers))
	switch {
	case !usesRetry && guarded > 0:
		return fmt.Sprintf("%s runs again before those that wait, %s, as crash %d of %d that use no retry.", name, by, x.Crashes+1, j.tolerated())
	case x.Message.Retried >= x.Message.Retry:
		return fmt.Sprintf("%s is archived %s, as it has no retry left.", name, by)
	}
	return fmt.Sprintf("%s uses a retry %s, and comes again after its delay.", name, by)
}
