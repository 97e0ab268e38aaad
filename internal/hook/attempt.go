package hook

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/store"
)

// An Attempt is one run of a task by this process, from its dequeue to its acknowledgement. With an
// asynq that is not the known one, an attempt begins when its handler is about to start. The
// methods of an Attempt are safe for use by several goroutines.
type Attempt struct {
	asynqredis.Attempt

	key     string // of the task's hash
	message asynqredis.Message
	overdue string // how the task is archived if its deadline passed while it waited, or ""
	lease   int64  // when the lease that it started with ends, Unix seconds
	encoded string // the task, if asynq keeps it once it is done; else ""

	server server // the one that dequeued the task; without a fetcher if that one is not known

	ending                sync.Mutex  // held by what ends it: asynq's own call, or a Finish
	ended                 bool        // asynq has called to end it; guarded by ending
	finished              atomic.Bool // a Finish has ended it
	requeued              atomic.Bool // a server that shuts down has requeued its task
	earlierUnacknowledged bool        // see EarlierUnacknowledged

	// The lock of the attempts guards these.
	park    *asynqredis.Park
	grant   *store.Grant    // came with the dequeue, nil once Grant has returned it
	ctx     context.Context //nolint:containedctx // the handler's: asynq ends it once it has ended the attempt; nil before the handler starts
	running bool            // its handler has started, and has not returned
	touched time.Time
}

// Seen reports whether the hook changed the dequeue of a. Then the task has a ticket, and the attempt
// has a name in Redis.
func (a *Attempt) Seen() bool { return a.Name != "" }

// Park makes the acknowledgement park the task, whatever asynq sends: done, retry or archive.
func (a *Attempt) Park(p asynqredis.Park) {
	a.server.running.Lock()
	defer a.server.running.Unlock()
	a.park = &p
}

// Grant returns the lock that was taken with the task, once. From then on the lock is the caller's.
func (a *Attempt) Grant() (g store.Grant, ok bool) {
	a.server.running.Lock()
	defer a.server.running.Unlock()
	if a.grant == nil {
		return g, false
	}
	g, a.grant = *a.grant, nil
	return g, true
}

// WaitedFor reports whether the task was parked for resource before this attempt, and who held the
// lock then.
func (a *Attempt) WaitedFor(resource string) (holder string, waited bool) {
	return a.message.WaitedFor(resource)
}

// Interrupted reports whether the task was requeued or parked before this attempt for another cause than
// that its resource was busy: a crash, a loss, or a Redis that did not answer.
func (a *Attempt) Interrupted(resource string) bool {
	_, waited := a.message.WaitedFor(resource)
	return a.message.Waited && !waited
}

// Running keeps a known until the returned function is called, however long the handler runs. ctx is
// the handler's context.
func (a *Attempt) Running(ctx context.Context) (ended func()) {
	a.server.running.Lock()
	defer a.server.running.Unlock()
	a.ctx, a.running = ctx, true
	return func() {
		a.server.running.Lock()
		defer a.server.running.Unlock()
		a.running, a.touched = false, time.Now()
	}
}

// Requeued reports whether a server that shuts down has requeued the task.
func (a *Attempt) Requeued() bool { return a.requeued.Load() }

// EarlierUnacknowledged reports whether a [Finish] had ended an earlier task of a's id when a
// started, and asynq had not acknowledged that task yet. By its acknowledgement asynq forgets the
// lease of a, as the two tasks have one id.
func (a *Attempt) EarlierUnacknowledged() bool { return a.earlierUnacknowledged }

func (a *Attempt) parking() *asynqredis.Park {
	a.server.running.Lock()
	defer a.server.running.Unlock()
	return a.park
}

// Overlaps reports whether an earlier attempt of a's task is still at work in this process. For two
// attempts at once asynq keeps one lease, which may be the wrong one.
func (a *Attempt) Overlaps() bool {
	s := &a.server.running
	s.Lock()
	defer s.Unlock()
	all := s.byTask[a.key]
	earlier := all[:max(0, slices.Index(all, a))]
	return slices.ContainsFunc(earlier, func(e *Attempt) bool { return e.running })
}

// The lock of the attempts is held for the methods that follow.

// unacknowledged reports whether a [Finish] has ended a, and asynq has not yet made its own call to end a.
func (a *Attempt) unacknowledged() bool {
	return a.finished.Load() && (a.ctx == nil || a.ctx.Err() == nil)
}

// underWay reports whether asynq is about to call a's handler, or waits for the handler to return.
func (a *Attempt) underWay() bool {
	return a.ctx == nil || a.running && a.ctx.Err() == nil
}

func (a *Attempt) staleSince(t time.Time) bool { return !a.running && a.touched.Before(t) }

// attempts holds the attempts that are under way in this process.
type attempts struct {
	sync.Mutex

	byTask map[string][]*Attempt // by the task's key; those of a task in the order in which they started
	swept  time.Time
}

// keepIdle is how long an attempt that does not run is remembered. asynq leaves an attempt without
// an acknowledgement only when the attempt's lease has expired. Within a minute another server
// requeues the task.
const keepIdle = 10 * time.Minute

func (s *attempts) add(a *Attempt) {
	s.Lock()
	defer s.Unlock()
	now := time.Now()
	a.key, a.touched = asynqredis.TaskKey(a.Queue, a.ID), now
	if s.byTask == nil {
		s.byTask, s.swept = make(map[string][]*Attempt), now
	}
	old := now.Add(-keepIdle)
	earlier := slices.DeleteFunc(s.byTask[a.key], func(e *Attempt) bool { return e.staleSince(old) })
	a.earlierUnacknowledged = slices.ContainsFunc(earlier, (*Attempt).unacknowledged)
	s.byTask[a.key] = append(earlier, a)
	if s.swept.Before(old) {
		s.swept = now
		maps.DeleteFunc(s.byTask, func(_ string, all []*Attempt) bool { return all[len(all)-1].staleSince(old) })
	}
}

// latest returns the latest attempt of the task with a key, or nil. It also returns whether the
// handler of that attempt has started.
func (s *attempts) latest(key string) (a *Attempt, started bool) {
	s.Lock()
	defer s.Unlock()
	all := s.byTask[key]
	if len(all) == 0 {
		return nil, false
	}
	a = all[len(all)-1]
	return a, a.ctx != nil
}

// acknowledging returns the attempt that a call of asynq's ends. asynq names only the task, of which
// this process may have several attempts.
//
// A done or completed call is for the oldest attempt that is unacknowledged. Since a [Finish] ended
// that attempt, a task of the same id may have been enqueued, and may have started.
//
// The deadline of any other call is the end of the attempt's lease. The end of a lease only moves
// on. So a deadline before the end of the latest lease belongs to an earlier attempt. asynq has
// given that attempt up, and it is still at work. A call without a deadline is for the latest
// attempt.
//
// But the lease of the earlier attempt may have been renewed in the second in which the later one
// started. Another server of this process may have renewed it, too. So a retry or archive call is
// for an attempt that waits to be parked, if there is one. Otherwise the call would archive the
// task on its last attempt.
func (s *attempts) acknowledging(key string, o op, deadline time.Time, ok bool) *Attempt {
	s.Lock()
	defer s.Unlock()
	all := s.byTask[key]
	if len(all) == 0 {
		return nil
	}
	if o == opDone || o == opComplete {
		if oldest := slices.IndexFunc(all, (*Attempt).unacknowledged); oldest >= 0 {
			return all[oldest]
		}
	}
	last := len(all) - 1
	for ok && last > 0 && deadline.Before(time.Unix(all[last].lease, 0)) {
		last--
	}
	a, earlier := all[last], all[:last]
	if !ok || o != opRetry && o != opArchive {
		return a
	}
	for _, e := range slices.Backward(all[:last+1]) {
		if e.park != nil {
			return e
		}
	}
	// The handler of a is at work, or about to start, so a has not failed. The call comes late, for
	// an earlier attempt.
	if a.underWay() {
		for _, e := range slices.Backward(earlier) {
			if e.finished.Load() {
				return e
			}
		}
	}
	return a
}

// claimed records that a dequeue has returned a's task to asynq. For asynq the lease ends as that dequeue
// says. The dequeue may have waited, so the lease of a prefetched task may end later.
func (s *attempts) claimed(a *Attempt, leaseEnds any) {
	s.Lock()
	defer s.Unlock()
	if ends, ok := leaseEnds.(int64); ok {
		a.lease = min(a.lease, ends)
	}
}

// remove forgets a, but no other attempt of its task.
func (s *attempts) remove(a *Attempt) {
	s.Lock()
	defer s.Unlock()
	if left := slices.DeleteFunc(s.byTask[a.key], func(e *Attempt) bool { return e == a }); len(left) > 0 {
		s.byTask[a.key] = left
	} else {
		delete(s.byTask, a.key)
	}
}
