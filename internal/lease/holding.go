package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// A holding is what the leases of one holder share: the time for which one token holds a lock. The
// release of the last lease ends it.
type holding struct {
	client *Client
	cfg    Config

	resource  string
	key       string      // of the lock, or of the permit that was granted
	rule      *store.Rule // of the lock, unless the client has another one; nil for none
	token     string
	fence     int64
	since     time.Time
	maxHold   time.Duration    // 0 for no end
	onEnd     func()           // see Start
	unrenewed bool             // see Request.NoRenew
	until     func() time.Time // see Adopt; nil if this process renews it here

	mu        sync.Mutex
	start     time.Time          // when the last call that the store answered was sent
	lost      error              // set once, never cleared
	leases    []*Lease           // not released yet
	released  bool               // set with the last of them
	releasing chan struct{}      // closed at the end of the release under way; nil while none is
	freed     bool               // the store has answered a release
	retrying  bool               // a release is sent again in the background
	expiry    *time.Timer        // declares the lease lost at its deadline
	stopped   bool               // nothing is to be done at the beats
	resting   bool               // the lock is not renewed, as no lease needs it
	renewal   *time.Timer        // renews
	stop      context.CancelFunc // ends the last renewal; nil before the first
	renewing  sync.WaitGroup     // the renewal under way
}

func (c *Client) hold(resource, token string) *holding {
	return &holding{client: c, cfg: c.cfg, resource: resource, key: c.Key(resource), token: token}
}

// lease returns another lease of h. h.mu is held, or h is not shared yet.
func (h *holding) lease() *Lease {
	l := &Lease{holding: h}
	h.leases = append(h.leases, l)
	h.wakeRenewal()
	return l
}

// enter returns another lease for the same holder; nil if the lock has been released.
func (h *holding) enter(reentrant bool) (*Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.released:
		return nil, nil //nolint:nilnil // it is over: its holder is one like any other now
	case !h.valid():
		return nil, store.Failed("acquire "+h.resource+" again", h.why())
	case !reentrant:
		return nil, store.Failed("acquire "+h.resource+" again", ErrReentry)
	}
	return h.lease(), nil
}

// valid reports whether the lock is held, as far as can be known. h.mu is held.
func (h *holding) valid() bool { return h.lost == nil && !h.released && h.trusted() }

// trusted reports whether now is within the trust window. The wall clock counts, too, as the
// monotonic one may stand still while a machine is suspended. h.mu is held, or h is not shared yet.
func (h *holding) trusted() bool {
	now, deadline := time.Now(), h.deadline()
	return now.Before(deadline) && now.Round(0).Before(deadline.Round(0))
}

// deadline is the end of the trust window. h.mu is held, or h is not shared yet.
func (h *holding) deadline() time.Time {
	if h.until != nil {
		return h.until()
	}
	deadline := h.start.Add(h.cfg.trusted())
	if end := h.since.Add(h.maxHold); h.maxHold > 0 && end.Before(deadline) {
		return end
	}
	return deadline
}

// trust moves the deadline: the store has answered a call that was sent at start. A later call may
// have been answered before; then there is nothing to move. h.mu is held.
func (h *holding) trust(start time.Time) {
	if start.Before(h.start) {
		return
	}
	h.start = start
	h.expiry.Reset(time.Until(h.deadline()))
}

// lose declares the lease lost. Nothing else does.
func (h *holding) lose() {
	h.onEnd()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil || h.released {
		return
	}
	h.lost = h.why()
	h.expiry.Stop()
	for _, l := range h.leases {
		l.end(h.cause())
	}
}

// why says what the lease is lost to, or would be if it were now. h.mu is held.
func (h *holding) why() error {
	switch {
	case h.lost != nil:
		return h.lost
	case h.maxHold > 0 && !h.trusted() && h.deadline().Equal(h.since.Add(h.maxHold)):
		return errMaxHold
	case h.unrenewed && !h.trusted():
		return errOver
	default:
		return store.ErrLost
	}
}

// cause is what the contexts of the work are told when the lease is lost. h.mu is held.
func (h *holding) cause() error { return store.Failed(h.resource, h.why()) }

// renewAgain renews, and has the timer do so again; not if the lease is released or lost, or no
// lease needs it. A renewal that fails for another reason than a loss is tried again soon, within
// the deadline. A lease that is not to be renewed is ended if its time is over.
func (h *holding) renewAgain() {
	const retryEvery = 10 // tries in the time between two renewals
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	h.mu.Lock()
	if h.stopped || h.rest() {
		h.mu.Unlock()
		return
	}
	if h.unrenewed {
		if h.valid() {
			h.renewal.Reset(h.client.untilBeat(h.cfg.RenewEvery))
		} else {
			h.expiry.Reset(0) // it comes too late if the monotonic clock has stood still
		}
		h.mu.Unlock()
		return
	}
	h.stop = stop
	h.renewing.Add(1)
	defer h.renewing.Done()
	h.mu.Unlock()
	err := h.renew(ctx)
	next := h.client.untilBeat(h.cfg.RenewEvery)
	if err != nil {
		next = h.cfg.RenewEvery / retryEvery
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped && !errors.Is(err, store.ErrLost) {
		h.renewal.Reset(next)
	}
}

// rest reports whether no lease needs a renewal. h.mu is held.
func (h *holding) rest() bool {
	h.resting = !slices.ContainsFunc(h.leases, (*Lease).needsRenewal)
	return h.resting
}

// wakeRenewal renews again, and at once, if no lease needed it. h.mu is held.
func (h *holding) wakeRenewal() {
	if h.resting {
		h.resting = false
		h.renewal.Reset(0)
	}
}

func (h *holding) renew(ctx context.Context) error {
	h.mu.Lock()
	deadline, valid := h.deadline(), h.valid()
	h.mu.Unlock()
	if !valid {
		return h.lostAt(nil)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	start := time.Now()
	err := h.client.store.Renew(ctx, h.key, h.token, h.cfg.TTL, h.cfg.FenceTTL())
	h.mu.Lock()
	valid = h.valid()
	if valid && err == nil {
		h.trust(start)
	}
	h.mu.Unlock()
	switch {
	case valid && err == nil:
		return nil
	case valid && !errors.Is(err, store.ErrLost):
		return store.Failed("renew "+h.resource, err)
	default:
		return h.lostAt(err)
	}
}

// lostAt declares the lease lost, and returns the error of the renewal that saw the loss. Another
// answer of the store is part of the error.
func (h *holding) lostAt(err error) error {
	h.lose()
	h.mu.Lock()
	why := h.why()
	h.mu.Unlock()
	if err != nil && !errors.Is(err, store.ErrLost) {
		why = store.Because(why, err)
	}
	return store.Failed("renew "+h.resource, why)
}

// endRenewal stops the renewal and waits until none is under way, so that none can follow a
// release.
func (h *holding) endRenewal() {
	h.mu.Lock()
	h.stopped = true
	h.renewal.Stop()
	if h.stop != nil {
		h.stop()
	}
	h.mu.Unlock()
	h.renewing.Wait()
}
