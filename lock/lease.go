package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Lease is one acquisition of a lock. It is never reused: a later lease of
// the same resource has another token, and an old one cannot touch it. Its
// methods are safe for use by several goroutines.
type Lease struct {
	locker   *Locker
	resource string
	token    string
	fence    int64
	handOff  time.Duration
	since    time.Time

	mu       sync.Mutex
	start    time.Time   // when the last call that Redis answered was sent
	lost     bool        // set once, never cleared
	expiry   *time.Timer // declares the lease lost at its deadline; set by Keep
	onLoss   func()      // set by Keep
	stop     func()      // ends renewal; set by Keep
	finish   func()      // ends the work's context; set by Keep
	stopped  chan struct{}
	released bool
}

// Resource returns what is locked.
func (l *Lease) Resource() string { return l.resource }

// Fence returns the lease's fencing token, see [Fence].
func (l *Lease) Fence() int64 { return l.fence }

// HandedOff returns how long the lock was reserved for this waiter before it
// came for it, by the Redis server's clock, and whether it was reserved at all.
func (l *Lease) HandedOff() (time.Duration, bool) { return max(0, l.handOff), l.handOff >= 0 }

// Held returns how long ago the lease was taken.
func (l *Lease) Held() time.Duration { return time.Since(l.since) }

// Valid reports whether the lease can still be trusted: it is neither lost nor
// released, and its deadline has not passed. The deadline is checked against the
// monotonic clock and, as that one may stand still while a machine is
// suspended, against the wall clock too.
func (l *Lease) Valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lost && !l.released && l.trusted()
}

// trusted reports whether now is within the trust window. l.mu is held, or l
// is not shared yet.
func (l *Lease) trusted() bool {
	now, window := time.Now(), l.window()
	return now.Sub(l.start) < window && now.Round(0).Sub(l.start.Round(0)) < window
}

func (l *Lease) window() time.Duration { return l.locker.cfg.TTL - l.locker.cfg.Margin }

// trust moves the deadline: Redis has answered a call that was sent at start.
func (l *Lease) trust(start time.Time) { l.start = start }

// Keep renews the lease every Config.RenewEvery until [Lease.Release] or
// [Lease.HandOff], and returns a context for the work that is done under it.
// The context carries the fencing token and ends with ctx; when the lease is lost
// it is cancelled with a cause that matches [ErrLost], before the server lets
// anybody else have the lock. Renewal does not stop when ctx ends: work that
// ignores its context is still protected until the lease is released. To end
// that, too, see [Lease.Abandon]. On a machine that was suspended for longer than
// the lease lives, the context ends with the next renewal after it woke up. Keep
// is called at most once; after the lease has ended it returns an ended context.
func (l *Lease) Keep(ctx context.Context) context.Context {
	work, cancel := context.WithCancelCause(WithFence(ctx, l.fence))
	lost := fmt.Errorf("lock: %s: %w", l.resource, ErrLost)

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost || l.released || !l.trusted() {
		cancel(lost) // it ended before the work could begin
		return work
	}
	renewal, stop := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan struct{})
	l.stop, l.stopped = stop, stopped
	l.finish = func() { cancel(nil) }
	l.onLoss = func() { cancel(lost) }
	l.expiry = time.AfterFunc(time.Until(l.start.Add(l.window())), l.lose)

	go func() {
		defer close(stopped)
		l.renewUntil(renewal)
	}()
	return work
}

// lose declares the lease lost. It is the one place that does.
func (l *Lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost || l.released {
		return
	}
	l.lost = true
	if l.onLoss != nil {
		l.onLoss()
	}
}

// renewUntil renews until ctx ends or the lease is lost. A renewal that fails
// for another reason than "not yours" is tried again soon, within the deadline.
func (l *Lease) renewUntil(ctx context.Context) {
	const retryEvery = 10 // tries in the time between two renewals
	every := l.locker.cfg.RenewEvery
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		switch err := l.Renew(ctx); {
		case err == nil:
			timer.Reset(every)
		case errors.Is(err, ErrLost):
			return
		default:
			timer.Reset(every / retryEvery)
		}
	}
}

// Renew prolongs the lease by the TTL from now. The call is bounded by the
// deadline that stood before it, so a slow answer cannot stretch the lease: past
// that deadline the answer is [ErrLost] even if Redis prolonged the key.
// Another error leaves the lease as it was.
func (l *Lease) Renew(ctx context.Context) error {
	l.mu.Lock()
	deadline := l.start.Add(l.window())
	dead := l.lost || l.released || !l.trusted()
	l.mu.Unlock()
	if dead {
		l.lose()
		return fmt.Errorf("lock: renew %s: %w", l.resource, ErrLost)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	start := time.Now()
	k, cfg := l.locker.keys(l.resource), l.locker.cfg
	ours, err := renewScript.Run(ctx, l.locker.rdb, []string{k.lock, k.grant}, l.token, ms(cfg.TTL), ms(l.locker.grantTTL())).Int()
	l.mu.Lock()
	valid := !l.lost && !l.released && l.trusted()
	kept := valid && err == nil && ours == 1
	if kept {
		l.trust(start)
		if l.expiry != nil {
			l.expiry.Reset(time.Until(start.Add(l.window())))
		}
	}
	l.mu.Unlock()
	switch {
	case kept:
		return nil
	case err != nil && valid:
		return fmt.Errorf("lock: renew %s: %w", l.resource, err)
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrLost, err)
	default:
		err = ErrLost
	}
	l.lose()
	return fmt.Errorf("lock: renew %s: %w", l.resource, err)
}

// Abandon stops the renewal without a release: the lease ends at its deadline,
// and with it the context of the work. It is for a holder that cannot be
// stopped and should not keep the resource for ever.
func (l *Lease) Abandon() { l.endRenewal() }

// endRenewal stops the renewal and waits until no renewal is under way, so that
// none can follow a release.
func (l *Lease) endRenewal() {
	l.mu.Lock()
	stop, stopped := l.stop, l.stopped
	l.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	<-stopped
}

// Release frees the lock and reserves it for nobody: those in line come by
// their own timers. The error matches [ErrLost] when the lease had ended
// before; another error is Redis's, and the lock then stays until its TTL. A
// second call does nothing. The call is sent even if ctx has ended already. Where
// nobody is in line, an answer that was lost and a client that then tries again
// by itself give [ErrLost], too: the second try finds no lock.
func (l *Lease) Release(ctx context.Context) error {
	_, err := l.end(ctx, 0)
	return err
}

// HandOff releases the lock like [Lease.Release], but keeps it for the head of
// the line, if there is one, for Config.Grace. The caller then has to call that
// waiter, see [Reservation].
func (l *Lease) HandOff(ctx context.Context) (*Reservation, error) {
	return l.end(ctx, l.locker.cfg.Grace)
}

func (l *Lease) end(ctx context.Context, grace time.Duration) (*Reservation, error) {
	l.mu.Lock()
	// What counts is whether the work ended in time. Should the deadline pass
	// while a renewal is waited for, Redis says whether the lock is still ours.
	again, lost := l.released, l.lost || !l.trusted()
	l.released = true
	if l.finish != nil {
		l.finish()
		l.expiry.Stop()
	}
	l.mu.Unlock()
	l.endRenewal()
	if again {
		return nil, nil //nolint:nilnil // released before: nothing to do, nobody to call
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	// A lost lease is released too: its key may still be there, and to wait
	// for its TTL would serve nobody.
	next, err := l.locker.release(ctx, l.resource, l.token, grace, "")
	if err == nil && lost {
		err = fmt.Errorf("lock: release %s: %w", l.resource, ErrLost)
	}
	return next, err
}
