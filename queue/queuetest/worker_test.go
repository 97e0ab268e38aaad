package queuetest_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/queue/queuetest"
)

// A task whose time is over does not begin, and leaves its resource free.
func TestRunAfterItsTime(t *testing.T) {
	t.Parallel()
	var w queuetest.Worker
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // as which of two things is noticed is left to chance
		expect.Is(t, "run", queuetest.Run(ended, &w, audit{Order: "1"}, mustNotRun[audit](t)), context.Canceled)
	}
	expect.OK(t, queuetest.Run(t.Context(), &w, audit{Order: "1"}, func(context.Context, audit) error { return nil }))
}

func TestRunBatch(t *testing.T) {
	t.Parallel()
	var w queuetest.Worker
	boom := errors.New("boom")
	tasks := []audit{{"1"}, {"1"}, {"1"}}
	have, err := queuetest.RunBatch(t.Context(), &w, tasks, func(ctx context.Context, batch []*queue.BatchTask[audit]) error {
		if lock.Fence(ctx, "order:1") == 0 || batch[0].Info.ID == batch[1].Info.ID || batch[1].Info.Resource != "order:1" {
			t.Errorf("want a fence, and a task each, have %+v and %+v", batch[0], batch[1])
		}
		batch[1].End(nil)
		_ = slices.Delete(batch, 0, 1)
		return boom
	})
	expect.That(t, err == nil && slices.Equal(have, []error{boom, nil, boom}), "want the second alone done, have %v, %v", have, err)
	handler := func(context.Context, []*queue.BatchTask[audit]) error { return nil }
	transfers := func(context.Context, []*queue.BatchTask[transfer]) error { return nil }
	have, err = queuetest.RunBatch(t.Context(), &w, []transfer{{}}, transfers)
	expect.That(t, err == nil && slices.Equal(have, []error{nil}), "want one of several resources done alone, have %v, %v", have, err)
	for want, call := range map[string]func() ([]error, error){
		"queuetest: want tasks, have none": func() ([]error, error) { return queuetest.RunBatch(t.Context(), &w, nil, handler) },
		"queuetest: want 100 tasks at most, have 101": func() ([]error, error) {
			return queuetest.RunBatch(t.Context(), &w, slices.Repeat([]audit{{"1"}}, 101), handler)
		},
		"queuetest: transfer: want one task, as it needs several resources, have 2": func() ([]error, error) {
			return queuetest.RunBatch(t.Context(), &w, []transfer{{}, {}}, transfers)
		},
		"order:audit: order: it is empty": func() ([]error, error) {
			return queuetest.RunBatch(t.Context(), &w, []audit{{"1"}, {""}}, handler)
		},
		`queuetest: order:audit: resource: want "order:1" as of the first task, have "order:2"`: func() ([]error, error) {
			return queuetest.RunBatch(t.Context(), &w, []audit{{"1"}, {"2"}}, handler)
		},
		"queuetest: order:audit: want a handler, have nil": func() ([]error, error) { return queuetest.RunBatch(t.Context(), &w, tasks, nil) },
		"queuetest: order:audit: want a Worker, have nil":  func() ([]error, error) { return queuetest.RunBatch(t.Context(), nil, tasks, handler) },
	} {
		if _, err := call(); err == nil || err.Error() != want {
			t.Errorf("want %q, have %v", want, err)
		}
	}
	_, err = queuetest.RunBatch(t.Context(), &w, tasks, func(context.Context, []*queue.BatchTask[audit]) error {
		w.Lose("order:1")
		return nil
	})
	expect.That(t, errors.Is(err, lock.ErrLost), "want the lease lost, have %v", err)
}
