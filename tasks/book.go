package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks/ledger"
)

// A task is one of this package.
type task interface {
	queue.Guarded
	queue.Validator
	run(ctx context.Context, b *Book) error
}

// A Book runs tasks on a ledger.
type Book struct {
	ledger *ledger.Ledger
	work   time.Duration
}

// NewBook returns a book on l, which stays the caller's to close. A task works for so long between
// reading and writing, so that contention can be seen and measured.
func NewBook(l *ledger.Ledger, work time.Duration) *Book { return &Book{l, work} }

// Register registers a handler for each kind of task, as in [NewBook]. While the ledger takes no
// writes, tasks are parked by [queue.Unavailable]; give the server [ledger.Ledger.Writable] as
// Available.
func Register(s *queue.Server, l *ledger.Ledger, work time.Duration) {
	b := NewBook(l, work)
	for _, kind := range kinds {
		kind.handle(s, b)
	}
}

func handle[T task](s *queue.Server, b *Book) {
	queue.Handle(s, func(ctx context.Context, t T) error {
		err := b.Run(ctx, t)
		if errors.Is(err, ledger.ErrUnavailable) {
			return queue.Unavailable(err) // a failure of the ledger, not of the task
		}
		return err
	})
}

// Run runs one valid task. ctx must carry the fencing token of each of the task's resources and the
// task's id, as that of a server does.
//
// [queue.Permanent] marks an error that no retry can mend. A holder that has lost its lock gets an
// error that wraps lock.ErrStale: the next attempt has a newer fence. The end of ctx gives its cause.
func (b *Book) Run(ctx context.Context, t queue.Task) error {
	known, ok := t.(task)
	if !ok {
		return queue.Permanent(fmt.Errorf("tasks: no handler for %T of kind %q", t, t.Kind()))
	}
	err := known.run(ctx, b)
	if errors.Is(err, ledger.ErrTaskID) {
		return queue.Permanent(err)
	}
	return err
}

// read reads rows and thinks about them.
func (b *Book) read(ctx context.Context, rows ...ledger.Row) error {
	if err := b.ledger.Read(ctx, rows...); err != nil {
		return err
	}
	return b.think(ctx)
}

// think is the work of a task. The work ends early with ctx.
func (b *Book) think(ctx context.Context) error { return sleep.For(ctx, b.work) }

// effect begins the journal's entry of t.
func effect(ctx context.Context, t queue.Guarded) ledger.Effect {
	return ledger.Effect{TaskID: queue.InfoFrom(ctx).ID, Kind: t.Kind()}
}

// outOfRange is the error of a sum that an integer cannot hold.
func outOfRange(t queue.Guarded, what string) error {
	return queue.Permanent(fmt.Errorf("%s: %s of %s is out of range", t.Kind(), what, store.Show(t.Resource())))
}
