package asynqdiff

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/taskredis"
)

// What Siding does otherwise, where several scenarios show it.
const (
	differsUTF8 = "asynq cannot encode the text: the task stays active until its lease has ended, and then counts as crashed;" +
		" Siding keeps the error, with U+FFFD instead of the bytes"
	differsGoexit = "asynq holds the slot until the task's timeout; Siding has an error of the task at once"
)

// Options of many tasks.
var (
	noRetries = with(asynq.MaxRetry(0))
	kept      = with(asynq.Retention(time.Hour))
)

// outcomes are about what a handler returns, and what becomes of its task.
var outcomes = []scenario{
	{name: "a handler returns nil", tasks: []task{{name: "a"}}},
	{name: "an error is retried", tasks: []task{{name: "a", does: once(returns(errBoom))}}},
	{name: "an error, and then nil", tasks: []task{{name: "a", does: []step{returns(errBoom), returns(nil)}}}},
	{name: "the last retry fails", tasks: []task{{name: "a", opts: with(asynq.MaxRetry(1)), does: times(2, returns(errBoom))}}},
	{name: "no retries", tasks: []task{{name: "a", opts: noRetries, does: once(returns(errBoom))}}},
	{name: "texts of errors", tasks: []task{
		{name: "none", does: once(returns(errors.New("")))},
		{name: "long", does: once(returns(errors.New(strings.Repeat("long ", 5000))))},
		{name: "any", does: once(returns(errors.New("zwei\nZeilen, 世界, \x00")))},
		{name: "wrapped", does: once(returns(fmt.Errorf("more: %w", errBoom)))},
	}},
	{name: "an error that is not UTF-8", differs: differsUTF8, tasks: []task{{name: "a", does: once(returns(errNotUTF8))}}},
	{name: "an error that is not UTF-8, no retries", differs: differsUTF8, tasks: []task{{name: "a", opts: noRetries, does: once(returns(errNotUTF8))}}},
	{name: "a panic that is not UTF-8", differs: differsUTF8, tasks: []task{{name: "a", does: once(panics("half a \xe4\xb8"))}}},
	{name: "errors of what has not ended", tasks: []task{
		{name: "lease", does: once(returns(asynq.ErrLeaseExpired))},
		{name: "canceled", does: once(returns(context.Canceled))},
		{name: "deadline", does: once(returns(context.DeadlineExceeded))},
	}},

	{name: "SkipRetry", tasks: []task{
		{name: "plain", does: once(returns(asynq.SkipRetry))},
		{name: "wrapped", does: once(returns(fmt.Errorf("%w: %w", errBoom, asynq.SkipRetry)))},
		{name: "no retries", opts: noRetries, does: once(returns(asynq.SkipRetry))},
		{name: "at a retry", does: []step{returns(errBoom), returns(asynq.SkipRetry)}},
	}},
	{name: "RevokeTask", tasks: []task{
		{name: "plain", does: once(returns(asynq.RevokeTask))},
		{name: "wrapped", does: once(returns(fmt.Errorf("%w: %w", errBoom, asynq.RevokeTask)))},
		{name: "no retries", opts: noRetries, does: once(returns(asynq.RevokeTask))},
		{name: "kept", opts: kept, does: once(returns(asynq.RevokeTask))},
		{name: "and SkipRetry", does: once(returns(errors.Join(asynq.SkipRetry, asynq.RevokeTask)))},
	}},

	{name: "panics", tasks: []task{
		{name: "text", does: once(panics("oh"))},
		{name: "error", does: once(panics(errBoom))},
		{name: "SkipRetry", does: once(panics(asynq.SkipRetry))},
		{name: "nil", does: once(panics(nil))},
		{name: "number", does: once(panics(7))},
		{name: "no retries", opts: noRetries, does: once(panics("oh"))},
		{name: "and then nil", does: []step{panics("oh"), returns(nil)}},
	}},
	{name: "panics of the runtime", differs: "asynq names a line of Go's runtime as the place of such a panic; Siding names the line of the handler", tasks: []task{
		{name: "map", does: once(func(context.Context, *attempt) error {
			var m map[string]int
			m["a"] = 1 //nolint:staticcheck // it panics
			return nil
		})},
		{name: "pointer", does: once(func(context.Context, *attempt) error {
			var m *taskredis.Message
			m.Retry = 1
			return nil
		})},
		{name: "index", does: once(func(_ context.Context, a *attempt) error { return []error{}[a.n] })},
	}},
	{name: "Goexit", differs: differsGoexit, tasks: []task{{name: "a", opts: with(asynq.Timeout(brief)), does: once(exits())}}},

	{name: "results", tasks: []task{
		{name: "kept", opts: kept, does: once(writes("42", returns(nil)))},
		{name: "not kept", does: once(writes("42", returns(nil)))},
		{name: "two", opts: kept, does: once(writes("42", writes("43", returns(nil))))},
		{name: "binary", opts: kept, does: once(writes("\x00\xff\xe4", returns(nil)))},
		{name: "empty", opts: kept, does: once(writes("", returns(nil)))},
		{name: "of a failure", opts: kept, does: once(writes("42", returns(errBoom)))},
		{name: "of a failure before", opts: kept, does: []step{writes("42", returns(errBoom)), returns(nil)}},
		{name: "archived", opts: noRetries, does: once(writes("42", returns(errBoom)))},
	}},

	{name: "no failure", config: minorIsNone, tasks: []task{{name: "a", does: once(returns(errMinor))}}},
	{name: "no failure, no retries", config: minorIsNone, tasks: []task{{name: "a", opts: noRetries, does: once(returns(errMinor))}}},
	{name: "no failure, as often as it likes", config: minorIsNone, tasks: []task{{name: "a", opts: with(asynq.MaxRetry(1)), does: []step{
		returns(errMinor), returns(errMinor), returns(errMinor), returns(errBoom), returns(errBoom),
	}}}},

	{name: "the delay grows with the failures", config: func(c *asynq.Config) {
		c.RetryDelayFunc = func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(n+1) * time.Hour }
	}, tasks: []task{{name: "a", does: times(2, returns(errBoom))}}, play: func(r *rig) {
		r.start()
		r.state("a", "retry")
		r.note("run a", r.inspect.RunTask("default", r.id("a")))
		r.attempted()
	}},
	{name: "a negative delay", config: func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return -time.Hour }
	}, tasks: []task{{name: "a", does: []step{returns(errBoom), returns(nil)}}}},
	{name: "none of the functions", config: func(c *asynq.Config) {
		c.BaseContext, c.IsFailure, c.ErrorHandler, c.RetryDelayFunc = nil, nil, nil, nil
	}, tasks: []task{
		{name: "a", opts: noRetries, does: once(returns(errBoom))},
		{name: "b", does: once(returns(errBoom))},
	}, play: func(r *rig) {
		r.finish()
		score, err := r.redis.ZScore(r.t.Context(), taskredis.RetryKey("default"), r.id("b")).Result()
		wait := time.Until(time.Unix(int64(score), 0))
		r.note("15 s and a random part of 30 s", fmt.Sprint(err == nil && wait <= 44*time.Second && wait > -time.Minute))
		r.move(taskredis.RetryKey("default"), r.id("b"), time.Hour)
	}},

	{name: "a base context that has ended", config: func(c *asynq.Config) {
		c.BaseContext = func() context.Context {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(errBoom)
			return ctx
		}
	}, tasks: []task{{name: "a", does: never}, {name: "b", opts: noRetries, does: never}}, play: func(r *rig) {
		r.start()
		r.state("a", "retry")
		r.state("b", "archived")
	}},
	{name: "a base context with an earlier deadline", config: func(c *asynq.Config) {
		c.BaseContext = func() context.Context { return ending(10 * time.Minute) }
	}, tasks: []task{{name: "a"}}},
}

// ending returns a context that ends by a deadline.
func ending(in time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), in)
	context.AfterFunc(ctx, cancel)
	return ctx
}
