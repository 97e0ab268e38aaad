package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks/ledger"
)

// Config configures the handlers. The zero value works.
type Config struct {
	// Work is how long a task pretends to think between reading and writing, so
	// that contention can be seen and measured. Defaults to 0.
	Work time.Duration
}

// A Book has the handlers of all tasks: what they do to a ledger. Their contexts
// must carry a fencing token of the task's resource ([lock.WithFence]) and the task's id
// ([queue.WithInfo]), as those of a server do.
//
// An error is marked with [queue.Permanent] only where no retry can mend it. The
// [lock.StaleError] of a holder that has lost its lock comes back as it is:
// the next attempt has a newer fence. So does the cause of a context that ended.
type Book struct {
	ledger *ledger.Ledger
	cfg    Config
}

// NewBook returns the handlers on l, which stays the caller's to close.
func NewBook(l *ledger.Ledger, cfg Config) *Book {
	return &Book{ledger: l, cfg: cfg}
}

// Register registers a handler for each kind of task. While the ledger takes no writes, tasks
// are put aside by [queue.Unavailable]; give the server [ledger.Ledger.Writable] as Available.
func Register(s *queue.Server, l *ledger.Ledger, cfg Config) {
	b := NewBook(l, cfg)
	handle(s, b.AuditOrder)
	handle(s, b.AllocateLine)
	handle(s, b.DeductStock)
	handle(s, b.DebitBalance)
	handle(s, b.PlaceOrder)
}

// handle registers fn. No task is charged for a ledger that takes no writes.
func handle[T queue.Task](s *queue.Server, fn func(context.Context, T) error) {
	queue.Handle(s, func(ctx context.Context, t T) error {
		err := fn(ctx, t)
		if errors.Is(err, ledger.ErrUnavailable) {
			return queue.Unavailable(err)
		}
		return err
	})
}

// Run checks and runs one task without a server.
func (b *Book) Run(ctx context.Context, t queue.Task) error {
	if v, ok := t.(queue.Validator); ok {
		if err := v.Validate(); err != nil {
			return queue.Permanent(err)
		}
	}
	switch t := t.(type) {
	case AuditOrder:
		return b.AuditOrder(ctx, t)
	case AllocateLine:
		return b.AllocateLine(ctx, t)
	case DeductStock:
		return b.DeductStock(ctx, t)
	case DebitBalance:
		return b.DebitBalance(ctx, t)
	case PlaceOrder:
		return b.PlaceOrder(ctx, t)
	default:
		return queue.Permanent(fmt.Errorf("tasks: no handler for %T of kind %q", t, t.Kind()))
	}
}

// think stands for the work of a task; it ends early with ctx.
func (b *Book) think(ctx context.Context) error {
	if b.cfg.Work <= 0 {
		return nil
	}
	return sleep.For(ctx, b.cfg.Work)
}

// effect begins the journal's entry of t.
func effect(ctx context.Context, t queue.Guarded) ledger.Effect {
	return ledger.Effect{TaskID: queue.InfoFrom(ctx).ID, Kind: t.Kind(), Subject: t.Resource()}
}

// settle sorts the error of a write: an id that stands for two tasks stays so.
func settle(err error) error {
	if errors.Is(err, ledger.ErrTaskID) {
		return queue.Permanent(err)
	}
	return err
}

// outOfRange is the error of a sum that an integer cannot hold.
func outOfRange(t queue.Guarded, what string) error {
	return queue.Permanent(fmt.Errorf("%s: %s of %s is out of range", t.Kind(), what, t.Resource()))
}
