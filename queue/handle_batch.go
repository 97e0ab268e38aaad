package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/lock"
)

// MaxBatch is how many tasks a batch may have at most.
const MaxBatch = 100

// A BatchTask is one of the tasks that a handler by [HandleBatch] works on at once.
type BatchTask[T Guarded] struct {
	Task T
	Info Info

	endsBy time.Time
	ended  bool
	err    error
}

// End says what has become of this task, whatever the handler returns in the end: nil if it has succeeded, or else an error with the
// meaning that it has for a handler by [Handle]. The last call counts. It must not be called once the handler has returned.
func (t *BatchTask[T]) End(err error) { t.ended, t.err = true, err }

// PutBack says that the work on this task has not begun. It comes again at once, in its place, and uses no retry: as the next
// batch begins with it, the handler must not do so with all tasks.
func (t *BatchTask[T]) PutBack() { t.End(engine.ErrNotBegun) }

// Outcome returns what becomes of this task if the handler returns err.
func (t *BatchTask[T]) Outcome(err error) error {
	if t.ended {
		return t.err
	}
	return err
}

// HandleBatch registers fn as the handler of the tasks of type T, as [Handle] does, for up to most tasks of one resource at once: for
// work that costs as much for many as for one, such as a statement that writes all their rows. The first is a task whose turn it
// is. The others come next in the line of its resource, in their order, up to the first that is of another kind or could not begin.
// If nobody waits, the batch has one task: it is never waited for more.
//
// All run under the one lock, in one slot. What fn returns is the outcome of each task that it has not ended by
// [BatchTask.End]. Each is then retried, archived or deleted for itself, as its options say. The context ends with the first
// deadline or timeout of all, and if any of them is canceled. Middleware runs for each of the tasks.
//
// A task without retries, and one that needs several resources, is always alone. HandleBatch panics where Handle does, and
// if most is not 2 to [MaxBatch].
func HandleBatch[T Guarded](s *Server, most int, fn func(ctx context.Context, batch []*BatchTask[T]) error) {
	if fn == nil {
		Handle[T](s, nil) // which panics
	}
	if most < 2 || most > MaxBatch {
		panic(fmt.Sprintf("queue: HandleBatch: want 2 to %d tasks at most, have %d", MaxBatch, most))
	}
	Handle(s, func(ctx context.Context, task T) error {
		first := &BatchTask[T]{Task: task, Info: InfoFrom(ctx)}
		a, _ := ctx.Value(attemptKey{}).(*attempt)
		if a == nil { // a test without a server
			return first.Outcome(fn(ctx, []*BatchTask[T]{first}))
		}
		first.endsBy = a.EndsBy
		if a.First() != nil {
			return a.Join(first)
		}
		return runBatch(ctx, a, first, most, fn)
	})
}

// runBatch runs fn for the first task of a batch and those that join it.
func runBatch[T Guarded](ctx context.Context, a *attempt, first *BatchTask[T], most int, fn func(context.Context, []*BatchTask[T]) error) error {
	batch, endsBy := []*BatchTask[T]{first}, first.endsBy
	var others []*engine.Member
	for _, m := range a.More(most - 1).Joined(ctx) {
		if task, ok := m.Item.(*BatchTask[T]); ok {
			batch, others = append(batch, task), append(others, m)
			if task.endsBy.Before(endsBy) {
				endsBy = task.endsBy
			}
		}
	}
	if ctx.Err() != nil { // nothing has begun
		for _, m := range others {
			m.End(engine.ErrNotBegun)
		}
		return ctx.Err()
	}
	under, returned := ctx, false
	var err error
	defer func() { // those that fn has ended have ended even if fn panics
		lost := errors.Is(context.Cause(under), lock.ErrLost)
		for i, m := range others {
			switch task := batch[i+1]; {
			case lost: // whatever the handler says
				a.endMember(m, &engine.LostError{Err: lock.ErrLost})
			case returned || task.ended:
				a.endMember(m, task.Outcome(err))
			}
		}
	}()
	ctx, cancel := context.WithDeadline(ctx, endsBy)
	defer cancel()
	err = fn(ctx, slices.Clone(batch)) // which fn may put into another order
	returned = true
	return first.Outcome(err)
}

// endMember has a member of a batch end with err once the attempt has: the release of its lock may say yet that it was lost.
func (a *attempt) endMember(m *engine.Member, err error) {
	a.ends = append(a.ends, func() { m.End(err) })
}

func (a *attempt) endMembers() {
	for _, end := range a.ends {
		end()
	}
}
