package lease

import (
	"context"
	"errors"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// A Lease is one acquisition of a lock. The methods of a Lease are safe for use by several
// goroutines.
type Lease struct {
	holding *holding

	// Guarded by holding.mu.
	released bool
	works    map[context.Context]context.CancelCauseFunc // whose work needs the lock; nil if there never was one
}

// Start begins to renew a lease that Ask returned. It has onEnd called when the lease is
// lost or released, once or more.
func (l *Lease) Start(onEnd func()) {
	h := l.holding
	h.onEnd = onEnd
	h.mu.Lock() // a timer may fire before both are in their places
	defer h.mu.Unlock()
	h.expiry = time.AfterFunc(time.Until(h.deadline()), h.lose)
	// Most work is done before its first renewal, and then needs no goroutine for it.
	h.renewal = time.AfterFunc(h.client.untilBeat(h.cfg.RenewEvery), h.renewAgain)
}

// Resource returns what is locked.
func (l *Lease) Resource() string { return l.holding.resource }

// Fence returns the lease's fencing token; 0 if the store has none.
func (l *Lease) Fence() int64 { return l.holding.fence }

// Shared reports whether others may hold the lock, too: the lease is that of a permit.
func (l *Lease) Shared() bool { return store.LockOf(l.holding.key) != l.holding.key }

// Over reports whether the lease has ended as it was meant to: with its TTL, see [Request.NoRenew].
func (l *Lease) Over() bool {
	h := l.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Is(h.why(), errOver)
}

// Deadline returns when the lease ends if it is not renewed; the zero time once it has ended.
func (l *Lease) Deadline() time.Time {
	h := l.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.released || !h.valid() {
		return time.Time{}
	}
	return h.deadline()
}

// Busy says who holds the lock; nil once the lease has ended.
func (l *Lease) Busy() *BusyError {
	h := l.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.valid() {
		return nil
	}
	return &BusyError{
		Resource:  h.resource,
		Holder:    holderOf(h.token),
		Since:     h.since,
		Remaining: time.Until(h.start.Add(h.cfg.TTL)),
	}
}

// Context returns a context for work under the lease. The context carries the fencing token, and
// ends with ctx and with the lease. A lease whose contexts have all ended is not renewed.
func (l *Lease) Context(ctx context.Context) context.Context { return l.begin(ctx, false) }

// Protect is [Lease.Context] for work that may go on after ctx has ended. The lease is renewed until
// the caller releases it.
func (l *Lease) Protect(ctx context.Context) context.Context { return l.begin(ctx, true) }

func (l *Lease) begin(ctx context.Context, protected bool) context.Context {
	h := l.holding
	ctx, cancel := context.WithCancelCause(ctx)
	ctx = with(ctx, frame{resource: h.resource, fence: h.fence, holding: h})
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.works == nil {
		l.works = make(map[context.Context]context.CancelCauseFunc)
	}
	if l.released || !h.valid() || !protected && ctx.Err() != nil {
		cancel(h.cause()) // it ended before the work could begin
	} else {
		l.works[ctx] = cancel
		h.wakeRenewal()
	}
	if !protected {
		context.AfterFunc(ctx, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(l.works, ctx)
		})
	}
	return ctx
}

// end ends the contexts of the work under l. holding.mu is held.
func (l *Lease) end(cause error) {
	for _, cancel := range l.works {
		cancel(cause)
	}
}

// needsRenewal reports whether somebody may be at work under the lease. The lease has had no
// context, or has one that has not ended. The caller holds holding.mu.
func (l *Lease) needsRenewal() bool { return l.works == nil || len(l.works) > 0 }

// Renew prolongs the lock by the TTL from now.
func (l *Lease) Renew(ctx context.Context) error {
	if l.ended() {
		return store.Failed("renew "+l.holding.resource, store.ErrLost)
	}
	return l.holding.renew(ctx)
}

// ended reports whether the lease was released. Others of its holder may live on.
func (l *Lease) ended() bool {
	l.holding.mu.Lock()
	defer l.holding.mu.Unlock()
	return l.released
}

// Release ends the lease. The last lease of its holder releases the lock. It is handed off to the
// first in the wait queue.
func (l *Lease) Release(ctx context.Context) error {
	return l.holding.release(ctx, l, l.holding.releaseBy())
}
