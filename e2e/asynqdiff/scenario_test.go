package asynqdiff

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/hibiken/asynq"
)

// A scenario is what happens to a few tasks.
type scenario struct {
	name string
	// differs says why the outcome is another one on purpose: what asynq does, and what Siding does instead.
	differs string
	// config changes the configuration that the rig makes.
	config func(c *asynq.Config)
	// tasks are enqueued in this order before the play begins.
	tasks []task
	// play is what happens then; nil is (*rig).finish. Whatever runs at its end is shut down.
	play func(r *rig)
}

// A task is enqueued by asynq's client. Its name is also its type.
type task struct {
	name     string
	id       string // "" is the name
	payload  []byte
	headers  map[string]string
	opts     []asynq.Option
	deadline time.Duration // from now; 0 for none
	// does is what the handler does, attempt by attempt. The task has to get all of these attempts. nil is once(returns(nil)).
	does []step
}

// key returns the task's id.
func (t task) key() string { return cmp.Or(t.id, t.name) }

// queue returns the queue that the options name.
func (t task) queue() string {
	queue := "default"
	for _, opt := range t.opts {
		if name, ok := opt.Value().(string); ok && opt.Type() == asynq.QueueOpt {
			queue = name
		}
	}
	return queue
}

// A step is what a handler does in one attempt.
type step func(ctx context.Context, a *attempt) error

func with(opts ...asynq.Option) []asynq.Option { return opts }

// once, and never, are what handlers do. A plain []step is several attempts.
func once(s step) []step { return []step{s} }

// never is a task whose handler is not called.
var never = []step{}

// times is n attempts alike.
func times(n int, s step) []step { return slices.Repeat([]step{s}, n) }

func returns(err error) step {
	return func(context.Context, *attempt) error { return err }
}

func panics(value any) step {
	return func(context.Context, *attempt) error { panic(value) }
}

// exits is what t.FailNow does in a handler.
func exits() step {
	return func(context.Context, *attempt) error {
		runtime.Goexit()
		return nil
	}
}

// writes writes a result first.
func writes(result string, then step) step {
	return func(ctx context.Context, a *attempt) error {
		a.write(result)
		return then(ctx, a)
	}
}

// held waits until the play opens the task, whatever happens to the context.
func held(then step) step {
	return func(ctx context.Context, a *attempt) error {
		a.wait()
		return then(ctx, a)
	}
}

// untilEnd returns as soon as the context ends.
func untilEnd(then step) step {
	return func(ctx context.Context, a *attempt) error {
		<-ctx.Done()
		return then(ctx, a)
	}
}

// afterEnd returns when the context has ended and the server has settled the task. A server that waits for
// its handlers has it return a little later than with untilEnd.
func afterEnd(then step) step {
	return func(ctx context.Context, a *attempt) error {
		<-ctx.Done()
		after := context.WithoutCancel(ctx)
		seen(after, asynqDoes, func() bool { return a.r.stateOf(after, a.task.Type()) != "active" })
		return then(ctx, a)
	}
}

// Errors of handlers.
var (
	errBoom    = errors.New("boom")
	errMinor   = errors.New("minor") // is no failure, see minorIsNone
	errNotUTF8 = errors.New("half a \xe4\xb8")
)

// minorIsNone is a configuration in which errMinor is no failure.
func minorIsNone(c *asynq.Config) {
	c.IsFailure = func(err error) bool { return !errors.Is(err, errMinor) }
}
