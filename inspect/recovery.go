package inspect

import (
	"fmt"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
)

const (
	// recovers is how soon recovery has requeued a task once it may.
	recovers = 3 * time.Second
	// asynqRecovers is how often asynq looks for tasks of dead workers.
	asynqRecovers = time.Minute
)

// tolerated is how many crashes of a task use no retry.
func (i *Inspector) tolerated() int { return max(0, i.cfg.Crashes) }

// leftToAsynq reports whether recovery leaves a task to asynq, see [queue.Recovery]. It may also leave one
// that is unnamed.
func (i *Inspector) leftToAsynq(resource string, crashes, retries int, started bool) bool {
	return resource == "" && !i.unnamed(resource) || crashes >= i.tolerated() || retries == 0 && started
}

// unnamed reports whether a task may have a resource that is not known here: its header names none, and
// the servers' Resources are not known.
func (i *Inspector) unnamed(resource string) bool { return resource == "" && len(i.cfg.Resources) == 0 }

// orphaned is the verdict of a task whose worker is dead or cut off.
func (j judge) orphaned() Verdict {
	worker := "its worker"
	if j.x.worker != nil {
		worker += " " + workerName(j.x.worker)
	}
	v := Verdict{
		Trouble: true,
		Wrong:   fmt.Sprintf("Yes: %s is dead or cut off from Redis, and Redis cannot tell which.%s", worker, j.history()),
		Clears:  j.runsAgain(j.x, "the task"),
		Do:      "Wait; see whether that worker lives.",
	}
	if j.x.holds() {
		v.Clears = fmt.Sprintf("The lock expires %s, and the next waiter is woken within %s.%s %s", j.lockEnd(), span(sweeps), j.there(), v.Clears)
		v.Do = "Wait, as the worker may still trust its lease; see whether it lives."
	}
	return v
}

// there says what the lock here does not.
func (j judge) there() string {
	if j.x.elsewhere {
		return " The lock in the external store expires by its own TTL."
	}
	return ""
}

// runsAgain says when a task runs again whose worker is dead or cut off. name is that of the task.
func (j judge) runsAgain(x *exam, name string) string {
	all, guarded := serving(j.servers, x.Queue)
	if all == 0 {
		return fmt.Sprintf("%s runs again only after a server of the queue %s starts.", capital(name), x.Queue)
	}
	if guarded == 0 || !x.Known || j.leftToAsynq(x.resource, x.Crashes, x.Message.Retries, x.Started) {
		why := name + " is left to asynq"
		if j.tolerated() > 0 && x.Crashes >= j.tolerated() {
			why = fmt.Sprintf("the worker of %s died or was cut off %s already, so it is left to asynq", name, times(x.Crashes))
		}
		return fmt.Sprintf("%s, %s", capital(why), j.byAsynq(x))
	}
	again := asynqredis.OrphanAt(x.Lease)
	if end := x.Now.Add(x.lock.Left); x.holds() && end.After(again) {
		again = end
	}
	if x.Now.After(again) {
		again = x.Now
	}
	by := j.by(again.Add(recovers))
	if j.unnamed(x.resource) {
		return fmt.Sprintf("If the servers' Resources name a resource of the kind %s, %s is requeued %s. Otherwise it is left to asynq, %s", x.Message.Kind, name, by, j.byAsynq(x))
	}
	return fmt.Sprintf("%s is requeued %s, as crash %d of %d that use no retry.", capital(name), by, x.Crashes+1, j.tolerated())
}

// byAsynq says what asynq does with a task whose worker is dead or cut off, and when.
func (j judge) byAsynq(x *exam) string {
	by := j.by(asynqredis.ExpiredAt(x.Lease).Add(asynqRecovers))
	if x.Message.Retried >= x.Message.Retries {
		return fmt.Sprintf("which archives it %s, as it has no retry left.", by)
	}
	return fmt.Sprintf("which runs it again %s and uses a retry.", by)
}
