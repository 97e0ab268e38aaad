package lease

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/store"
)

const (
	// tokenPrefix begins every token, so that those of other programs are known as such.
	tokenPrefix = "siding:"

	// MaxHolder bounds the label in a token, in bytes.
	MaxHolder = 200

	// CleanupTimeout bounds a call to the store that nobody waits for.
	CleanupTimeout = 3 * time.Second
)

// A Request says who asks for which lock.
type Request struct {
	Resource string
	Holder   string        // is shown to others; "" for host and process
	TTL      time.Duration // 0 for that of the Client
	MaxHold  time.Duration // 0 for no limit
	NoRenew  bool          // the lease ends with its TTL, and that is no loss

	// Waiter is the name under which a caller that finds the lock busy joins the wait queue, see
	// [store.GoroutinePrefix]. It is "" for a caller that does not join.
	Waiter string
	Waited time.Duration // for how long it has waited

	// Rule is that of the lock, unless the Client has another one; nil for none.
	Rule *store.Rule
}

// Ask asks for a lock once, and again while the votes are split, up to a limit. Ask returns a lease
// or a refusal. The caller calls [Lease.Start] on the lease. With an error, a lease says that the
// store may have granted the lock. The caller then calls [Lease.GiveBack]. A refusal with an error
// says why it did not ask again.
func (c *Client) Ask(ctx context.Context, r Request) (*Lease, *BusyError, error) {
	const (
		tries      = 5
		firstPause = 10 * time.Millisecond
	)
	for n := 1; ; n++ {
		l, busy, err := c.askOnce(ctx, r)
		if busy == nil || !busy.Split || n == tries {
			return l, busy, err
		}
		if end := c.Sleep(ctx, rand.N(firstPause<<n), nil); end != nil {
			return nil, busy, end
		}
	}
}

func (c *Client) askOnce(ctx context.Context, r Request) (*Lease, *BusyError, error) {
	id := uuid.NewString()
	h := c.hold(r.Resource, tokenPrefix+id+":"+c.label(r.Holder))
	h.cfg, h.maxHold, h.unrenewed = c.cfg.WithTTL(r.TTL), r.MaxHold, r.NoRenew
	if r.NoRenew {
		h.cfg.RenewEvery = c.cfg.RenewEvery // to look at the clock costs no call
	}
	h.start = time.Now()
	// An answer that comes after the lease's deadline is of no use.
	call, cancel := context.WithDeadline(ctx, h.start.Add(h.cfg.trusted()))
	defer cancel()
	h.rule = r.Rule
	request := store.Request{
		Key: h.key, Rule: c.ruleOr(h.key, r.Rule), Token: h.token, TTL: h.cfg.TTL, FenceTTL: h.cfg.FenceTTL(),
		Waiter: r.Waiter, Waited: r.Waited, Handoff: c.Handoff(id),
	}
	result, err := c.store.Acquire(call, request)
	if err == nil && !result.Taken {
		return nil, NewBusy(r.Resource, result, request.Rule), nil
	}
	if result.Permit != "" {
		h.key = result.Permit
	}
	h.fence, h.since = result.Fence, time.Now()
	l := h.lease()
	switch end := EndOf(ctx); {
	case end != nil && err != nil:
		err = store.Because(end, err)
	case end != nil:
		err = end
	case err == nil && !h.trusted():
		err = errTooLate
	}
	if err != nil {
		err = store.Failed("acquire "+r.Resource, err)
	}
	return l, nil, err
}

// Reenter returns another lease of a lock that ctx holds already; nil if ctx does not hold it.
func (c *Client) Reenter(ctx context.Context, resource string, reentrant bool) (*Lease, error) {
	for f := frameOf(ctx); f != nil; f = f.outer {
		if h := f.holding; h != nil && store.LockOf(h.key) == c.Key(resource) && h.client.store == c.store {
			return h.enter(reentrant)
		}
	}
	return nil, nil //nolint:nilnil // it has to be asked for
}

// GiveBack releases a lock that no caller will see.
func (l *Lease) GiveBack(ctx context.Context) {
	h := l.holding
	if !h.beginRelease() {
		return
	}
	_ = h.releaseOnce(ctx, h.releaseBy())
}

func (c *Client) label(holder string) string {
	if holder == "" {
		return c.self
	}
	return Note(holder)
}

// Note cuts a holder's note off where it is too long for a lock, between two characters.
func Note(text string) string {
	if len(text) > MaxHolder {
		text = strings.ToValidUTF8(text[:MaxHolder], "")
	}
	return text
}

// HolderOf returns who holds a lock, for people, by what the lock holds.
func HolderOf(value string) string {
	if !strings.HasPrefix(value, tokenPrefix) {
		return store.ForeignHolder
	}
	return holderOf(value)
}

// holderOf returns the label in a token.
func holderOf(token string) string {
	_, holder, _ := strings.Cut(strings.TrimPrefix(token, tokenPrefix), ":")
	return holder
}
