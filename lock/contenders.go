package lock

import (
	"context"
	"slices"

	"github.com/sidingq/siding/internal/lease"
)

// The contenders for one lock are the goroutines of this process that want it. One of them asks the
// store at a time. They share the attempt, never the lock. Locker.mu guards the fields.
type contenders struct {
	holder *lease.Lease // the last that one of them got, nil when it is over
	tries  []*try       // that share the next attempt
	trying bool         // an attempt is under way
	queues [2]waiters   // those who wait in the wait queue, and those who poll
}

// waiters are those who wait in one way. The first contends for the lock. The channels of the
// others are closed in order.
type waiters []chan struct{}

// The ways to wait. Those who wait in one way do not wait for the others, who may be slower.
const (
	queueing = iota
	polling
)

// A try is one call that tries once.
type try struct {
	request lease.Request
	done    <-chan struct{} // closed when the caller has gone
	outcome chan<- outcome
}

type outcome struct {
	held *lease.Lease
	err  error
}

// offer hands o to the caller; false if the caller has gone.
func (t *try) offer(o outcome) bool {
	select {
	case t.outcome <- o:
		return true
	case <-t.done:
		return false
	}
}

// contendersFor returns those for the lock of key, and makes them. l.mu is held.
func (l *Locker) contendersFor(key string) *contenders {
	c := l.contenders[key]
	if c == nil {
		c = &contenders{}
		l.contenders[key] = c
	}
	return c
}

// tidy drops contenders of whom none is left. l.mu is held.
func (l *Locker) tidy(key string) {
	c := l.contenders[key]
	if c != nil && c.holder == nil && !c.trying && len(c.tries)+len(c.queues[queueing])+len(c.queues[polling]) == 0 {
		delete(l.contenders, key)
	}
}

// took notes that this process holds the lock, until the lease ends, and starts the lease.
func (l *Locker) took(held *lease.Lease) {
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

// heldHere returns a BusyError if one of the contenders holds the lock, as far as can be known, and
// nil otherwise. l.mu is held.
func (c *contenders) heldHere() error {
	if c.holder == nil {
		return nil
	}
	if b := c.holder.Busy(); b != nil {
		return busy(b)
	}
	return nil
}

// try tries once. Those who come while another tries wait, and share the attempt after that: what
// the attempt under way finds may be older than their question.
func (l *Locker) try(ctx context.Context, request lease.Request) (*lease.Lease, error) {
	l.mu.Lock()
	c := l.contendersFor(l.client.Key(request.Resource))
	if !c.trying {
		if err := c.heldHere(); err != nil {
			l.mu.Unlock()
			return nil, err
		}
		c.trying = true
		l.mu.Unlock()
		return l.attempt(ctx, request, func() { l.tried(ctx, request.Resource, c) })
	}
	outcomes := make(chan outcome)
	c.tries = append(c.tries, &try{request: request, done: ctx.Done(), outcome: outcomes})
	l.mu.Unlock()
	select {
	case o := <-outcomes:
		return o.held, o.err
	case <-ctx.Done():
		return nil, acquireError(request.Resource, lease.EndOf(ctx), nil)
	}
}

// tried ends an attempt. Those who came meanwhile are served in the background, so that nobody waits
// for others.
func (l *Locker) tried(ctx context.Context, resource string, c *contenders) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tries := c.tries
	c.tries = nil
	if len(tries) == 0 {
		c.trying = false
		l.tidy(l.client.Key(resource))
		return
	}
	l.client.Go(func() {
		ctx := context.WithoutCancel(ctx)
		l.serve(ctx, c, tries)
		l.tried(ctx, resource, c)
	})
}

// serve answers tries with one attempt. It makes another one only if the caller for whom it was made
// has gone meanwhile.
func (l *Locker) serve(ctx context.Context, c *contenders, tries []*try) {
	var err error
	for len(tries) > 0 && err == nil {
		l.mu.Lock()
		err = c.heldHere()
		l.mu.Unlock()
		if err != nil {
			break
		}
		first := tries[0]
		select {
		case <-first.done:
			tries = tries[1:]
			continue
		default:
		}
		var held *lease.Lease
		if held, err = l.attempt(ctx, first.request, func() {}); err == nil {
			tries = tries[1:]
			if !first.offer(outcome{held: held}) {
				_ = held.Release(ctx)
			}
		}
	}
	for _, t := range tries {
		_ = t.offer(outcome{err: err})
	}
}

// queue waits until those of this process who came before, and wait in the same way, have the lock,
// or have gone. The caller then is the one of them that contends for it, until it calls leave.
func (l *Locker) queue(ctx context.Context, resource string, way int) (leave func(), err error) {
	key, first := l.client.Key(resource), make(chan struct{})
	l.mu.Lock()
	c := l.contendersFor(key)
	q := &c.queues[way]
	*q = append(*q, first)
	if len(*q) == 1 {
		close(first)
	}
	l.mu.Unlock()
	leave = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		i := slices.Index(*q, first)
		*q = slices.Delete(*q, i, i+1)
		if i == 0 && len(*q) > 0 {
			close((*q)[0])
		}
		l.tidy(key)
	}
	if end := l.client.Wait(ctx, nil, first); end != nil {
		l.mu.Lock()
		busy := c.heldHere()
		l.mu.Unlock()
		leave()
		if busy == nil {
			busy = &BusyError{Resource: resource, Holder: "nobody yet, as others of this process wait for it"}
		}
		return nil, acquireError(resource, end, busy)
	}
	return leave, nil
}
