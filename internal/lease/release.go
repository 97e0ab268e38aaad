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
func (h *holding) release(ctx context.Context, l *Lease, by store.Release) error {
	h.mu.Lock()
	if l.released {
		all := h.released
		h.mu.Unlock()
		if !all || !h.beginRelease() {
			return nil // released before
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
	h.released = h.released || last // an adopted one may have ended before
	if last {
		h.expiry.Stop()
		h.releasing = make(chan struct{}) // who comes now waits until the renewal has ended, too
	}
	h.mu.Unlock()
	if !last {
		return lost
	}
	h.endRenewal()
	defer h.onEnd()
	// A lost lock is released, too. Its key may still be there, and nobody should have to wait for
	// its TTL.
	err := h.releaseOnce(ctx, by)
	if lost != nil && err != nil && !errors.Is(err, store.ErrLost) {
		return store.Because(lost, err)
	}
	return cmp.Or(lost, err)
}

// beginRelease waits until no release is under way. beginRelease returns false if the store has
// answered one. Otherwise the caller sends the next.
func (h *holding) beginRelease() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.releasing != nil {
		sent := h.releasing
		h.mu.Unlock()
		<-sent
		h.mu.Lock()
	}
	if !h.freed {
		h.releasing = make(chan struct{})
	}
	return !h.freed
}

// releaseOnce sends one release, also if ctx has ended. If the error may pass, the call is sent
// again in the background.
func (h *holding) releaseOnce(ctx context.Context, by store.Release) error {
	ctx = context.WithoutCancel(ctx)
	err := h.sendRelease(ctx, by)
	if err == nil {
		return nil
	}
	h.mu.Lock()
	retry := again(err) && !h.retrying
	h.retrying = h.retrying || retry
	h.mu.Unlock()
	if retry && h.client.Begin() {
		defer h.client.End()
		h.client.Go(func() { h.releaseLater(ctx, by) })
	}
	return store.Failed("release "+h.resource, err)
}

// sendRelease sends one release, after beginRelease.
func (h *holding) sendRelease(ctx context.Context, by store.Release) error {
	ctx, cancel := context.WithTimeout(ctx, CleanupTimeout)
	defer cancel()
	freed := false
	defer func() { // also if the store panics
		h.mu.Lock()
		defer h.mu.Unlock()
		h.freed = freed
		close(h.releasing)
		h.releasing = nil
	}()
	err := h.client.store.Release(ctx, h.key, h.token, by)
	freed = err == nil || errors.Is(err, store.ErrLost)
	return err
}

// again reports whether a release is sent again after err.
func again(err error) bool { return err != nil && !errors.Is(err, store.ErrLost) && Passing(err) }

// releaseLater sends a release again until the store answers, or the Client is closed. It gives up
// when the lock has run out, and a minute has passed. A store that stood still executes old calls when
// it goes on. One of them may acquire or renew the lock of this token, so its TTL begins then.
func (h *holding) releaseLater(ctx context.Context, by store.Release) {
	const (
		first, longest = 50 * time.Millisecond, 500 * time.Millisecond
		// The first waiter may be cut off just then, as this process was. So the lock is reserved for
		// a shorter time than by another release.
		handoff = time.Second
		// A store that stands still for longer may leave such a lock to its TTL.
		standstill = time.Minute
	)
	by.Timeout = min(by.Timeout, handoff)
	h.mu.Lock()
	end := h.start.Add(max(h.cfg.TTL, standstill))
	h.mu.Unlock()
	for wait := first; ; wait = min(2*wait, longest) {
		if h.client.Sleep(ctx, wait/2+rand.N(wait), nil) != nil || !time.Now().Before(end) || !h.beginRelease() {
			return
		}
		if !again(h.sendRelease(ctx, by)) {
			return
		}
	}
}
