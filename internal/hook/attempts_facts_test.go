package hook_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
)

// By IsFailure an error counts as no failure. But asynq first checks whether the retries are used
// up.
func TestAsynqArchivesOnLastAttemptEvenWhenNotAFailure(t *testing.T) {
	t.Parallel()
	for _, retries := range []int{0, 1} {
		t.Run(fmt.Sprintf("MaxRetry(%d)", retries), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			handler, attempts := b.manual()
			id := b.enqueue(asynq.MaxRetry(retries))
			b.serve(asynq.Config{IsFailure: notBusy}, handler)
			for range retries {
				next(t, "attempt", attempts).end <- errors.New("its own failure")
			}
			next(t, "last attempt", attempts).end <- errBusy

			info := b.await(id, asynq.TaskStateArchived)
			if info.LastErr != errBusy.Error() || info.Retried != retries {
				t.Errorf("want archived for %q after %d retries, have %q after %d", errBusy, retries, info.LastErr, info.Retried)
			}
			if processed, failed := b.counts(); processed != retries+1 || failed != retries+1 {
				t.Errorf("want it counted as a failure too (%d), have processed %d, failed %d", retries+1, processed, failed)
			}
		})
	}
}

func TestAsynqCountsNothingBeforeTheLastAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	id := b.enqueue(asynq.MaxRetry(1))
	b.serve(asynq.Config{IsFailure: notBusy}, handler)
	for range 3 {
		next(t, "attempt", attempts).end <- errBusy
	}
	last := next(t, "attempt", attempts)
	if n, _ := asynq.GetRetryCount(last.ctx); n != 0 {
		t.Errorf("want no retry counted, have %d", n)
	}
	if processed, failed := b.counts(); processed != 0 || failed != 0 {
		t.Errorf("want nothing counted, have processed %d, failed %d", processed, failed)
	}
	last.end <- nil
	b.awaitGone(id)
}

func TestAsynqTellsTheErrorHandlerOfErrorsThatAreNoFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	told := make(chan error, 1)
	b.enqueue()
	b.serve(asynq.Config{
		IsFailure:      notBusy,
		RetryDelayFunc: retryAfter(time.Hour),
		ErrorHandler:   asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { told <- err }),
	}, func(context.Context, *asynq.Task) error { return errBusy })
	if err := next(t, "call of the error handler", told); !errors.Is(err, errBusy) {
		t.Errorf("want %v, have %v", errBusy, err)
	}
}

// Without IsFailure and RetryDelayFunc of our own, a guard in somebody's server
// silently uses up the task's retries.
func TestAsynqByDefaultChargesEveryError(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	id := b.enqueue()
	b.serve(asynq.Config{RetryDelayFunc: asynq.DefaultRetryDelayFunc}, handler)
	next(t, "attempt", attempts).end <- errBusy
	info := b.await(id, asynq.TaskStateRetry)
	if info.Retried != 1 {
		t.Errorf("want 1 retry counted, have %d", info.Retried)
	}
	if wait := time.Until(info.NextProcessAt); wait < 5*time.Second {
		t.Errorf("want a back-off of many seconds, have %v", wait)
	}
	if _, failed := b.counts(); failed != 1 {
		t.Errorf("want 1 failure counted, have %d", failed)
	}
}

func TestAsynqRevokeTaskEndsATaskWithoutArchiving(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	id := b.enqueue(asynq.MaxRetry(0))
	b.serve(asynq.Config{}, handler)
	next(t, "attempt", attempts).end <- fmt.Errorf("of no use any more: %w", asynq.RevokeTask)
	b.awaitGone(id)
	if processed, failed := b.counts(); processed != 1 || failed != 0 {
		t.Errorf("want it counted as done, have processed %d, failed %d", processed, failed)
	}
}

// A value in a server's BaseContext tells a guard in which server it runs.
func TestAsynqBaseContextReachesHandlers(t *testing.T) {
	t.Parallel()
	type marker struct{}
	b := newBench(t)
	handler, attempts := b.manual()
	b.enqueue()
	b.serve(asynq.Config{
		BaseContext: func() context.Context { return context.WithValue(context.Background(), marker{}, "ours") },
	}, handler)
	a := next(t, "attempt", attempts)
	if have := a.ctx.Value(marker{}); have != "ours" {
		t.Errorf("want the marker, have %v", have)
	}
	a.end <- nil
}

// So a hook cannot tell by the context which server dequeues, and no deadline
// of ours bounds it.
func TestAsynqDequeuesWithContextBackground(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	srv := b.serve(asynq.Config{
		BaseContext: func() context.Context { return t.Context() },
	}, func(context.Context, *asynq.Task) error { return nil })
	poll.Eventually(t, "a dequeue", func() bool { return len(srv.calls(scriptCall.isDequeue)) > 0 })
	if c := srv.calls(scriptCall.isDequeue)[0]; c.ctx != context.Background() {
		t.Errorf("want context.Background(), have %v", c.ctx)
	}
}
