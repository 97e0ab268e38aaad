package asynqredis

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidingq/siding/lock"
)

// An Attempt is one run of a task by this process, from its dequeue to its
// acknowledgement; of an asynq that is not the known one, from when its handler is about to begin.
// Its methods are safe for use by several goroutines.
type Attempt struct {
	Queue string
	ID    string
	Came  int64 // its ticket: when the task first came to its lock, in us by Redis' clock; or 0

	name    string // written into the task's hash by the dequeue; "" where that was not seen
	waited  bool   // the task's last error says for what it waited,
	failure string // and this was its own last failure, if any
	overdue string // how the task is archived where its deadline passed while it waited, or ""
	lease   int64  // when the lease that it began with ends, Unix seconds
	encoded string // the task, if asynq keeps it once it is done, or if no handler pinned attempts yet; else ""

	hook      *Hook    // nil if its dequeue was not seen
	fetcher   *Fetcher // the one of its server, nil if that is not known
	unique    string   // the task's key of uniqueness, or ""
	retention uint64   // for how many seconds asynq keeps the task once it is done

	ending   sync.Mutex  // held by what ends it: asynq's own call, or a Finish
	ended    bool        // asynq has called to end it; guarded by ending
	finished atomic.Bool // a Finish has ended it

	// earlier, guarded by the attempts' lock, is the one before it of this
	// process, as long as that is not acknowledged.
	earlier *Attempt
	beside  bool // an earlier one was untold when this one began; guarded likewise

	mu       sync.Mutex
	requeued bool // its task has been put back by a server that shuts down
	park     *Park
	grant    *lock.Grant // came with the dequeue, nil once it has been asked for
	pinned   bool
	ctx      context.Context //nolint:containedctx // the handler's: asynq ends it once it has ended the attempt; nil before it is pinned
	begun    bool            // it has been pinned
	touched  time.Time
}

// A Park says how an attempt is to be put aside.
type Park struct {
	// At is when the task's own timer fires; asynq keeps whole seconds.
	At time.Time
	// Ticket is its ticket in the line of the lock of that key. Without a key it stands in none,
	// and the ticket, if it is not 0, is the one under which it comes again.
	Ticket int64
	Key    string
	// Resource is what it waits for, which may not be what its header says.
	Resource string
	// Reason becomes the task's last error, with its own last failure behind it.
	Reason string
	// Done, if set, is told how often the task has been parked by now.
	Done func(parked int)
}

// Seen reports whether its dequeue was changed: the task has come to its lock under a ticket, if it
// has one, and the attempt has a name in Redis.
func (a *Attempt) Seen() bool { return a.name != "" }

// Park makes the acknowledgement put the task aside, whatever asynq says of it: that it is
// done, or to be retried, or to be archived.
func (a *Attempt) Park(p Park) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.park = &p
}

// Grant returns the lock that was taken with the task, once: it is the caller's from
// then on.
func (a *Attempt) Grant() (g lock.Grant, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.grant == nil {
		return g, false
	}
	g, a.grant = *a.grant, nil
	return g, true
}

// Pin keeps a known until the returned function is called, however long the handler runs. ctx is
// the handler's context.
func (a *Attempt) Pin(ctx context.Context) (unpin func()) {
	a.mu.Lock()
	a.ctx = ctx
	a.mu.Unlock()
	set := func(pinned bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.pinned, a.begun, a.touched = pinned, true, time.Now()
	}
	set(true)
	return func() { set(false) }
}

// Requeued reports whether the task has been put back into pending, as its server shuts down.
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

func (a *Attempt) parking() *Park {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.park
}

func (a *Attempt) atWork() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pinned
}

// untold reports whether a [Finish] has ended a, and asynq has not called to end it yet.
func (a *Attempt) untold() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.finished.Load() && (a.ctx == nil || a.ctx.Err() == nil)
}

// underWay reports whether asynq is about to call a's handler, or waits for the handler to return.
func (a *Attempt) underWay() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.begun || a.pinned && a.ctx.Err() == nil
}

// wasPinned reports whether its handler has been about to begin.
func (a *Attempt) wasPinned() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.begun
}

func (a *Attempt) staleSince(t time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.pinned && a.touched.Before(t)
}

// attempts holds the attempts that are under way in this process.
type attempts struct {
	mu    sync.Mutex
	byID  map[taskID]*Attempt
	swept time.Time
}

type taskID struct{ queue, id string }

// keepUnpinned is how long an attempt that nobody pins is remembered. asynq
// leaves one without an acknowledgement only when its lease has lapsed, a minute
// after which another server takes the task over.
const keepUnpinned = 10 * time.Minute

func (s *attempts) add(a *Attempt) {
	now := time.Now()
	a.touched = now
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID, s.swept = make(map[taskID]*Attempt), now
	}
	id, old := taskID{a.Queue, a.ID}, now.Add(-keepUnpinned)
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

// beside reports whether an earlier attempt of a's task was untold when a began.
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
// A done or completed call is for the oldest attempt that is untold. Since a [Finish] has ended that
// one, a task of the same id may have been enqueued, and may have begun.
//
// Otherwise the deadline of the call tells: it is the end of the attempt's lease. A lease never ends
// earlier than it did when its attempt began. So an earlier deadline belongs to an earlier attempt,
// which asynq has given up and which is still at work. A call without a deadline is for the latest
// attempt.
//
// The lease of the earlier attempt may have been renewed: in the second in which the later one
// began, or by another server of this process. So a retry or archive call is for an attempt that
// waits to be parked, if there is one. Taken for another's, the call would archive the task on its
// last attempt.
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
	// The handler of a is at work, or about to begin, so a has not failed. The call comes late, for an
	// earlier attempt.
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
