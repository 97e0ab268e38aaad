package lock

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A desk is where the goroutines of one process meet that want the same lock, so
// that one of them asks the store at a time. They share the attempt, never the
// lock. Locker.mu guards it.
type desk struct {
	holder  *tenure   // the last that one of them got, nil when it is over
	callers []*caller // who share the next attempt
	trying  bool      // somebody serves them
	turns   [2]turns  // of those who wait in line, and of those who poll
}

// turns are those of some who wait in one way. The first has its turn; the others' are closed
// in order.
type turns []chan struct{}

// The ways to wait. Those who wait in one way take turns; they do not wait for the others, who
// may be slower than they.
const (
	waitsInLine = iota
	polls
)

// A caller is one call that tries once.
type caller struct {
	opts   Options
	done   <-chan struct{} // closed when it has gone
	answer chan<- answer
}

type answer struct {
	lease *Lease
	err   error
}

// offer hands a to the caller; false when it has gone.
func (c *caller) offer(a answer) bool {
	select {
	case c.answer <- a:
		return true
	case <-c.done:
		return false
	}
}

// deskOf returns the desk of key, and makes it. l.mu is held.
func (l *Locker) deskOf(key string) *desk {
	d := l.desks[key]
	if d == nil {
		d = &desk{}
		l.desks[key] = d
	}
	return d
}

// tidy drops a desk that nobody needs. l.mu is held.
func (l *Locker) tidy(key string) {
	if d := l.desks[key]; d != nil && d.unused() {
		delete(l.desks, key)
	}
}

func (d *desk) unused() bool {
	waiting := len(d.callers) + len(d.turns[waitsInLine]) + len(d.turns[polls])
	return d.holder == nil && !d.trying && waiting == 0
}

// arrived notes that t holds its lock, and left that it does so no longer.
func (l *Locker) arrived(t *tenure) {
	l.mu.Lock()
	l.deskOf(t.key).holder = t
	l.mu.Unlock()
	t.mu.Lock() // the timer may fire before it is in its place
	defer t.mu.Unlock()
	t.expiry = time.AfterFunc(time.Until(t.deadline()), t.lose)
}

func (l *Locker) left(t *tenure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.desks[t.key]; d != nil && d.holder == t {
		d.holder = nil
		l.tidy(t.key)
	}
}

// heldHere returns a BusyError when somebody at the desk holds the lock, as far
// as can be known, and nil otherwise. l.mu is held.
func (l *Locker) heldHere(d *desk) *BusyError {
	t := d.holder
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.valid() {
		return nil
	}
	return &BusyError{
		Resource:  t.resource,
		Holder:    t.holder,
		Since:     t.since,
		Remaining: time.Until(t.start.Add(l.cfg.TTL)),
	}
}

// try tries once. Those who come while another tries wait, and share the attempt
// after that: what the one under way finds may be older than their question.
func (l *Locker) try(ctx context.Context, resource string, opts Options) (*Lease, error) {
	key := l.key(resource)
	l.mu.Lock()
	d := l.deskOf(key)
	if !d.trying {
		if busy := l.heldHere(d); busy != nil {
			l.mu.Unlock()
			return nil, busy
		}
		d.trying = true
		l.mu.Unlock()
		return l.attempt(ctx, attempt{resource: resource, opts: opts, over: func() { l.tried(ctx, resource, d) }})
	}
	answers := make(chan answer)
	d.callers = append(d.callers, &caller{opts: opts, done: ctx.Done(), answer: answers})
	l.mu.Unlock()
	select {
	case a := <-answers:
		return a.lease, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("lock: acquire %s: %w", resource, endOf(ctx))
	}
}

// tried ends an attempt at the desk. Callers who came meanwhile are served in the
// background, so that nobody waits for others.
func (l *Locker) tried(ctx context.Context, resource string, d *desk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	callers := d.callers
	d.callers = nil
	if len(callers) == 0 {
		d.trying = false
		l.tidy(l.key(resource))
		return
	}
	l.acquiring.Go(func() {
		ctx := context.WithoutCancel(ctx)
		l.serve(ctx, resource, d, callers)
		l.tried(ctx, resource, d)
	})
}

// serve answers callers with one attempt. Only when the one on whose behalf it
// was made has gone meanwhile, what it got is given back and another is made.
func (l *Locker) serve(ctx context.Context, resource string, d *desk, callers []*caller) {
	var a answer
	for len(callers) > 0 && a.err == nil {
		l.mu.Lock()
		busy := l.heldHere(d)
		l.mu.Unlock()
		if busy != nil {
			a.err = busy
			break
		}
		first := callers[0]
		select {
		case <-first.done:
			callers = callers[1:]
			continue
		default:
		}
		a.lease, a.err = l.attempt(ctx, attempt{resource: resource, opts: first.opts, over: func() {}})
		if a.err == nil {
			callers = callers[1:]
			if !first.offer(a) {
				a.lease.tenure.giveBack(ctx)
			}
			a.lease = nil
		}
	}
	for _, caller := range callers {
		_ = caller.offer(a)
	}
}

// takeTurn waits until those at the desk who came before, and wait in the same way, have the
// lock, or have gone. The caller then is the one of them that contends for it, until it calls
// pass.
func (l *Locker) takeTurn(ctx context.Context, resource string, way int) (pass func(), err error) {
	key, turn := l.key(resource), make(chan struct{})
	l.mu.Lock()
	d := l.deskOf(key)
	turns := &d.turns[way]
	*turns = append(*turns, turn)
	if len(*turns) == 1 {
		close(turn)
	}
	l.mu.Unlock()
	pass = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		i := slices.Index(*turns, turn)
		*turns = slices.Delete(*turns, i, i+1)
		if i == 0 && len(*turns) > 0 {
			close((*turns)[0])
		}
		l.tidy(key)
	}
	if end := l.rest(ctx, nil, turn); end != nil {
		l.mu.Lock()
		busy := l.heldHere(d)
		l.mu.Unlock()
		pass()
		if busy == nil {
			busy = &BusyError{Resource: resource, Holder: "nobody yet, as others of this process wait for it"}
		}
		return nil, waitEnded(resource, end, busy)
	}
	return pass, nil
}
