package asynqhandler_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue/asynqhandler"
)

func newHandler(t *testing.T, rdb redis.UniversalClient, h asynq.HandlerFunc) engine.Handler {
	t.Helper()
	handler := expect.Value(asynqhandler.New(rdb, h))(t)
	return handler
}

// valueKey is the key of a value that a server's BaseContext sets.
type valueKey struct{}

// The context is the server's, and ends at once with it and for its cause. asynq's own has another deadline and no
// cause, and must not come in between.
func TestContextIsTheServers(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	cause := errors.New("the lock is lost")
	for name, parent := range map[string]func() (context.Context, context.CancelFunc){
		"deadline":    func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Hour) },
		"no deadline": func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
	} {
		parent, stop := parent()
		defer stop()
		ctx, cancel := context.WithCancelCause(context.WithValue(parent, valueKey{}, "value"))
		h := newHandler(t, rdb, func(have context.Context, _ *asynq.Task) error {
			deadline, ok := have.Deadline()
			want, wantOK := ctx.Deadline()
			expect.That(t, deadline.Equal(want) && ok == wantOK, "%s: want the deadline %v, have %v", name, want, deadline)
			expect.That(t, have.Value(valueKey{}) == "value", "%s: want the value, have %v", name, have.Value(valueKey{}))
			expect.That(t, have.Err() == nil && context.Cause(have) == nil, "%s: want a context that goes on, have %v", name, context.Cause(have))
			child, cancelChild := context.WithCancel(have)
			defer cancelChild()
			cancel(cause)
			if have.Err() != context.Canceled || context.Cause(have) != cause || context.Cause(child) != cause { //nolint:errorlint // this very error
				t.Errorf("%s: want the cause %v, have %v", name, cause, context.Cause(have))
			}
			return nil
		})
		if err := h(ctx, &engine.Task{Message: &taskredis.Message{ID: "id", Queue: "queue"}}); err != nil {
			t.Error(err)
		}
	}
}

// Each attempt has a writer of its own, which keeps a result while it runs and is the task's latest. (taskredis tests when that is.)
func TestResultIsOfTheLatestAttempt(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	m := &taskredis.Message{Type: "type", ID: "id", Queue: t.Name()}
	key := taskredis.TaskKey(m.Queue, m.ID)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writer *asynq.ResultWriter
	h := newHandler(t, rdb, func(_ context.Context, task *asynq.Task) error { writer = task.ResultWriter(); return nil })
	begin := func(attempt string) *asynq.ResultWriter {
		expect.OK(t, rdb.HSet(ctx, key, "state", "active", "siding_attempt", attempt).Err())
		expect.OK(t, h(ctx, &engine.Task{Message: m, Taken: &taskredis.Taken{Name: taskredis.Name{Queue: m.Queue, ID: m.ID, Attempt: attempt}}}))
		return writer
	}
	first := begin("first")
	expect.OK(t, expect.Err(first.Write([]byte("of first"))))
	second := begin("second")
	n, err := first.Write([]byte("late of first"))
	expect.That(t, n == 0 && errors.Is(err, taskredis.ErrEnded), "want it refused, have %d bytes: %v", n, err)
	n, err = second.Write([]byte("of second"))
	expect.That(t, n == len("of second") && err == nil, "want it kept, have %d bytes: %v", n, err)
	cancel()
	const want = "failed to write task result: context canceled" // as asynq says it
	n, err = second.Write([]byte("after the end"))
	expect.That(t, n == 0 && err != nil && err.Error() == want, "want %s, have %d bytes: %v", want, n, err)
	expect.Equal(t, "result", rdb.HGet(t.Context(), key, "result").Val(), "of second")
}

// A handler's error comes through as it is, as asynq's own errors say what becomes of the task.
func TestErrorsComeThrough(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	for _, want := range []error{nil, asynq.SkipRetry, asynq.RevokeTask, errors.New("own")} {
		h := newHandler(t, rdb, func(context.Context, *asynq.Task) error { return want })
		if have := h(t.Context(), &engine.Task{Message: &taskredis.Message{}}); have != want { //nolint:errorlint // this very error
			t.Errorf("want %v, have %v", want, have)
		}
	}
}

func TestNoHandler(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	_, err := asynqhandler.New(rdb, nil)
	expect.Equal(t, "error", fmt.Sprint(err), "asynqhandler: want a handler, have nil")
}
