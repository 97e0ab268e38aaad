package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// MaxResource is the longest name of a resource, in bytes.
const MaxResource = 512

// maxHolder bounds the label in a lock's value, in bytes.
const maxHolder = 200

// cleanupTimeout bounds a release that nobody waits for.
const cleanupTimeout = 3 * time.Second

// A Locker takes locks on Redis. It is safe for use by several goroutines.
type Locker struct {
	rdb  redis.Scripter
	cfg  Config
	self string
}

// New returns a Locker on rdb: a client of a single node, Sentinel or Cluster,
// which it does not close. go-redis honours the deadline of a context only with
// ContextTimeoutEnabled; without it a call to a Redis that hangs returns after
// the client's ReadTimeout instead. No guarantee rests on that.
func New(rdb redis.Scripter, cfg Config) (*Locker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return &Locker{rdb: rdb, cfg: cfg.withDefaults(), self: fmt.Sprintf("%s (pid %d)", host, os.Getpid())}, nil
}

// Config returns the configuration with its defaults filled in.
func (l *Locker) Config() Config { return l.cfg }

// Options say on whose behalf a lock is taken. Nil means the defaults.
type Options struct {
	// Holder is what others are shown while this one holds the lock; at most
	// 200 bytes of it. Defaults to the host and process id. It is not secret.
	Holder string
	// Waiter makes a refused caller join the line of the resource under this
	// name, which must be the same each time it comes. It is called when its
	// turn comes, see [Lease.HandOff]. A caller without a name stands in no
	// line: it takes a free lock, whoever waits.
	Waiter string
}

// CheckResource returns an error that matches [ErrResource] when name cannot be
// a resource.
func CheckResource(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrResource)
	case len(name) > MaxResource:
		return fmt.Errorf("%w: want at most %d bytes, have %d", ErrResource, MaxResource, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: it is not UTF-8: %q", ErrResource, name)
	case strings.ContainsAny(name, "{}"):
		return fmt.Errorf("%w: braces would change its Redis Cluster slot: %q", ErrResource, name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: it holds a control character: %q", ErrResource, name)
	}
	return nil
}

// Acquire tries once to take the lock of resource. The answer is a lease, or a
// [*BusyError], or an error of Redis or ctx; an unusable name gives [ErrResource].
//
// After an error of Redis the lock may have been taken all the same. A release
// is then sent on a context of its own before Acquire returns, so that the lock
// does not stay taken for its TTL; if that fails too, the TTL frees it.
func (l *Locker) Acquire(ctx context.Context, resource string, opts *Options) (*Lease, error) {
	if err := CheckResource(resource); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("lock: acquire %s: %w", resource, endOf(ctx))
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	lease := &Lease{
		locker:   l,
		resource: resource,
		token:    heldPrefix + uuid.NewString() + ":" + l.label(o.Holder),
	}
	start := time.Now()
	// An answer that comes after the lease's deadline is of no use.
	callCtx, cancel := context.WithDeadline(ctx, start.Add(l.cfg.TTL-l.cfg.Margin))
	defer cancel()

	k := l.keys(resource)
	prefix := reservedPrefix + uuid.NewString() + ":"
	r := newReply(acquireScript.Run(callCtx, l.rdb, []string{k.lock, k.grant, k.line},
		lease.token, ms(l.cfg.TTL), ms(l.grantTTL()), o.Waiter, ms(l.cfg.Grace), ms(l.lineTTL()), prefix).Result())
	held := r.number()
	if r.err == nil && held == 0 {
		busy := busyFrom(r, resource)
		if r.err == nil {
			return nil, busy
		}
	}
	lease.fence = r.number()
	lease.handOff = time.Duration(r.number()) * time.Microsecond
	lease.since = time.Now()
	lease.trust(start)
	err := r.err
	switch {
	case ctx.Err() != nil && err == nil:
		err = endOf(ctx) // ended meanwhile: what was taken is given back
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", endOf(ctx), err)
	case err == nil && !lease.Valid():
		err = errors.New("the answer came after the lease's deadline")
	}
	if err != nil {
		l.giveBack(ctx, lease)
		return nil, fmt.Errorf("lock: acquire %s: %w", resource, err)
	}
	return lease, nil
}

// grantTTL is how long the fencing token is kept from an acquire or renewal on:
// through the lease itself and the configured time after it.
func (l *Locker) grantTTL() time.Duration { return l.cfg.TTL + l.cfg.FenceRetention }

// lineTTL is how long a line survives without anybody coming to its door, and
// how long a resource is marked as reserved. A lost line loses the order and the
// call, not the waiters: each has its own timer, set from what is left of the
// lock. An hour is for the spread of those timers.
func (l *Locker) lineTTL() time.Duration {
	return time.Hour + 2*l.cfg.TTL + l.cfg.Grace + l.cfg.FenceRetention
}

func (l *Locker) label(holder string) string {
	if holder == "" {
		return l.self
	}
	if len(holder) > maxHolder {
		holder = strings.ToValidUTF8(holder[:maxHolder], "")
	}
	return holder
}

// giveBack releases a lease that its caller will never see. It reserves for
// nobody: there is nobody to call the next in line.
func (l *Locker) giveBack(ctx context.Context, lease *Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	// Nothing more can be done about an error here; the TTL frees the lock.
	_, _ = l.release(ctx, lease.resource, lease.token, 0, "")
}

// busyFrom reads the second form of acquire.lua's answer.
func busyFrom(r *reply, resource string) *BusyError {
	value := r.text()
	busy := &BusyError{Resource: resource}
	busy.Holder, busy.Foreign = holderOf(value)
	busy.Remaining = max(0, time.Duration(r.number())*time.Millisecond)
	busy.Place = int(r.number())
	busy.Ticket = r.number()
	busy.Waited = time.Duration(r.number()) * time.Microsecond
	reservation, waiter, ticket := r.text(), r.text(), r.number()
	// A fence is the time of its grant, but for the rare one that had to be raised.
	if fence := r.number(); fence > 0 && strings.HasPrefix(value, heldPrefix) {
		busy.Since = time.UnixMicro(fence)
	}
	if reservation != "" {
		busy.Next = &Reservation{Resource: resource, Waiter: waiter, Ticket: ticket, value: reservation}
	}
	return busy
}

// release runs release.lua. ErrLost when value did not hold the lock; a
// reservation when the lock is now kept for somebody.
func (l *Locker) release(ctx context.Context, resource, value string, grace time.Duration, drop string) (*Reservation, error) {
	k := l.keys(resource)
	prefix := reservedPrefix + uuid.NewString() + ":"
	r := newReply(releaseScript.Run(ctx, l.rdb, []string{k.lock, k.grant, k.line},
		value, ms(grace), ms(l.lineTTL()), prefix, drop).Result())
	switch outcome := r.number(); {
	case r.err != nil:
		return nil, fmt.Errorf("lock: release %s: %w", resource, r.err)
	case outcome == 0:
		return nil, fmt.Errorf("lock: release %s: %w", resource, ErrLost)
	case outcome == 1:
		return nil, nil //nolint:nilnil // nobody waits: no reservation and no error
	}
	next := &Reservation{Resource: resource, value: r.text(), Waiter: r.text(), Ticket: r.number()}
	if r.err != nil {
		return nil, fmt.Errorf("lock: release %s: %w", resource, r.err)
	}
	return next, nil
}

// endOf returns why ctx has ended: its error and, if it was given another one,
// the cause.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func ms(d time.Duration) int64 { return d.Milliseconds() }
