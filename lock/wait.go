package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/store"
)

// What a waiter in line does where nobody will call it.
const (
	pollFirst   = 25 * time.Millisecond
	pollLongest = time.Second
)

// waitByRetry tries until it has the lock, ctx ends or retry gives up.
func (l *Locker) waitByRetry(ctx context.Context, resource string, opts Options, retry Retry) (*Lease, error) {
	pass, err := l.takeTurn(ctx, resource, polls)
	if err != nil {
		return nil, err
	}
	defer pass()
	return l.persist(ctx, resource, &persistence{
		try:   func() (*Lease, error) { return l.try(ctx, resource, opts) },
		pause: func(_ error, n int) (time.Duration, bool) { return retry(n) },
	})
}

// waitInLine joins the line, and tries when it is called. Timers are there for a
// call that was lost and a holder that died.
func (l *Locker) waitInLine(ctx context.Context, resource string, opts Options) (*Lease, error) {
	listener, ok := l.store.(store.Listener)
	if !ok {
		return l.waitByRetry(ctx, resource, opts, Exponential(pollFirst, pollLongest))
	}
	since := time.Now()
	if _, ok := l.store.(store.JoinOrdered); !ok {
		pass, err := l.takeTurn(ctx, resource, waitsInLine)
		if err != nil {
			return nil, err
		}
		defer pass()
	}
	e := l.hearing(listener) //nolint:contextcheck // it hears for others, too
	// Where calls cannot be heard this is waited for once, not by each.
	if end := l.restFor(ctx, time.Until(e.since.Add(l.cfg.Grace)), e.first); end != nil {
		return nil, waitEnded(resource, end, nil)
	}
	waiter, bell, hangUp := e.join()
	defer hangUp()
	lease, err := l.persist(ctx, resource, &persistence{
		try: func() (*Lease, error) {
			a := attempt{resource: resource, opts: opts, waiter: waiter, waited: time.Since(since), over: func() {}}
			return l.attempt(ctx, a)
		},
		pause: untilNextTry,
		bell:  bell,
	})
	if err != nil {
		l.acquiring.Go(func() { l.leaveLine(context.WithoutCancel(ctx), resource, waiter) })
	}
	return lease, err
}

// leaveLine takes a waiter out of the line who has given up. As the process still
// hears for the others, the lock would be kept for it. So it tries again through a
// passing error, for a TTL at most, or until Close: then nobody hears, and who stays in
// line is dropped.
func (l *Locker) leaveLine(ctx context.Context, resource, waiter string) {
	var outage outage
	for {
		call, cancel := context.WithTimeout(ctx, cleanupTimeout)
		_, err := l.leave(call, l.key(resource), waiter, "", false, false)
		cancel()
		if err == nil || !outage.endures(err, l.cfg.TTL) || l.restFor(ctx, pollLongest, nil) != nil {
			return
		}
	}
}

// A persistence is one way to wait.
type persistence struct {
	try   func() (*Lease, error)
	pause func(err error, n int) (time.Duration, bool) // after the nth failure; false gives up
	bell  <-chan struct{}                              // ends a pause
}

// persist tries until it has the lock, ctx ends or p gives up.
func (l *Locker) persist(ctx context.Context, resource string, p *persistence) (*Lease, error) {
	var outage outage
	var last error
	for n := 1; ; n++ {
		lease, err := p.try()
		if err == nil {
			return lease, nil
		}
		end := endOf(ctx)
		if end == nil {
			last = err
			pause, again := p.pause(err, n)
			if !again || !outage.endures(err, l.cfg.TTL) {
				return nil, err
			}
			end = l.restFor(ctx, max(pause, time.Millisecond), p.bell)
		}
		if end != nil {
			return nil, waitEnded(resource, end, last)
		}
	}
}

// waitEnded is the error of a wait that ended without the lock; last is that of
// its last attempt, if there was one.
func waitEnded(resource string, end, last error) error {
	if last == nil {
		return fmt.Errorf("lock: acquire %s: %w", resource, end)
	}
	return fmt.Errorf("lock: acquire %s: %w: %w", resource, end, last)
}

// untilNextTry is how long a waiter in line that was refused waits to be called.
func untilNextTry(err error, n int) (time.Duration, bool) {
	poll, _ := Exponential(pollFirst, pollLongest)(n)
	var busy *BusyError
	if !errors.As(err, &busy) {
		return poll, true
	}
	place := max(1, busy.Place)
	if busy.Foreign {
		return min(poll*time.Duration(place), 30*pollLongest), true
	}
	// If the holder dies it is the first who takes the lock when it expires.
	return busy.Remaining + time.Millisecond + rand.N(pollFirst)*time.Duration(place-1), true
}

// restFor waits for bell, or d; the error is that of the end of ctx or of the Locker.
func (l *Locker) restFor(ctx context.Context, d time.Duration, bell <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return l.rest(ctx, timer.C, bell)
}

func (l *Locker) rest(ctx context.Context, timer <-chan time.Time, bell <-chan struct{}) error {
	select {
	case <-bell:
		return nil
	case <-timer:
		return nil
	case <-ctx.Done():
		return endOf(ctx)
	case <-l.closing:
		return ErrClosed
	}
}

// An outage is for how long the store has failed a waiter.
type outage struct{ since time.Time }

// endures reports whether a waiter tries again after err: when the lock is busy,
// or the store fails in a way that may pass, and has not done so for too long.
func (o *outage) endures(err error, longest time.Duration) bool {
	if errors.Is(err, ErrBusy) {
		o.since = time.Time{}
		return true
	}
	if o.since.IsZero() {
		o.since = time.Now()
	}
	return passing(err) && time.Since(o.since) < longest
}

// A passer is an error that knows whether it may pass.
type passer interface {
	error
	Passing() bool
}

// passing reports whether err may pass by itself, as those of the network do, and some answers of
// Redis. An error of another Store may say it itself.
func passing(err error) bool {
	if says, ok := errors.AsType[passer](err); ok {
		return says.Passing()
	}
	if redisreply.Answered(err) {
		return redisreply.Transient(err)
	}
	return true
}
