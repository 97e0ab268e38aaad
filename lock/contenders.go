package lock

import (
	"context"
	"slices"

	"github.com/sidingq/siding/internal/lease"
)

// The contenders for one lock are the goroutines of this process that want it. One of them in each
// way asks the store at a time. They share the attempt, never the lock. Locker.mu guards the fields.
type contenders struct {
	holder *lease.Lease // the last that one of them got, nil when it is over
	queues [3][]*contender
}

// The ways to want a lock. Those of one way do not wait for the others, who may be slower. The first
// of each contends for the lock.
const (
	queueing = iota // in the wait queue
	polling
	trying // once; also one who polls does, each time
)

// A contender is one of them. Locker.mu guards err.
type contender struct {
	first chan struct{} // closed when nobody is before it
	err   error         // of an attempt by another that began after it had come
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
	if c != nil && c.holder == nil && len(c.queues[queueing])+len(c.queues[polling])+len(c.queues[trying]) == 0 {
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
	leave, err := l.queue(ctx, request.Resource, trying)
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
		sharing = slices.Clone(c.queues[trying])
	}
	l.mu.Unlock()
	if err != nil {
		leave()
		return nil, err
	}
	return l.attempt(ctx, request, func(err error) {
		if lease.EndOf(ctx) == nil { // else the others are not concerned
			l.mu.Lock()
			for _, other := range sharing {
				other.err = err
			}
			l.mu.Unlock()
		}
		leave()
	})
}

// queue waits until those of this process who came before, and want the lock in the same way, have
// it, or have gone. The caller then is the one of them that contends for it, until it calls leave.
func (l *Locker) queue(ctx context.Context, resource string, way int) (leave func(), err error) {
	key, me := l.client.Key(resource), &contender{first: make(chan struct{})}
	l.mu.Lock()
	c := l.contendersFor(key)
	q := &c.queues[way]
	*q = append(*q, me)
	if len(*q) == 1 {
		close(me.first)
	}
	l.mu.Unlock()
	leave = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		i := slices.Index(*q, me)
		*q = slices.Delete(*q, i, i+1)
		if i == 0 && len(*q) > 0 {
			close((*q)[0].first)
		}
		l.tidy(key)
	}
	if end := l.client.Wait(ctx, nil, me.first); end != nil {
		l.mu.Lock()
		busy := c.heldHere()
		l.mu.Unlock()
		leave()
		if busy == nil && way != trying {
			busy = &BusyError{Resource: resource, Holder: "nobody yet, as others of this process wait for it"}
		}
		return nil, acquireError(resource, end, busy)
	}
	return leave, nil
}
