package locktest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// A [Fault] is asked about each Step: the methods of a [lock.Store], and a wake-up on its way to a
// waiter.
const (
	Acquire = "acquire"
	Renew   = "renew"
	Release = "release"
	Leave   = "leave"
	Wake    = "wake"
)

// A Fault is what the network makes of a step: act takes the step and returns
// what came of it. The error is what the client sees; it gets the answer of act,
// if it was asked for, together with nil or [lock.ErrLost] only.
type Fault func(ctx context.Context, step string, act func() error) error

// ErrNetwork is the error of the faults of this package.
var ErrNetwork = errors.New("locktest: connection reset by peer")

// Fine is no fault.
func Fine(_ context.Context, _ string, act func() error) error { return act() }

// Refuse fails each step without taking it.
func Refuse(context.Context, string, func() error) error { return ErrNetwork }

// SwallowReply takes each step, and the answer is lost.
func SwallowReply(_ context.Context, _ string, act func() error) error {
	_ = act()
	return ErrNetwork
}

// Resend takes each step twice, as a client does that lost the first answer.
func Resend(_ context.Context, _ string, act func() error) error {
	_ = act()
	return act()
}

// BlackHole takes no step and answers nothing. As with a go-redis client with
// ContextTimeoutEnabled, the call ends at the deadline of its context, not by a cancellation.
func BlackHole(ctx context.Context, step string, _ func() error) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Hour)
	}
	silence(ctx, step, time.Until(deadline))
	return context.DeadlineExceeded
}

// OwnTimeout is a client that waits for its own time, whatever the context says.
func OwnTimeout(d time.Duration) Fault {
	return func(ctx context.Context, step string, _ func() error) error {
		silence(ctx, step, d)
		return ErrNetwork
	}
}

// Slow answers d after the step was taken.
func Slow(d time.Duration) Fault {
	return func(ctx context.Context, step string, act func() error) error {
		err := act()
		silence(ctx, step, d)
		return err
	}
}

// silence is the time without an answer. Nobody awaits that of a wake-up, which holds up none of those behind it.
func silence(ctx context.Context, step string, d time.Duration) {
	if step != Wake {
		_ = sleep.For(context.WithoutCancel(ctx), d)
	}
}

// Once is f for the next n steps of one kind, and no fault for the others.
func Once(step string, n int, f Fault) Fault {
	var mu sync.Mutex
	return func(ctx context.Context, s string, act func() error) error {
		mu.Lock()
		hit := s == step && n > 0
		if hit {
			n--
		}
		mu.Unlock()
		if hit {
			return f(ctx, s, act)
		}
		return act()
	}
}

// Only is f for all steps of one kind, and no fault for the others.
func Only(step string, f Fault) Fault {
	return func(ctx context.Context, s string, act func() error) error {
		if s == step {
			return f(ctx, s, act)
		}
		return act()
	}
}

// A Network stands between a client and its store, see [Faulty].
type Network struct {
	mu    sync.Mutex
	fault Fault
	sent  []Sent
	busy  int // steps under way
}

// Sent is a step that was asked for.
type Sent struct {
	Step  string
	At    time.Time
	Bound time.Duration // until the deadline of its context, 0 if it had none
	Dead  bool          // its context had ended already: it was not sent
}

// Faulty puts a network in front of inner, one without faults at first. The result is a
// [store.Listener], a [store.JoinOrdered] or a [store.Limiter] if inner is.
func Faulty(inner lock.Store) (lock.Store, *Network) {
	n := &Network{fault: Fine}
	f := &faulty{store: inner, network: n}
	limiter, limits := inner.(store.Limiter)
	listener, listens := inner.(store.Listener)
	_, ordered := inner.(store.JoinOrdered)
	l := &faultyListener{faulty: f, listener: listener}
	switch {
	case ordered:
		return &faultyJoinOrdered{l}, n
	case listens && limits:
		return struct {
			*faultyListener
			store.Limiter
		}{l, limiter}, n
	case listens:
		return l, n
	case limits:
		return struct {
			*faulty
			store.Limiter
		}{f, limiter}, n
	}
	return f, n
}

// Set makes f the fault of all steps from now on.
func (n *Network) Set(f Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = f
}

// Sent returns all steps so far, but for wakes.
func (n *Network) Sent() []Sent {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]Sent(nil), n.sent...)
}

// SentAt returns when each step of one kind was asked for, from start on.
func (n *Network) SentAt(step string, start time.Time) []time.Duration {
	var at []time.Duration
	for _, s := range n.Sent() {
		if s.Step == step {
			at = append(at, s.At.Sub(start))
		}
	}
	return at
}

func (n *Network) pass(ctx context.Context, step string, act func() error) error {
	s := Sent{Step: step, At: time.Now(), Dead: ctx.Err() != nil}
	if deadline, ok := ctx.Deadline(); ok {
		s.Bound = time.Until(deadline)
	}
	n.mu.Lock()
	fault := n.fault
	if step != Wake {
		n.sent = append(n.sent, s)
	}
	n.busy++
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.busy--
	}()
	if s.Dead {
		return ctx.Err()
	}
	return fault(ctx, step, act)
}

// idle reports whether no step is under way.
func (n *Network) idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.busy == 0
}

type faulty struct {
	store   lock.Store
	network *Network
}

func (f *faulty) Acquire(ctx context.Context, request store.Request) (a store.Result, err error) {
	err = f.network.pass(ctx, Acquire, func() (err error) {
		a, err = f.store.Acquire(ctx, request)
		return err
	})
	if err != nil {
		return store.Result{}, err
	}
	return a, nil
}

func (f *faulty) Renew(ctx context.Context, key, token string, ttl, fenceTTL time.Duration) error {
	return f.network.pass(ctx, Renew, func() error { return f.store.Renew(ctx, key, token, ttl, fenceTTL) })
}

func (f *faulty) Release(ctx context.Context, key, token string, how store.Release) error {
	return f.network.pass(ctx, Release, func() error { return f.store.Release(ctx, key, token, how) })
}

func (f *faulty) Leave(ctx context.Context, key, waiter string, how store.Leave) error {
	return f.network.pass(ctx, Leave, func() error { return f.store.Leave(ctx, key, waiter, how) })
}

type faultyListener struct {
	*faulty

	listener store.Listener
}

func (f *faultyListener) Listen(ctx context.Context, id string, listening func(), wake func(waiter string)) error {
	return f.listener.Listen(ctx, id, listening, func(waiter string) {
		_ = f.network.pass(ctx, Wake, func() error {
			wake(waiter)
			return nil
		})
	})
}

type faultyJoinOrdered struct{ *faultyListener }

func (*faultyJoinOrdered) JoinOrdered() {}
