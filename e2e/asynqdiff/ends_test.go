package asynqdiff

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

// What Siding does otherwise, where several scenarios show it.
const (
	differsAtEnd = "asynq does not wait for the handler: what it returns is lost, and the error is the context's, which is retried;" +
		" Siding goes by what the handler returns"
	differsSlot = "asynq runs the next task while the handler goes on; Siding has the handler in its slot until it returns"
)

// ends are about contexts that end before the handler does.
var ends = []scenario{
	{name: "deadlines in the past", tasks: []task{
		{name: "a", deadline: -time.Hour, does: never},
		{name: "b", deadline: -time.Hour, opts: unique(asynq.MaxRetry(0), asynq.Retention(time.Hour)), does: never},
	}, play: func(r *rig) {
		r.start()
		r.state("a", "retry")
		r.state("b", "archived")
	}},
	{name: "a deadline in the past at each retry", config: func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
	}, tasks: []task{{name: "a", deadline: -time.Hour, opts: with(asynq.MaxRetry(2)), does: never}}, play: func(r *rig) {
		r.start()
		r.state("a", "archived")
	}},
	{name: "a deadline in the past is no failure", config: func(c *asynq.Config) {
		c.IsFailure = func(error) bool { return false }
	}, tasks: []task{{name: "a", deadline: -time.Hour, does: never}}, play: func(r *rig) {
		r.start()
		r.state("a", "retry")
	}},

	// A handler that returns the context's error is the usual one, and all agree about it.
	{name: "a timeout, and the context's error", tasks: []task{timesOut(untilEnd(returnsEnd))}},
	{name: "a timeout, and the context's error, no retries", tasks: []task{timesOut(untilEnd(returnsEnd), asynq.MaxRetry(0))}},
	{name: "a timeout, and then nil at the retry", tasks: []task{{name: "a", opts: with(asynq.Timeout(brief)), does: []step{untilEnd(returnsEnd), returns(nil)}}}},
	{name: "a deadline, and the context's error", play: func(r *rig) {
		r.start()
		r.enqueue(task{name: "a", deadline: brief + time.Second, does: once(untilEnd(returnsEnd))})
		r.attempted()
	}},
	{name: "a timeout, and nil", differs: differsAtEnd, tasks: []task{timesOut(untilEnd(returns(nil)))}},
	{name: "a timeout, and an error", differs: differsAtEnd, tasks: []task{timesOut(untilEnd(returns(errBoom)))}},
	{name: "a timeout, and SkipRetry", differs: differsAtEnd, tasks: []task{timesOut(untilEnd(returns(asynq.SkipRetry)))}},
	{name: "a timeout, and RevokeTask", differs: differsAtEnd, tasks: []task{timesOut(untilEnd(returns(asynq.RevokeTask)))}},
	{name: "a timeout, and a panic", differs: differsAtEnd, tasks: []task{timesOut(untilEnd(panics("oh")))}},
	{name: "some time after a timeout, nil", differs: differsAtEnd, tasks: []task{timesOut(afterEnd(returns(nil)))}},
	{name: "some time after a timeout, the context's error", tasks: []task{timesOut(afterEnd(returnsEnd))}},
	{name: "some time after a timeout, SkipRetry", differs: differsAtEnd, tasks: []task{timesOut(afterEnd(returns(asynq.SkipRetry)))}},
	{name: "some time after a timeout, Goexit", differs: differsGoexit, tasks: []task{timesOut(afterEnd(exits()))}},
	{name: "a timeout, and nil, no retries", differs: differsAtEnd, tasks: []task{timesOut(untilEnd(returns(nil)), asynq.MaxRetry(0))}},
	{name: "a result after a timeout", tasks: []task{timesOut(afterEnd(writes("late", returnsEnd)))}},
	{
		name:    "the slot after a timeout",
		differs: differsSlot,
		tasks: []task{timesOut(untilEnd(func(ctx context.Context, a *attempt) error {
			a.say("the next task runs beside it: %t", seen(context.WithoutCancel(ctx), asynqDoes, func() bool {
				begun, _ := a.r.record.begun("b")
				return begun == 1
			}))
			return nil
		})), {name: "b"}},
	},

	{name: "canceled, and the context's error", tasks: []task{{name: "a", does: once(untilEnd(returnsEnd))}}, play: cancelAndFinish},
	{name: "canceled, and the context's error, no retries", tasks: []task{{name: "a", opts: noRetries, does: once(untilEnd(returnsEnd))}}, play: cancelAndFinish},
	{name: "canceled, and the context's error is no failure", config: func(c *asynq.Config) {
		c.IsFailure = func(err error) bool { return !errors.Is(err, context.Canceled) }
	}, tasks: []task{{name: "a", does: once(untilEnd(returnsEnd))}}, play: cancelAndFinish},
	{name: "canceled, and nil", differs: differsAtEnd, tasks: []task{{name: "a", does: once(untilEnd(returns(nil)))}}, play: cancelAndFinish},
	{name: "canceled, and an error", differs: differsAtEnd, tasks: []task{{name: "a", does: once(untilEnd(returns(errBoom)))}}, play: cancelAndFinish},
	{name: "canceled, and SkipRetry", differs: differsAtEnd, tasks: []task{{name: "a", does: once(untilEnd(returns(asynq.SkipRetry)))}}, play: cancelAndFinish},
	{name: "canceled, and RevokeTask", differs: differsAtEnd, tasks: []task{{name: "a", does: once(untilEnd(returns(asynq.RevokeTask)))}}, play: cancelAndFinish},
	{name: "some time after it was canceled, nil", differs: differsAtEnd, tasks: []task{{name: "a", does: once(afterEnd(returns(nil)))}}, play: cancelAndFinish},
	{name: "some time after it was canceled, the context's error", tasks: []task{{name: "a", does: once(afterEnd(returnsEnd))}}, play: cancelAndFinish},
	{
		name:  "canceled once",
		tasks: []task{{name: "a", does: []step{untilEnd(returnsEnd), held(returns(nil))}}},
		play: func(r *rig) { // the second attempt is not
			r.start()
			r.cancel("a")
			r.begun("a", 2)
			r.open("a")
		},
	},
	{
		name:   "canceled while it does not run",
		config: func(c *asynq.Config) { c.Concurrency = 2 },
		tasks:  []task{{name: "a", opts: with(asynq.ProcessIn(time.Hour))}, {name: "b"}, {name: "c", does: once(untilEnd(returnsEnd))}},
		play: func(r *rig) {
			r.start()
			r.left("b", 1)
			for _, id := range []string{r.id("a"), r.id("b"), "nobody's", ""} {
				r.note("cancel", r.inspect.CancelProcessing(id))
			}
			r.cancel("c") // when it has heard of this, it has heard of the others
			r.note("run a", r.inspect.RunTask("default", r.id("a")))
			r.attempted()
		},
	},
	{name: "a base context that ends", config: func(c *asynq.Config) {
		c.BaseContext = func() context.Context {
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(brief, func() { cancel(errBoom) })
			return ctx
		}
	}, tasks: []task{{name: "a", does: once(untilEnd(returnsEnd))}}},
	{name: "a base context whose deadline comes", config: func(c *asynq.Config) {
		c.BaseContext = func() context.Context { return ending(brief) }
	}, tasks: []task{{name: "a", does: once(untilEnd(returnsEnd))}}},
}

// brief is a timeout that passes. On a busy machine it is a while until a handler begins.
const brief = 3 * time.Second

// timesOut is a task whose context ends soon.
func timesOut(s step, opts ...asynq.Option) task {
	return task{name: "a", opts: append(opts, asynq.Timeout(brief)), does: once(s)}
}

// returnsEnd is a handler that returns the error of its context.
func returnsEnd(ctx context.Context, _ *attempt) error { return ctx.Err() }

// cancelAndFinish cancels the task a.
func cancelAndFinish(r *rig) {
	r.start()
	r.cancel("a")
	r.left("a", 1)
}
