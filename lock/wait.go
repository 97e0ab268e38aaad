package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
)

// Poll intervals of a waiter that no release wakes.
const (
	pollFirst   = 25 * time.Millisecond
	pollLongest = time.Second
	lookAgain   = 15 * time.Second // of the first in the wait queue, at the latest
)

// errNoAnswer says why a wait has ended before its first try.
var errNoAnswer = errors.New("the store has not answered yet")

// wait waits for the lock in the way of opts, until over.
func (l *Locker) wait(ctx context.Context, request lease.Request, opts *Options, over time.Time) (*lease.Lease, error) {
	if opts.Wait == Forever {
		return l.waitAs(ctx, request, opts)
	}
	waits, cancel := context.WithDeadlineCause(ctx, over, lease.ErrWaited)
	defer cancel()
	held, err := l.waitAs(waits, request, opts)
	if errors.Is(context.Cause(waits), lease.ErrWaited) && saysNothing(err) {
		broken := l.broken(ctx, request)
		if end := lease.EndOf(ctx); end != nil { // nothing was found out
			return nil, store.Because(err, end)
		}
		if broken != nil {
			return nil, acquireError(request.Resource, lease.EndOf(waits), broken)
		}
	}
	return held, err
}

// saysNothing reports whether the error of a wait that is over does not tell what is wrong with the store now: it may be busy
// news of long ago, there was no try, or the end of the wait cut off the only one.
func saysNothing(err error) bool {
	return errors.Is(err, ErrBusy) || errors.Is(err, errNoAnswer) || errors.Is(err, lease.ErrWaited) && errors.Is(err, context.DeadlineExceeded)
}

// overAt returns when a wait is over that begins now. Of two that have one lock each, and wait for the
// other's, nobody gets both if both give up at the same moment. So whoever has a lock already waits for less, by a random part of
// up to a quarter: one then gives up first, and releases what the other waits for.
func overAt(ctx context.Context, wait time.Duration) time.Time {
	if lease.Nested(ctx) {
		wait -= rand.N(wait/4 + 1)
	}
	return time.Now().Add(wait)
}

func (l *Locker) waitAs(ctx context.Context, request lease.Request, opts *Options) (*lease.Lease, error) {
	me := newContender(ctx, request)
	if opts.Retry != nil {
		return l.poll(ctx, me, request, opts.Retry, opts.Tries)
	}
	if _, ok := l.store.(store.JoinOrdered); !ok {
		leave, err := l.queue(ctx, me, request.Resource, queueing)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	if listener, ok := l.store.(store.Listener); ok {
		return l.waitInQueue(ctx, me, request, listener)
	}
	return l.poll(ctx, me, request, Exponential(pollFirst, pollLongest), 0)
}

// A look finds out for all whose wait for a lock ends now whether the store is there.
type look struct {
	done chan struct{} // closed with err
	err  error
}

// broken returns what is wrong with the store, nil if it answers. A waiter was told that the lock is busy perhaps long ago,
// and sleeps since: it would not notice that the store has gone. The end of ctx ends the look.
func (l *Locker) broken(ctx context.Context, request lease.Request) error {
	// With its defaults go-redis tries for two seconds to connect before it says what it met. A call that hangs takes the whole
	// time, and with a client that knows no deadlines longer.
	const longest = lease.CleanupTimeout
	key := l.client.Key(request.Resource)
	l.mu.Lock()
	now := l.looks[key]
	if now == nil {
		now = &look{done: make(chan struct{})}
		l.looks[key] = now
		l.client.Go(func() {
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
			defer cancel()
			now.err = l.client.Look(call, request)
			l.mu.Lock()
			delete(l.looks, key)
			l.mu.Unlock()
			close(now.done)
		})
	}
	l.mu.Unlock()
	timer := time.NewTimer(longest + longest/10)
	defer timer.Stop()
	select {
	case <-now.done:
		return now.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return errNoAnswer
}

// poll tries until it has the lock, ctx ends, retry gives up, or so many tries have failed, if that is more than 0.
func (l *Locker) poll(ctx context.Context, me *contender, request lease.Request, retry Retry, tries int) (*lease.Lease, error) {
	try := func() (*lease.Lease, error) { return l.try(ctx, request) }
	pause := func(_ error, n int) (time.Duration, bool) {
		if n == tries {
			return 0, false
		}
		return retry(n)
	}
	return l.persist(ctx, me, request.Resource, try, pause, nil)
}

// waitInQueue joins the wait queue, and tries when it is woken. It also tries at its fallback time,
// as a wake-up may be lost, or a holder may die.
func (l *Locker) waitInQueue(ctx context.Context, me *contender, request lease.Request, from store.Listener) (*lease.Lease, error) {
	n := l.listening(from) //nolint:contextcheck // it listens for others, too
	// An unreachable listener delays a process once, not each waiter.
	if end := l.client.Sleep(ctx, time.Until(n.since.Add(l.client.Config().HandoffTimeout)), n.first); end != nil {
		if errors.Is(end, ErrClosed) {
			return nil, acquireError(request.Resource, end, nil)
		}
		return nil, acquireError(request.Resource, end, errNoAnswer)
	}
	waiter, woken, leave := n.join(request.Resource)
	defer leave()
	request.Waiter = waiter
	try := func() (*lease.Lease, error) {
		request.Waited = time.Since(me.since)
		return l.attempt(ctx, request, func(error) {})
	}
	held, err := l.persist(ctx, me, request.Resource, try, untilNextTry, woken)
	if err != nil {
		l.client.Go(func() { l.leaveQueue(context.WithoutCancel(ctx), request) })
	}
	return held, err
}

// leaveQueue takes the waiter of request, who has given up, out of the wait queue. As the process
// still listens for the others, the lock would be reserved for that waiter. So leaveQueue tries again
// after a passing error, for a TTL at most, or until Close. After Close nobody listens, and a waiter
// that stays in the wait queue is dropped.
func (l *Locker) leaveQueue(ctx context.Context, request lease.Request) {
	for start := time.Now(); ; {
		call, cancel := context.WithTimeout(ctx, lease.CleanupTimeout)
		err := l.client.Leave(call, request)
		cancel()
		if err == nil || !lease.Passing(err) || time.Since(start) >= l.client.Config().TTL || l.client.Sleep(ctx, pollLongest, nil) != nil {
			return
		}
	}
}

// persist tries until it has the lock, ctx ends, or pause gives up after the nth error. woken ends
// a pause.
func (l *Locker) persist(
	ctx context.Context, me *contender, resource string, try func() (*lease.Lease, error), pause func(err error, n int) (time.Duration, bool), woken <-chan struct{},
) (*lease.Lease, error) {
	for n := 1; ; n++ {
		start := time.Now()
		held, err := try()
		end, busy := lease.EndOf(ctx), errors.Is(err, ErrBusy)
		switch {
		case err == nil || busy:
			me.failing = time.Time{}
		case end == nil && me.failing.IsZero():
			me.failing = start // not now: a call that hangs takes long
		}
		if err == nil {
			l.tell(me, nil)
			return held, nil
		}
		switch {
		case end != nil && me.last == nil && errors.Is(err, context.Cause(ctx)):
			return nil, err // it says more than end
		case me.last == nil || busy || end == nil && !errors.Is(err, ErrClosed):
			l.tell(me, err) // else the earlier error says more
		}
		if end == nil {
			delay, again := pause(err, n)
			if !again || !busy && (!lease.Passing(err) || time.Since(me.failing) >= l.client.Config().TTL) {
				return nil, err
			}
			end = l.client.Sleep(ctx, max(delay, time.Millisecond), woken)
		}
		if end != nil {
			return nil, acquireError(resource, end, me.last)
		}
	}
}

// untilNextTry is how long a waiter waits to be woken after the nth err.
func untilNextTry(err error, n int) (time.Duration, bool) {
	poll, _ := Exponential(pollFirst, pollLongest)(n)
	var busy *BusyError
	if !errors.As(err, &busy) {
		return poll, true
	}
	position := max(1, busy.Position)
	if busy.Foreign || busy.Remaining == 0 { // the lock is about to expire, or somebody has made it endless
		return min(poll*time.Duration(position), 30*pollLongest), true
	}
	left := busy.Remaining
	if position == 1 { // nobody tells that an operator gives the lock more room, or lets a start come sooner
		left = min(left, lookAgain)
	}
	// If the holder dies, the first in the wait queue takes the lock when it expires.
	return left + time.Millisecond + rand.N(pollFirst)*time.Duration(position-1), true
}
