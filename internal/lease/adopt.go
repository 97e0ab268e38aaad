package lease

import "time"

// Adopt returns the lease of a lock that others renew and release, and of which they end the context: so a holder can take its
// lock again, see [Client.Reenter]. key is that of the lock, or of its permit, and until says until when their renewals have made
// the lock theirs. The caller calls [Lease.End] when the work is over.
func (c *Client) Adopt(resource, key, token string, fence int64, until func() time.Time) *Lease {
	h := c.hold(resource, token)
	h.key, h.fence, h.until, h.stopped = key, fence, until, true
	h.since, h.onEnd = time.Now(), func() {}
	h.expiry, h.renewal = idle, idle
	return h.lease()
}

// Lose says that the lock of an adopted lease is lost. The contexts of the lease end, and those of the leases that its holder took
// again and has not released. By these contexts the lock cannot be taken before [Lease.End].
func (l *Lease) Lose() { l.holding.lose() }

// End ends an adopted lease, and the same contexts. Whoever still has one of them is one like any other now.
func (l *Lease) End() {
	h := l.holding
	h.lose()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released, h.freed = true, true
}

// idle is the timer of leases that others watch over. Whatever is done with it, it does nothing.
var idle = time.NewTimer(0)
