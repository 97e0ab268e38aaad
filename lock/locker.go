package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/store"
)

// MaxResource is the longest name of a resource, in bytes.
const MaxResource = 512

// tokenPrefix begins every token, so that those of other programs are known as such.
const tokenPrefix = "siding:"

// maxHolder bounds the label in a token, in bytes.
const maxHolder = 200

// errTooLate is what becomes of a lock whose answer is of no use any more.
var errTooLate = errors.New("the answer came after the lease's deadline")

// cleanupTimeout bounds a release that nobody waits for.
const cleanupTimeout = 3 * time.Second

// A Locker takes locks in a [Store]. It is safe for use by several goroutines,
// of which many that want the same lock share one attempt at it: make one per
// process.
type Locker struct {
	store Store
	cfg   Config
	self  string

	acquiring sync.WaitGroup // calls of Acquire, and what they leave behind
	closing   chan struct{}  // closed by Close

	mu     sync.Mutex
	closed bool
	desks  map[string]*desk // by key
	ear    *ear
}

// New returns a Locker on store. For locks on Redis:
//
//	locker, err := lock.New(lock.Redis(client), lock.Config{})
func New(store Store, cfg Config) (*Locker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return &Locker{
		store:   store,
		cfg:     cfg.Defaults(),
		self:    fmt.Sprintf("%s (pid %d)", host, os.Getpid()),
		closing: make(chan struct{}),
		desks:   make(map[string]*desk),
	}, nil
}

// Config returns the configuration with its defaults filled in.
func (l *Locker) Config() Config { return l.cfg }

// Close ends what l has running in the background: the connection on which it
// listens for calls, and calls to the store whose callers went away, which it waits for. Whoever still waits for a lock gets [ErrClosed],
// as does every later attempt. Leases live on and can be released.
func (l *Locker) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	l.mu.Unlock()
	l.acquiring.Wait() // nobody makes an ear after this
	if l.ear != nil {
		l.ear.close()
	}
}

// begin counts a call that Close waits for; false when it came too late.
func (l *Locker) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.acquiring.Add(1)
	}
	return !l.closed
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

// Acquire takes the lock of resource: it tries once, also where opts is nil, or waits as
// [Options.Wait] says. The answer is a lease; or a [*BusyError], matched also by the error of a
// wait that ended with ctx; or an error of the store or of ctx. An unusable name
// gives [ErrResource].
//
// Acquire returns when ctx ends, or, if it is asking the store just then, when that
// call does: see [Redis]. What such a call may have taken is released in the
// background. After an error of the store, too, the lock may have been taken; then
// a release is sent before Acquire returns. If that fails, the TTL frees the lock.
// Somebody who waits goes on through errors of the store that may pass, for a TTL
// at most.
//
// Where ctx is one that [Lease.Keep] returned, or comes from one, and its lease
// is of the same resource, the caller holds the lock already. It gets [ErrReentry] at
// once, even if it would wait, as a wait for itself never ends; or, with
// [Options.Reentrant], the lock again. Once the lock has been lost it gets [ErrLost]
// instead. A Locker knows its own leases, not those of another Locker.
func (l *Locker) Acquire(ctx context.Context, resource string, opts *Options) (*Lease, error) {
	if opts == nil {
		opts = &Options{}
	}
	if err := errors.Join(CheckResource(resource), opts.check()); err != nil {
		return nil, err
	}
	if end := endOf(ctx); end != nil {
		return nil, fmt.Errorf("lock: acquire %s: %w", resource, end)
	}
	if !l.begin() {
		return nil, fmt.Errorf("lock: acquire %s: %w", resource, ErrClosed)
	}
	defer l.acquiring.Done()
	if t, ok := ctx.Value(holding{l, l.key(resource)}).(*tenure); ok {
		if lease, err := t.enter(opts.Reentrant); lease != nil || err != nil {
			return lease, err
		}
	}
	switch wait := opts.Wait.(type) {
	case inLine:
		return l.waitInLine(ctx, resource, *opts)
	case Retry:
		return l.waitByRetry(ctx, resource, *opts, wait)
	}
	if opts.Waiter != "" {
		return l.attempt(ctx, attempt{resource: resource, opts: *opts, waiter: opts.Waiter, byHand: true, over: func() {}})
	}
	return l.try(ctx, resource, *opts)
}

// An attempt is one call to the store for a lock.
type attempt struct {
	resource string
	opts     Options
	waiter   string        // "" for none
	waited   time.Duration // for how long it has
	byHand   bool          // see Line.ByHand
	over     func()        // called when it, and what it may have to clean up, is over
}

// attempt returns a lease, a *BusyError, or what was wrong with the store or ctx.
func (l *Locker) attempt(ctx context.Context, a attempt) (*Lease, error) {
	t, err := l.ask(ctx, a)
	if err != nil && t != nil && endOf(ctx) != nil {
		l.acquiring.Go(func() { // nobody waits for it any more
			t.giveBack(ctx)
			a.over()
		})
		return nil, err
	}
	defer a.over()
	if err == nil {
		l.arrived(t)
		return &Lease{tenure: t}, nil
	}
	if t != nil {
		t.giveBack(ctx)
	}
	return nil, err
}

// ask makes the call of an attempt, and again where the votes were split, up to a
// limit. A tenure together with an error is one that may have begun all the same.
func (l *Locker) ask(ctx context.Context, a attempt) (*tenure, error) {
	const (
		tries      = 5
		firstPause = 10 * time.Millisecond
	)
	for n := 1; ; n++ {
		t, split, err := l.askOnce(ctx, a)
		if !split || n == tries {
			return t, err
		}
		if end := l.restFor(ctx, rand.N(firstPause<<n), nil); end != nil {
			return nil, waitEnded(a.resource, end, err)
		}
	}
}

func (l *Locker) askOnce(ctx context.Context, a attempt) (_ *tenure, split bool, _ error) {
	id := uuid.NewString()
	t := &tenure{
		Locker:   l,
		resource: a.resource,
		key:      l.key(a.resource),
		holder:   l.label(a.opts.Holder),
		maxHold:  a.opts.MaxHold,
		leases:   1,
	}
	t.token = tokenPrefix + id + ":" + t.holder
	t.start = time.Now()
	// An answer that comes after the lease's deadline is of no use.
	callCtx, cancel := context.WithDeadline(ctx, t.start.Add(l.cfg.TTL-l.cfg.Margin))
	defer cancel()
	answer, err := l.store.Acquire(callCtx, store.Claim{
		Key: t.key, Token: t.token, TTL: l.cfg.TTL, Keep: l.cfg.grantKeep(),
		Waiter: a.waiter, Waited: a.waited, Came: a.opts.Came, Line: l.line(id, a.byHand),
	})
	if err == nil && !answer.Taken {
		return nil, answer.Split, l.busyOf(a.resource, answer)
	}
	t.fence, t.handOff, t.since = answer.Fence, answer.HandOff, time.Now()
	switch end := endOf(ctx); {
	case end != nil && err != nil:
		err = fmt.Errorf("%w: %w", end, err)
	case end != nil:
		err = end
	case err == nil && !t.trusted():
		err = errTooLate
	}
	if err != nil {
		return t, false, fmt.Errorf("lock: acquire %s: %w", a.resource, err)
	}
	return t, false, nil
}

// giveBack releases what no caller will ever see.
func (t *tenure) giveBack(ctx context.Context) {
	t.left(t)
	if t.beginPassing() {
		_, _ = t.passOn(ctx, t.line(nonceOf(t.token), false))
	}
}

func (l *Locker) key(resource string) string { return l.cfg.Prefix + resource }

func (l *Locker) label(holder string) string {
	if holder == "" {
		return l.self
	}
	if len(holder) > maxHolder {
		holder = strings.ToValidUTF8(holder[:maxHolder], "")
	}
	return holder
}

// busyOf says who has the lock that was refused.
func (l *Locker) busyOf(resource string, a store.Answer) *BusyError {
	busy := &BusyError{
		Resource:  resource,
		Remaining: max(0, a.Left),
		Split:     a.Split,
		Place:     a.Place,
		Ticket:    a.Ticket,
		Waited:    a.Waited,
		Next:      l.reservation(l.key(resource), a.Next),
	}
	rest, ours := strings.CutPrefix(a.Holder, tokenPrefix)
	switch {
	case a.Reserved:
		busy.Holder = "the next in line"
	case a.Split && a.Holder == "":
		busy.Holder = "nobody yet, as several asked at once"
	case ours:
		_, busy.Holder, _ = strings.Cut(rest, ":")
		busy.Since = a.Since
	default:
		busy.Holder, busy.Foreign = "another program", true
	}
	return busy
}

// endOf returns why ctx has ended: its error and, if it was given another one,
// the cause; nil if it has not.
func endOf(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		// A call to the store may notice the deadline a moment before ctx does. ctx notices much
		// later if its deadline has no monotonic reading, and the wall clock has stepped past it.
		const moment = 100 * time.Millisecond
		timer := time.NewTimer(moment)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
			return context.DeadlineExceeded
		}
	}
	err := ctx.Err()
	if err == nil {
		return nil // it may end just now, and then has a cause
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
