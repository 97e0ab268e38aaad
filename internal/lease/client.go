// Package lease takes locks in a store, and says for how long this process may trust them. Packages
// lock and queue are built on it.
package lease

import (
	"context"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// A Client takes locks in a store for one process.
type Client struct {
	store store.Store
	cfg   Config
	self  string
	began time.Time // see untilBeat

	calls sync.WaitGroup  // that Close waits for
	ctx   context.Context //nolint:containedctx // ends with Close
	end   context.CancelFunc
	mu    sync.Mutex // so that no call begins while Close ends ctx
}

// New returns a Client of a store. The configuration must be valid.
func New(s store.Store, cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Client{store: s, cfg: cfg.Defaults(), self: store.Process(), began: time.Now()}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Config returns the configuration with its defaults filled in.
func (c *Client) Config() Config { return c.cfg }

// Key returns the key of the lock of resource.
func (c *Client) Key(resource string) string { return c.cfg.KeyPrefix() + resource }

// Check returns an error that matches [store.ErrResource] if there can be no lock of resource.
func (c *Client) Check(resource string) error {
	if err := store.CheckResource(resource); err != nil || c.cfg.Prefix != store.NoPrefix {
		return err
	}
	return store.CheckBare(resource)
}

// Close ends all waiting, and waits for calls to the store that nobody else waits for. Later
// attempts return [ErrClosed]. Leases live on and can be released.
func (c *Client) Close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.calls.Wait()
}

// untilBeat is how long it is until the next renewal of what is renewed so often. All leases of a Client are renewed at the same
// moments, so that a store can do that in one call.
func (c *Client) untilBeat(every time.Duration) time.Duration {
	return every - time.Since(c.began)%every
}

// Closing returns a context that ends with Close.
func (c *Client) Closing() context.Context { return c.ctx }

// Begin counts a call that Close waits for, until [Client.End]. Begin returns false after Close.
func (c *Client) Begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := c.ctx.Err() == nil
	if open {
		c.calls.Add(1)
	}
	return open
}

// End ends a call that has begun.
func (c *Client) End() { c.calls.Done() }

// Go runs f in the background of a call that has begun. Close waits for f, too.
func (c *Client) Go(f func()) { c.calls.Go(f) }

// Sleep waits for d, or until wake receives. The error says why ctx ended, or is [ErrClosed].
func (c *Client) Sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	select {
	case <-wake: // as mostly for those who wait until somebody listens: without a timer
		return EndOf(ctx)
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	return c.Wait(ctx, timer.C, wake)
}

// Wait waits for timer or wake, as [Client.Sleep] does.
func (c *Client) Wait(ctx context.Context, timer <-chan time.Time, wake <-chan struct{}) error {
	select {
	case <-wake:
		return nil
	case <-timer:
		return nil
	case <-ctx.Done():
		return EndOf(ctx)
	case <-c.ctx.Done():
		return ErrClosed
	}
}
