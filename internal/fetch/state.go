package fetch

// A state says what a fetcher does with the dequeues of its server.
type state int

const (
	scanning   state = iota // they are sent to Redis
	waiting                 // all queues are empty, and a dequeue is held back
	taking                  // a queue was notified, and a dequeue asks it
	delivering              // a prefetched task has come for the dequeue that is held back
	resting                 // the server was told that all queues are empty, and soon asks again
	gone                    // all queues are empty; the server runs tasks, or has stopped
)

// An event changes the state of a fetcher.
type event int

const (
	held        event = iota // all queues are empty, and a dequeue is held back from now on
	notified                 // a queue has a new task
	delivered                // a prefetched task has come
	unreachable              // notifications do not arrive: the server polls
	timedOut                 // the dequeue was held back for long enough
	overdue                  // the server has not asked again soon
	foundNone                // another fetcher or server has the task
	tookLast                 // a scan took a task, and left all queues empty
	claimedLast              // a dequeue claimed a prefetched task, and its queue is empty
	tookSome                 // a dequeue got a task or an error, and there may be more tasks
)

// transitions has the states that an event changes, and what they become.
var transitions = [...]map[state]state{
	held:        {scanning: waiting, resting: waiting, gone: waiting},
	notified:    {waiting: taking, resting: taking},
	delivered:   {waiting: delivering},
	unreachable: {waiting: scanning, resting: scanning},
	timedOut:    {waiting: resting},
	overdue:     {resting: gone},
	foundNone:   {taking: waiting, delivering: waiting},
	tookLast:    {scanning: gone, taking: gone},
	claimedLast: {delivering: gone, resting: gone}, // a notified queue is still asked
	tookSome:    {taking: scanning, delivering: scanning, resting: scanning, gone: scanning},
}

// next returns the state after an event.
func next(s state, e event) state {
	if to, changes := transitions[e][s]; changes {
		return to
	}
	return s
}
