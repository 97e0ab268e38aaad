package lease

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// release ends lease l. With the last lease it releases the lock and hands it off. After that it
// does so again unless the store has answered.
func (h *holding) release(ctx context.Context, l *Lease, by store.Release) (*store.Reservation, error) {
	h.mu.Lock()
	if l.released {
		over := h.released
		h.mu.Unlock()
		if !over || !h.beginRelease() {
			return nil, nil //nolint:nilnil // released before: nothing to do, nobody to wake
		}
		return h.releaseOnce(ctx, by)
	}
	// The lock is not lost if the work ended in time. Should the deadline pass while a renewal is
	// waited for, the store says whether the lock is still ours.
	var lost error
	if !h.valid() {
		lost = store.Failed("release "+h.resource, h.why())
	}
	l.released = true
	l.end(nil)
	h.leases = slices.DeleteFunc(h.leases, func(other *Lease) bool { return other == l })
	last := len(h.leases) == 0
	h.released = last
	if last {
		h.expiry.Stop()
		h.releasing = make(chan struct{}) // who comes now waits until the renewal has ended, too
	}
	h.mu.Unlock()
	if !last {
		return nil, lost
	}
	h.endRenewal()
	defer h.onEnd()
	// A lost lock is released, too. Its key may still be there, and nobody should have to wait for
	// its TTL.
	next, err := h.releaseOnce(ctx, by)
	if lost != nil && err != nil && !errors.Is(err, store.ErrLost) {
		return next, store.Because(lost, err)
	}
	return next, cmp.Or(lost, err)
}

// beginRelease waits until no release is under way. beginRelease returns false if the store has
// answered one. Otherwise the caller sends the next.
func (h *holding) beginRelease() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.releasing != nil {
		over := h.releasing
		h.mu.Unlock()
		<-over
		h.mu.Lock()
	}
	if !h.freed {
		h.releasing = make(chan struct{})
	}
	return !h.freed
}

// releaseOnce sends one release, also if ctx has ended. If the error may pass, the call is sent
// again in the background.
func (h *holding) releaseOnce(ctx context.Context, by store.Release) (*store.Reservation, error) {
	ctx = context.WithoutCancel(ctx)
	next, err := h.sendRelease(ctx, by)
	if err == nil {
		return next, nil
	}
	h.mu.Lock()
	retry := again(err) && !h.retrying
	h.retrying = h.retrying || retry
	h.mu.Unlock()
	if retry && h.client.Begin() {
		defer h.client.End()
		h.client.Go(func() { h.releaseLater(ctx, by) })
	}
	return next, store.Failed("release "+h.resource, err)
}

// sendRelease sends one release, after beginRelease.
func (h *holding) sendRelease(ctx context.Context, by store.Release) (*store.Reservation, error) {
	ctx, cancel := context.WithTimeout(ctx, CleanupTimeout)
	defer cancel()
	next, err := h.client.store.Release(ctx, h.key, h.token, by)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.freed = err == nil || errors.Is(err, store.ErrLost)
	close(h.releasing)
	h.releasing = nil
	return h.client.unlessLater(next, by.Rule), err //nolint:contextcheck // it sweeps for all who wait
}

// again reports whether a release is sent again after err.
func again(err error) bool { return err != nil && !errors.Is(err, store.ErrLost) && Passing(err) }

// releaseLater sends a release again until the store answers, or the Client is closed. It gives up
// when the lock has run out, and a minute has passed. A store that stood still executes old calls when
// it goes on. One of them may acquire or renew the lock of this token, so its TTL begins then. The
// caller has gone, so it can wake no waiter, and no waiter can start.
func (h *holding) releaseLater(ctx context.Context, by store.Release) {
	const (
		first, longest = 50 * time.Millisecond, 500 * time.Millisecond
		// Whoever tells a waiter may be cut off just then, as Redis was. So the lock is reserved for
		// a shorter time than by another release, and the sweeper hands it off.
		handoff = time.Second
		// A store that stands still for longer may leave such a lock to its TTL.
		standstill = time.Minute
	)
	by.Stepwise, by.Start, by.Send = false, nil, nil
	by.Timeout = min(by.Timeout, handoff)
	h.mu.Lock()
	end := h.start.Add(max(h.cfg.TTL, standstill))
	h.mu.Unlock()
	for wait := first; ; wait = min(2*wait, longest) {
		if h.client.Sleep(ctx, wait/2+rand.N(wait), nil) != nil || !time.Now().Before(end) || !h.beginRelease() {
			return
		}
		if _, err := h.sendRelease(ctx, by); !again(err) {
			return
		}
	}
}
