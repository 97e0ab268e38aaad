package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// A tenure is the time for which one token holds a lock. The leases of one
// holder that took the lock again share it; the last to be released ends it.
type tenure struct {
	*Locker

	resource string
	key      string
	token    string
	holder   string
	fence    int64
	handOff  time.Duration
	since    time.Time
	maxHold  time.Duration // 0 for no end

	mu       sync.Mutex
	start    time.Time          // when the last call that the store answered was sent
	lost     error              // set once, never cleared
	leases   int                // not released yet
	released bool               // set with the last of them
	works    []*Lease           // those of them that are kept
	passing  chan struct{}      // closed at the end of the release under way; nil while none is
	freed    bool               // the store has answered a release
	retrying bool               // a release is sent again in the background
	expiry   *time.Timer        // declares it lost at its deadline
	renewal  *time.Timer        // begins to renew; set when it is first kept
	stop     context.CancelFunc // ends the renewing; set when that begins
	stopped  chan struct{}      // closed when it has ended
	unkept   bool               // it is not to be renewed any more
}

// enter is another lease of the same tenure, for its holder.
func (t *tenure) enter(reentrant bool) (*Lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.released:
		return nil, nil //nolint:nilnil // it is over: its holder is one like any other now
	case !t.valid():
		return nil, fmt.Errorf("lock: acquire %s again: %w", t.resource, t.why())
	case !reentrant:
		return nil, fmt.Errorf("lock: acquire %s again: %w", t.resource, ErrReentry)
	}
	t.leases++
	return &Lease{tenure: t}, nil
}

// valid reports whether the lock is held, as far as can be known. t.mu is held.
func (t *tenure) valid() bool { return t.lost == nil && !t.released && t.trusted() }

// trusted reports whether now is within the trust window. As the monotonic
// clock may stand still while a machine is suspended, the wall clock is asked,
// too. t.mu is held, or t is not shared yet.
func (t *tenure) trusted() bool {
	now, deadline := time.Now(), t.deadline()
	return now.Before(deadline) && now.Round(0).Before(deadline.Round(0))
}

// deadline is the end of the trust window. t.mu is held, or t is not shared yet.
func (t *tenure) deadline() time.Time {
	deadline := t.start.Add(t.cfg.TTL - t.cfg.Margin)
	if end := t.since.Add(t.maxHold); t.maxHold > 0 && end.Before(deadline) {
		return end
	}
	return deadline
}

// trust moves the deadline: the store has answered a call that was sent at start.
// Where the answer to a later one has come before, there is nothing to move.
// t.mu is held.
func (t *tenure) trust(start time.Time) {
	if start.Before(t.start) {
		return
	}
	t.start = start
	t.expiry.Reset(time.Until(t.deadline()))
}

// lose declares the tenure lost. It is the one place that does.
func (t *tenure) lose() {
	t.left(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost != nil || t.released {
		return
	}
	t.lost = t.why()
	t.expiry.Stop()
	for _, l := range t.works {
		l.end(t.cause())
	}
}

// why says what it is lost to, or would be if it were now: [ErrLost] or
// [ErrMaxHold]. t.mu is held.
func (t *tenure) why() error {
	switch {
	case t.lost != nil:
		return t.lost
	case t.maxHold > 0 && time.Since(t.since) >= t.maxHold:
		return ErrMaxHold
	default:
		return ErrLost
	}
}

// cause is what the contexts of its work are told when it is lost. t.mu is held.
func (t *tenure) cause() error { return fmt.Errorf("lock: %s: %w", t.resource, t.why()) }

// keep renews until the last lease has ended and returns a context for the work
// under one of them.
func (t *tenure) keep(ctx context.Context, l *Lease) context.Context {
	ctx = context.WithValue(WithFence(ctx, t.resource, t.fence), holding{t.Locker, t.key}, t)
	work, cancel := context.WithCancelCause(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.released || !t.valid() {
		cancel(t.cause()) // it ended before the work could begin
		return work
	}
	if l.cancels == nil {
		t.works = append(t.works, l)
	}
	l.cancels = append(l.cancels, cancel)
	if t.renewal == nil {
		// Most work is done before its first renewal, and then needs no goroutine for it.
		t.renewal = time.AfterFunc(t.cfg.RenewEvery, func() { t.renewing(context.WithoutCancel(ctx)) })
	}
	return work
}

// renewing renews until that is to end or the tenure is lost. A renewal that fails
// for another reason than "not yours" is tried again soon, within the deadline.
func (t *tenure) renewing(ctx context.Context) {
	const retryEvery = 10 // tries in the time between two renewals
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t.mu.Lock()
	if t.unkept {
		t.mu.Unlock()
		return
	}
	t.stop, t.stopped = stop, make(chan struct{})
	t.mu.Unlock()
	defer close(t.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		switch err := t.renew(ctx); {
		case err == nil:
			timer.Reset(t.cfg.RenewEvery)
		case errors.Is(err, ErrLost):
			return
		default:
			timer.Reset(t.cfg.RenewEvery / retryEvery)
		}
	}
}

func (t *tenure) renew(ctx context.Context) error {
	t.mu.Lock()
	deadline, valid := t.deadline(), t.valid()
	t.mu.Unlock()
	if !valid {
		return t.lostAt("renew", nil)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	start := time.Now()
	err := t.store.Renew(ctx, t.key, t.token, t.cfg.TTL, t.cfg.grantKeep())
	t.mu.Lock()
	valid = t.valid()
	if valid && err == nil {
		t.trust(start)
	}
	t.mu.Unlock()
	switch {
	case valid && err == nil:
		return nil
	case valid && !errors.Is(err, ErrLost):
		return fmt.Errorf("lock: renew %s: %w", t.resource, err)
	default:
		return t.lostAt("renew", err)
	}
}

// lostAt declares the tenure lost and returns the error of the call that saw it,
// with what the store said, if that was not the same.
func (t *tenure) lostAt(call string, err error) error {
	t.lose()
	t.mu.Lock()
	why := t.why()
	t.mu.Unlock()
	if err != nil && !errors.Is(err, ErrLost) {
		why = fmt.Errorf("%w: %w", why, err)
	}
	return fmt.Errorf("lock: %s %s: %w", call, t.resource, why)
}

// endRenewal stops the renewal and waits until none is under way, so that none
// can follow a release.
func (t *tenure) endRenewal() {
	t.mu.Lock()
	t.unkept = true
	if t.renewal != nil {
		t.renewal.Stop()
	}
	stop, stopped := t.stop, t.stopped
	t.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	<-stopped
}

// release ends lease l; with the last of them it releases the lock and passes it on. After that
// it does so again unless the store has answered.
func (t *tenure) release(ctx context.Context, l *Lease, line store.Line) (*store.Turn, error) {
	t.mu.Lock()
	if l.released {
		over := t.released
		t.mu.Unlock()
		if !over || !t.beginPassing() {
			return nil, nil //nolint:nilnil // released before: nothing to do, nobody to call
		}
		return t.passOn(ctx, line)
	}
	// What counts is whether the work ended in time. Should the deadline pass
	// while a renewal is waited for, the store says whether the lock is still ours.
	var lost error
	if !t.valid() {
		lost = fmt.Errorf("lock: release %s: %w", t.resource, t.why())
	}
	l.released = true
	if l.cancels != nil {
		t.works = slices.DeleteFunc(t.works, func(other *Lease) bool { return other == l })
		l.end(nil)
	}
	t.leases--
	last := t.leases == 0
	t.released = last
	if last {
		t.expiry.Stop()
		t.passing = make(chan struct{}) // who comes now waits until the renewal has ended, too
	}
	t.mu.Unlock()
	if !last {
		return nil, lost
	}
	t.endRenewal()
	defer t.left(t)
	// A lost lock is released, too: its key may still be there, and to wait for
	// its TTL would serve nobody.
	next, err := t.passOn(ctx, line)
	if lost != nil && err != nil && !errors.Is(err, ErrLost) {
		return next, fmt.Errorf("%w; %w", lost, err)
	}
	return next, cmp.Or(lost, err)
}
