package fetch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// HoldFor is how long a dequeue is held back at most. asynq fixes the end of the task's lease,
	// in 30 s, before the dequeue. So a hold takes that much away from the lease. A server that
	// ends without [Notifier.Close] may have to wait for as long.
	HoldFor = time.Second
	// backWithin is how soon a server that lives asks again: asynq sleeps for some ms.
	backWithin = 200 * time.Millisecond
	// parksFor is how long scans that only park tasks follow each other in one of asynq's rounds, as asynq
	// would sleep for some ms after each. Then asynq gets an answer: it may be about to stop.
	parksFor = 100 * time.Millisecond
	// sameRound is how soon after an answer without a task asynq asks the next queue of its round. Between
	// two rounds it sleeps for at least 5 ms.
	sameRound = 2 * time.Millisecond
	// claimsInRow is after how many prefetched tasks a fetcher asks all its queues again, although
	// it took them for empty. Quick handlers may keep it so busy that no notification reaches it.
	claimsInRow = 10
)

// A Task is what a dequeue has answered.
type Task struct {
	Message string // encoded, as asynq reads it
	Left    int64  // how many tasks are left in its queue, at least, also if none was taken
	Attempt any    // what requeues it; nil if the task cannot be read

	until time.Time // a prefetched task waits so long for a dequeue to claim it
}

// A Scan dequeues from the first of the queues that has a task. The error is redis.Nil if no task was
// taken. Only after [Notifier.AskTogether] there are several queues.
type Scan func(queues ...string) (Task, error)

// A Fetcher answers the dequeues of one server. An idle server asks one queue after the other,
// sleeps, and asks again. The fetcher lets the server find all queues empty once. Then it holds the
// dequeue back until a queue is notified, and answers with a task of that queue. So the server
// hardly ever sleeps, or asks in vain. The fetcher also keeps the tasks that were prefetched for its
// server, until a dequeue claims them.
type Fetcher struct {
	*Notifier // its mu guards all of these

	state     state
	woken     chan struct{} // closed when the fetcher waits no longer
	queue     string        // taking: the one that was notified
	since     time.Time     // when the state has changed
	attending bool          // it answers a dequeue
	emptyAt   time.Time     // when its last answer was that there is no task; zero if it was another one
	queues    []string      // the server's, nil while they are not known
	round     []string      // those asked since the round began
	claims    int           // how many prefetched tasks were claimed

	parksUntil time.Time // when scans that only park tasks end; zero before the first in asynq's round

	prefetched []Task      // in the order in which they came
	expiry     *time.Timer // fires when the first of them has waited too long
	unclaimed  time.Time   // when one was last requeued
}

// Fetcher returns what answers the dequeues of one more server.
func (n *Notifier) Fetcher() *Fetcher {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := &Fetcher{Notifier: n}
	f.expiry = time.AfterFunc(claimWithin, f.expire)
	n.fetchers = append(n.fetchers, f)
	return f
}

// Dequeue answers the server, which asks for a task of queue. The answer may be a task of another of
// the server's queues. Dequeue holds the answer back while all queues are empty.
func (f *Fetcher) Dequeue(ctx context.Context, queue string, scan Scan) (Task, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attending { // two servers share the connection, and the fetcher holds back one at a time
		if t, ok := f.pop(queue); ok {
			return t, nil
		}
		return f.unlocked(scan, queue)
	}
	if time.Since(f.emptyAt) > sameRound {
		f.parksUntil = time.Time{}
	}
	f.attending = true
	f.asked(queue)
	t, err := f.dequeue(ctx, queue, scan)
	for parked(t, err) && f.timeToPark() {
		f.emptyAt = time.Time{} // a prefetched task is claimed before the next scan
		t, err = f.dequeue(ctx, f.draw(queue), scan)
	}
	f.attending, f.emptyAt = false, time.Time{}
	if errors.Is(err, redis.Nil) {
		f.emptyAt = time.Now()
	}
	return t, err
}

// asked counts a queue as asked in asynq's round. A queue that was asked before begins another round. The
// fetcher then knows how many queues there are.
func (f *Fetcher) asked(queue string) {
	if slices.Contains(f.round, queue) {
		if len(f.round) > len(f.queues) {
			f.queues = slices.Clone(f.round)
		}
		f.round = f.round[:0]
	}
	f.round = append(f.round, queue)
}

// timeToPark reports whether another scan may follow one that has only parked tasks. The time begins with
// the first such scan in asynq's round.
func (f *Fetcher) timeToPark() bool {
	if f.parksUntil.IsZero() {
		f.parksUntil = time.Now().Add(parksFor)
	}
	return !f.closed() && time.Now().Before(f.parksUntil)
}

// to is the only method that writes the state. to reports whether e has changed the state.
func (f *Fetcher) to(e event) bool {
	was := f.state
	if f.state = next(was, e); f.state == was {
		return false
	}
	f.round, f.since = f.round[:0], time.Now()
	if was == waiting {
		close(f.woken)
	}
	if f.state == waiting {
		f.woken = make(chan struct{})
	}
	return true
}

// expects reports whether the server waits for a task, or is about to.
func (f *Fetcher) expects() bool {
	if f.state == resting && time.Since(f.since) > backWithin {
		f.to(overdue)
	}
	return f.state == waiting || f.state == resting
}

func (f *Fetcher) dequeue(ctx context.Context, queue string, scan Scan) (Task, error) {
	if t, ok := f.claim(queue); ok {
		return t, nil
	}
	if f.state == scanning {
		if t, err := f.take(scan, queue); !none(t, err) {
			return t, err
		}
	}
	if f.state != taking {
		var others []string
		if f.state != resting { // else each of asynq's round would be held back, and the server may be about to stop
			others = f.others(queue)
		}
		if f.state == scanning && len(others) > 0 {
			if t, err := f.take(scan, others...); !none(t, err) {
				return t, err
			}
		}
		switch {
		case len(others) > 0: // all are empty
			f.queues = append(others, queue)
		case len(f.round) == len(f.queues):
			f.queues = slices.Clone(f.round)
		default:
			return Task{}, redis.Nil // the last of a round is held back for all
		}
		f.wait(held, queue)
	}
	return f.hold(ctx, queue, scan)
}

// hold waits for a notification or a prefetched task. If neither comes, the server is told that
// there is no task. The server then sleeps for a moment and asks again.
func (f *Fetcher) hold(ctx context.Context, queue string, scan Scan) (Task, error) {
	ctx, cancel := context.WithTimeout(ctx, HoldFor)
	defer cancel()
	for {
		switch f.state {
		case waiting:
			f.untilWoken(ctx)
		case taking:
			if !f.together(queue, f.queue) { // a server of other queues shares the connection
				f.to(tookSome)
				return Task{}, redis.Nil
			}
			if t, err := f.take(scan, f.queue); !none(t, err) {
				return t, err
			}
			f.wait(foundNone, queue)
		case delivering:
			if t, ok := f.claim(queue); ok {
				return t, nil
			}
			f.wait(foundNone, queue)
		case scanning, resting, gone:
			return Task{}, redis.Nil
		}
	}
}

// untilWoken returns when the fetcher waits no longer, which it does until ctx ends.
func (f *Fetcher) untilWoken(ctx context.Context) {
	woken := f.woken
	f.mu.Unlock()
	select {
	case <-woken:
	case <-ctx.Done():
	}
	f.mu.Lock()
	switch {
	case ctx.Err() == nil:
	case f.unanswered(f.queues):
		f.to(unreachable)
	default:
		f.to(timedOut)
	}
}

// take dequeues from the first of the queues that has a task. If all queues were empty, and take gets
// the last task of the one that was notified, all are empty again.
func (f *Fetcher) take(scan Scan, queues ...string) (Task, error) {
	t, err := f.unlocked(scan, queues...)
	switch {
	case none(t, err):
	case parked(t, err):
		f.to(tookSome) // asynq goes on with its round
	default:
		f.took(err == nil && t.Left == 0 && (f.state == taking || len(f.queues) == 1), tookLast)
	}
	return t, err
}

// unlocked scans queues. The mutex is not held meanwhile.
func (f *Fetcher) unlocked(scan Scan, queues ...string) (Task, error) {
	f.mu.Unlock()
	defer f.mu.Lock()
	return scan(queues...)
}

// took begins another round. The event is that of the last task, if last is true.
func (f *Fetcher) took(last bool, e event) {
	if !last {
		e = tookSome
	}
	f.to(e)
	f.round = f.round[:0]
}

// none reports whether a scan found its queue empty.
func none(t Task, err error) bool { return errors.Is(err, redis.Nil) && t.Left == 0 }

// parked reports whether a scan has only parked tasks, and has left others in its queues.
func parked(t Task, err error) bool { return errors.Is(err, redis.Nil) && t.Left > 0 }
