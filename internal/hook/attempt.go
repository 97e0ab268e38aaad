package hook

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/store"
)

// An Attempt is one run of a task by this process, from its dequeue to its acknowledgement. With an
// asynq that is not the known one it begins when the handler is about to start. Its methods are safe
// for use by several goroutines.
type Attempt struct {
	asynqredis.Attempt

	message asynqredis.Message
	overdue string // how the task is archived if its deadline passed while it waited, or ""
	lease   int64  // when the lease that it started with ends, Unix seconds
	encoded string // the task, if asynq keeps it once it is done, or if no handler has run attempts yet; else ""

	hook    *Hook   // nil if its dequeue was not seen
	fetcher fetcher // the one of its server, nil if that is not known

	ending   sync.Mutex  // held by what ends it: asynq's own call, or a Finish
	ended    bool        // asynq has called to end it; guarded by ending
	finished atomic.Bool // a Finish has ended it

	// earlier, guarded by the attempts' lock, is the one before it of this
	// process, as long as that is not acknowledged.
	earlier *Attempt
	beside  bool // asynq had not ended an earlier one, which was done, when this one started; guarded likewise

	mu       sync.Mutex
	requeued bool // a server that shuts down has requeued its task
	park     *asynqredis.Park
	grant    *store.Grant // came with the dequeue, nil once Grant has returned it
	running  bool
	ctx      context.Context //nolint:containedctx // the handler's: asynq ends it once it has ended the attempt; nil before it runs
	started  bool            // its handler runs, or has run
	touched  time.Time
}

// Seen reports whether the hook changed the dequeue of a. Then the task has a ticket, and the attempt
// has a name in Redis.
func (a *Attempt) Seen() bool { return a.Name != "" }

// Park makes the acknowledgement park the task, whatever asynq sends: done, retry or archive.
func (a *Attempt) Park(p asynqredis.Park) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.park = &p
}

// Grant returns the lock that was taken with the task, once. From then on the lock is the caller's.
func (a *Attempt) Grant() (g store.Grant, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.grant == nil {
		return g, false
	}
	g, a.grant = *a.grant, nil
	return g, true
}

// Running keeps a known until the returned function is called, however long the handler runs. ctx is
// the handler's context.
func (a *Attempt) Running(ctx context.Context) (ended func()) {
	a.mu.Lock()
	a.ctx = ctx
	a.mu.Unlock()
	set := func(running bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.running, a.started, a.touched = running, true, time.Now()
	}
	set(true)
	return func() { set(false) }
}

// Requeued reports whether a server that shuts down has requeued the task.
func (a *Attempt) Requeued() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requeued
}

func (a *Attempt) requeue() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requeued = true
}

func (a *Attempt) parking() *asynqredis.Park {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.park
}

func (a *Attempt) atWork() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running
}

// untold reports whether a [Finish] has ended a, and asynq has not yet made its own call to end a.
func (a *Attempt) untold() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.finished.Load() && (a.ctx == nil || a.ctx.Err() == nil)
}

// underWay reports whether asynq is about to call a's handler, or waits for the handler to return.
func (a *Attempt) underWay() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.started || a.running && a.ctx.Err() == nil
}

// wasStarted reports whether the handler of a has started, or was about to.
func (a *Attempt) wasStarted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.started
}

func (a *Attempt) staleSince(t time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.running && a.touched.Before(t)
}

// attempts holds the attempts that are under way in this process.
type attempts struct {
	mu    sync.Mutex
	byID  map[taskID]*Attempt
	swept time.Time
}

type taskID struct{ queue, id string }

// keepIdle is how long an attempt that does not run is remembered. asynq leaves an attempt without an
// acknowledgement only when its lease has expired. Within a minute another server requeues the task.
const keepIdle = 10 * time.Minute

func (s *attempts) add(a *Attempt) {
	now := time.Now()
	a.touched = now
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID, s.swept = make(map[taskID]*Attempt), now
	}
	id, old := taskID{a.Queue, a.ID}, now.Add(-keepIdle)
	a.earlier = s.byID[id]
	for later := a; later.earlier != nil; {
		if later.earlier.staleSince(old) {
			later.earlier = later.earlier.earlier
		} else {
			later = later.earlier
		}
	}
	for e := a.earlier; e != nil; e = e.earlier {
		a.beside = a.beside || e.untold()
	}
	s.byID[id] = a
	if s.swept.Before(old) {
		s.swept = now
		for id, a := range s.byID {
			if a.staleSince(old) {
				delete(s.byID, id)
			}
		}
	}
}

func (s *attempts) get(queue, id string) *Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[taskID{queue, id}]
}

// beside reports whether an earlier attempt of a's task was untold when a started.
func (s *attempts) beside(a *Attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.beside
}

// overlaps reports whether an earlier attempt of a's task is still at work in this
// process.
func (s *attempts) overlaps(a *Attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := a.earlier; e != nil; e = e.earlier {
		if e.atWork() {
			return true
		}
	}
	return false
}

// acknowledging returns the attempt that a call of asynq's ends. asynq names only the task, of which
// this process may have several attempts.
//
// A done or completed call is for the oldest attempt that is untold. After a [Finish] has ended that
// attempt, a task of the same id may have been enqueued, and may have started.
//
// The deadline of any other call is the end of the attempt's lease. A lease never ends earlier than it
// did when its attempt started. So an earlier deadline belongs to an earlier attempt, which asynq has
// given up and which is still at work. A call without a deadline is for the latest attempt.
//
// The lease of the earlier attempt may have been renewed, in the second in which the later one started,
// or by another server of this process. So a retry or archive call is for an attempt that waits to be
// parked, if there is one. Otherwise the call would archive the task on its last attempt.
func (s *attempts) acknowledging(queue, id string, o op, deadline time.Time, ok bool) *Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.byID[taskID{queue, id}]
	if o == opDone || o == opComplete {
		var oldest *Attempt
		for e := a; e != nil; e = e.earlier {
			if e.untold() {
				oldest = e
			}
		}
		if oldest != nil {
			return oldest
		}
	}
	if !ok {
		return a
	}
	for a != nil && a.earlier != nil && deadline.Before(time.Unix(a.lease, 0)) {
		a = a.earlier
	}
	if o != opRetry && o != opArchive {
		return a
	}
	for e := a; e != nil; e = e.earlier {
		if e.parking() != nil {
			return e
		}
	}
	// The handler of a is at work, or about to start, so a has not failed. The call comes late, for
	// an earlier attempt.
	if a != nil && a.underWay() {
		for e := a.earlier; e != nil; e = e.earlier {
			if e.finished.Load() {
				return e
			}
		}
	}
	return a
}

// remove forgets a, but no other attempt of its task.
func (s *attempts) remove(a *Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := taskID{a.Queue, a.ID}
	later := s.byID[id]
	switch {
	case later != a:
		for later != nil && later.earlier != a {
			later = later.earlier
		}
		if later != nil {
			later.earlier = a.earlier
		}
	case a.earlier != nil:
		s.byID[id] = a.earlier
	default:
		delete(s.byID, id)
	}
}
