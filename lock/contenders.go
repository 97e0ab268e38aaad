package lock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sidingq/siding/internal/lease"
)

// The contenders for one lock are the goroutines of this process that want the lock. At most two of
// them ask the store at a time. One is the first of those that wait in order, and the other the
// first of those that try. The others that try share an attempt if they ask for the same, never the
// lock. Locker.mu guards the fields.
type contenders struct {
	holder *lease.Lease // the last that one of them got, nil when it is over
	queues [2][]*contender
}

// The ways to want a lock. The first of each way goes on, and the others of that way wait behind
// it. No way waits for another, which may be slower.
const (
	queueing = iota // in the wait queue, if the store has one
	trying          // once; one that polls does so each time
)

// A contender is one of these goroutines. Locker.mu guards err and last.
type contender struct {
	terms   terms         // of its request
	since   time.Time     // when it came, or would have if it had not waited elsewhere
	first   chan struct{} // closed when nobody is before it
	err     error         // of an attempt by another that began after it had come
	last    error         // of the tries of one that waits; before them, of the one before it
	failing time.Time     // since when the store has failed these; zero if it has answered
}

// terms are what may have one request fail where another does not: what keeps it from the lock, and how long an answer may take.
type terms struct {
	rule string
	ttl  time.Duration
}

func termsOf(request lease.Request) terms { return terms{request.Rule.String(), request.TTL} }

// newContender counts how long the caller has waited elsewhere, see [lease.WithWaited].
func newContender(ctx context.Context, request lease.Request) *contender {
	return &contender{terms: termsOf(request), since: time.Now().Add(-lease.Waited(ctx)), first: make(chan struct{})}
}

// contendersFor returns the contenders for the lock of key. It makes them if there are none. The
// caller holds l.mu.
func (l *Locker) contendersFor(key string) *contenders {
	c := l.contenders[key]
	if c == nil {
		c = &contenders{}
		l.contenders[key] = c
	}
	return c
}

// tidy drops the contenders of key if none is left. The caller holds l.mu.
func (l *Locker) tidy(key string) {
	c := l.contenders[key]
	if c != nil && c.holder == nil && len(c.queues[queueing])+len(c.queues[trying]) == 0 {
		delete(l.contenders, key)
	}
}

// took notes that this process holds the lock, until the lease ends, and starts the lease.
func (l *Locker) took(held *lease.Lease) {
	if held.Shared() {
		held.Start(func() {}) // it keeps no other contender from the lock
		return
	}
	key := l.client.Key(held.Resource())
	l.mu.Lock()
	l.contendersFor(key).holder = held
	l.mu.Unlock()
	held.Start(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if c := l.contenders[key]; c != nil && c.holder == held {
			c.holder = nil
			l.tidy(key)
		}
	})
}

// heldHere returns a BusyError if one of the contenders is known to hold the lock, and nil
// otherwise. The caller holds l.mu.
func (c *contenders) heldHere() error {
	if c.holder == nil {
		return nil
	}
	if b := c.holder.Busy(); b != nil {
		return (*BusyError)(b)
	}
	return nil
}

// try tries once. Goroutines that come while another tries wait, and share the attempt after that.
// They cannot share the one under way, which may have found the lock busy before they came.
func (l *Locker) try(ctx context.Context, request lease.Request) (*lease.Lease, error) {
	leave, err := l.queue(ctx, newContender(ctx, request), request.Resource, trying)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	c := l.contenders[l.client.Key(request.Resource)]
	var sharing []*contender
	if err = c.queues[trying][0].err; err == nil {
		err = c.heldHere()
	}
	if err == nil {
		mine := termsOf(request)
		sharing = slices.DeleteFunc(slices.Clone(c.queues[trying]), func(other *contender) bool { return other.terms != mine })
	}
	l.mu.Unlock()
	if err != nil {
		leave()
		return nil, err
	}
	return l.attempt(ctx, request, func(err error) {
		// The end of ctx does not concern the others. Neither may an error that does not pass, such as
		// that of a TTL which is too short.
		if lease.EndOf(ctx) == nil && (errors.Is(err, ErrBusy) || lease.Passing(err)) {
			l.mu.Lock()
			for _, other := range sharing {
				other.err = err
			}
			l.mu.Unlock()
		}
		leave()
	})
}

// queue waits until all contenders of the same way that came before me have the lock, or have gone. I am then the first, until
// leave is called. But if the store has failed those before for as long as I would go on, their error is mine.
func (l *Locker) queue(ctx context.Context, me *contender, resource string, way int) (leave func(), err error) {
	key := l.client.Key(resource)
	l.mu.Lock()
	c := l.contendersFor(key)
	q := &c.queues[way]
	at := len(*q)
	for at > 1 && (*q)[at-1].since.After(me.since) { // the first one goes on
		at--
	}
	if *q = slices.Insert(*q, at, me); len(*q) == 1 {
		close(me.first)
	}
	l.mu.Unlock()
	leave = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		i := slices.Index(*q, me)
		*q = slices.Delete(*q, i, i+1)
		if i == 0 && len(*q) > 0 {
			next := (*q)[0]
			if me.failing.IsZero() || next.terms == me.terms { // else next may get an answer where I got none
				next.last = behind(me.last)
			}
			if next.failing = me.failing; !me.failing.IsZero() && next.since.After(me.failing) {
				next.failing = next.since
			}
			close(next.first)
		}
		l.tidy(key)
	}
	end := l.client.Wait(ctx, nil, me.first)
	if end == nil && way == queueing {
		end = lease.EndOf(ctx) // at the same moment: it has no time left for a try
	}
	switch {
	case end != nil:
		l.mu.Lock()
		err = acquireError(resource, end, cmp.Or(c.heldHere(), behind((*q)[0].last), errNoAnswer))
		l.mu.Unlock()
	case !me.failing.IsZero() && me.last != nil && time.Since(me.failing) >= l.client.Config().TTL:
		err = me.last
	default:
		return leave, nil
	}
	leave()
	return nil, err
}

// tell notes what became of a try of mine, for those behind me.
func (l *Locker) tell(me *contender, last error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	me.last = last
}

// behind returns what the last error of the first one says to those behind it, who are in no wait queue.
func behind(last error) error {
	if busy, ok := errors.AsType[*BusyError](last); ok {
		other := *busy
		other.Position = 0
		return &other
	}
	return last
}
