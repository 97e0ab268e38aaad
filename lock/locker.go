package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
)

// A Locker takes locks in a [Store]. Make one per process. A Locker is safe for use by several
// goroutines. Goroutines that try for the same lock share their attempts.
type Locker struct {
	store  Store
	client *lease.Client

	mu         sync.Mutex
	contenders map[string]*contenders // by key
	listener   *listener
	looks      map[string]*look // under way, by key
}

// New returns a Locker on store, without a call to the store. The zero Config works. The error says
// that there is no store, or is that of [Config.Validate]. Close the Locker when the program ends.
// For locks on Redis:
//
//	locker, err := lock.New(lock.Redis(client), lock.Config{})
func New(store Store, cfg Config) (*Locker, error) {
	if lockredis.None(store) {
		return nil, fmt.Errorf("lock: store: want one, such as that of Redis with a client, have %s", lockredis.Nothing(store))
	}
	client, err := lease.New(store, lease.Config(cfg))
	if err != nil {
		return nil, err
	}
	return &Locker{store: store, client: client, contenders: make(map[string]*contenders), looks: make(map[string]*look)}, nil
}

// Close ends the waiting for locks. Callers that wait get [ErrClosed], and so does every later
// attempt. Leases live on and can be released. Close also closes the connection on which l listens
// for wake-ups. Close waits for calls to the store whose callers went away, some seconds at most.
func (l *Locker) Close() { l.client.Close() }

// Do takes the lock of resource as [Locker.Acquire] does, runs fn, and releases the lock, also if
// fn panics. The context of fn is that of [Lease.Context]. It carries the fencing token, and ends
// with [ErrLost] before anybody else can have the lock. The lock is renewed until fn returns, also
// after ctx has ended. If Acquire fails, fn does not run, and Do returns the error of Acquire.
//
// If the lock was lost before fn returned, the error matches [ErrLost], whatever fn returned.
// Somebody else may have held the lock meanwhile. The error then tells of the loss first, of a
// release that failed as well, and of fn's own error. Without a loss, a release that failed is no
// error: Do sends it again in the background, and the TTL frees the lock. [Lease.Release] says what
// holds for a release whose answer was lost.
func (l *Locker) Do(ctx context.Context, resource string, opts *Options, fn func(context.Context) error) (err error) {
	if fn == nil {
		return fmt.Errorf("lock: do %s: fn: want a function, have nil", resource)
	}
	held, err := l.acquire(ctx, resource, opts, time.Time{})
	if err != nil {
		return err
	}
	defer func() {
		if rerr := held.Release(ctx); errors.Is(rerr, ErrLost) {
			err = errors.Join(rerr, err)
		}
	}()
	return fn(held.Protect(ctx))
}

// Acquire takes the lock of resource, and returns a lease that is renewed from then on. Acquire
// tries once, also if opts is nil, or waits as [Options.Wait] says. The caller releases the lease,
// see [Lease].
//
// If somebody else has the lock, the error matches [ErrBusy], also after a wait, and holds a
// [*BusyError]. An unusable name gives [ErrResource]. Other errors are those of opts, of ctx or of
// the store. A caller that waits goes on through passing errors of the store until they have lasted for
// a TTL. When an [Options.Wait] is over before ctx, Acquire asks whether the store is there, for 3 s at most, or until
// ctx ends: if not, the error says what is wrong with it, and does not match ErrBusy.
//
// ctx bounds the wait alone: its later end changes nothing for the lease. Acquire returns when ctx
// ends or the wait is over. A call to the store that is under way then ends first, see [Redis]. If
// such a call, or one that failed, may have taken the lock, Acquire releases it. If that fails, too,
// the TTL frees the lock.
//
// The caller may hold the lock already: ctx is one of [Lease.Context] or [Locker.Do], or comes from
// one, with a lease of the same resource. With [Options.Reentrant] the caller then gets the lock
// again. Without, the caller gets [ErrReentry] at once, as a wait for itself never ends. Once the
// lock has been lost, the error is [ErrLost] instead. This holds for locks of the same [Store]
// value.
func (l *Locker) Acquire(ctx context.Context, resource string, opts *Options) (*Lease, error) {
	held, err := l.acquire(ctx, resource, opts, time.Time{})
	if err != nil {
		return nil, err
	}
	return &Lease{held}, nil
}

// acquire waits until over at the latest, and as opts say if that is zero.
func (l *Locker) acquire(ctx context.Context, resource string, opts *Options, over time.Time) (*lease.Lease, error) {
	if opts == nil {
		opts = &Options{}
	}
	if err := errors.Join(checkContext(ctx), l.client.Check(resource), opts.check()); err != nil {
		return nil, err
	}
	if end := lease.EndOf(ctx); end != nil {
		return nil, acquireError(resource, end, nil)
	}
	if !l.client.Begin() {
		return nil, acquireError(resource, ErrClosed, nil)
	}
	defer l.client.End()
	if held, err := l.client.Reenter(ctx, resource, opts.Reentrant); held != nil || err != nil {
		return held, err
	}
	request := lease.Request{Resource: resource, Holder: opts.Holder, TTL: opts.TTL, MaxHold: opts.MaxHold, NoRenew: opts.NoRenew, Rule: opts.rule().Plain()}
	if _, limits := l.store.(store.Limiter); request.Rule != nil && !limits {
		return nil, fmt.Errorf("lock: limit, rates: want none on a store that does not know them, have a limit of %d and %d rates", request.Rule.Limit, len(request.Rule.Rates))
	}
	if opts.Wait == 0 {
		return l.try(ctx, request)
	}
	if over.IsZero() {
		over = overAt(ctx, opts.Wait)
	}
	return l.wait(ctx, request, opts, over)
}

// attempt asks the store once. It calls whenDone with the error when the attempt, with any clean-up,
// has ended.
func (l *Locker) attempt(ctx context.Context, request lease.Request, whenDone func(error)) (_ *lease.Lease, err error) {
	later := false
	defer func() {
		if !later { // also if the store panics
			whenDone(err)
		}
	}()
	held, refused, err := l.client.Ask(ctx, request)
	if gone := err; gone != nil && held != nil && lease.EndOf(ctx) != nil {
		later = true
		l.client.Go(func() { // nobody waits for it any more
			held.GiveBack(ctx)
			whenDone(gone)
		})
		return nil, gone
	}
	switch {
	case refused != nil && err != nil:
		return nil, acquireError(request.Resource, err, (*BusyError)(refused))
	case refused != nil:
		return nil, (*BusyError)(refused)
	case err != nil:
		held.GiveBack(ctx)
		return nil, err
	}
	l.took(held)
	return held, nil
}

// checkContext refuses a nil context.
func checkContext(ctx context.Context) error {
	if ctx == nil {
		return errors.New("lock: ctx: want a context, have nil")
	}
	return nil
}

// acquireError is the error of an attempt that ended without the lock; last, if not nil, is the
// error of its last try.
func acquireError(resource string, end, last error) error {
	if last == nil {
		return store.Failed("acquire "+resource, end)
	}
	return store.Failed("acquire "+resource, end, last)
}
