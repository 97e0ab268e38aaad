package queuetest_test

import (
	"context"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
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
