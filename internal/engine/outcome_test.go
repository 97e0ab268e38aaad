package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// A task that a shutdown has put back while a function of the user is asked about its failure has not failed: nobody is told so.
func TestFailureOfATaskThatWasPutBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.config(func(context.Context, *Task) error { return errors.New("its own") })
	cfg.ShutdownTimeout = 50 * time.Millisecond
	asked, may := make(chan struct{}), make(chan struct{})
	cfg.OnError = func(context.Context, *Task, error) {
		close(asked)
		<-may
	}
	var failed atomic.Int32
	cfg.Failed = func(context.Context, *Task, taskredis.Kind, error) { failed.Add(1) }
	s := New(cfg)
	expect.OK(t, s.Start(t.Context(), f.rules))
	f.crowd("q", 1, "")
	<-asked
	expect.OK(t, s.Shutdown(t.Context()))
	close(may)
	pending, err := f.rdb.LLen(t.Context(), taskredis.PendingKey("q")).Result()
	expect.That(t, err == nil && pending == 1, "want the task pending, have %d and %v", pending, err)
	expect.Equal(t, "failures told", failed.Load(), 0)
}
