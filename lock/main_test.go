package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that must happen; only a test that
// fails waits for its end.
const patience = 20 * time.Second

// ended waits until ctx has ended and returns the cause.
func ended(t *testing.T, ctx context.Context) error { //nolint:revive // t first, as in every helper
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		t.Fatal("want the context ended, have it alive")
		return nil
	}
}

// inBubbles runs a test of each case, on a fake clock of its own.
func inBubbles[C any](t *testing.T, cases map[string]C, test func(t *testing.T, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, c) })
		})
	}
}

// must ends a test of which a step has failed.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// wantLost checks the error of a call for a lease that has ended.
func wantLost(tb testing.TB, what string, err error) {
	tb.Helper()
	if !errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrBusy) {
		tb.Errorf("%s: want ErrLost, have %v", what, err)
	}
}

// wantBusy checks the error of a call that was refused.
func wantBusy(tb testing.TB, what string, err error) {
	tb.Helper()
	if !errors.Is(err, lock.ErrBusy) || errors.Is(err, lock.ErrLost) {
		tb.Errorf("%s: want ErrBusy, have %v", what, err)
	}
}

// wantBroken checks the error of a call that the store did not answer, or not as it should.
func wantBroken(tb testing.TB, what string, err error) {
	tb.Helper()
	if err == nil || errors.Is(err, lock.ErrBusy) || errors.Is(err, lock.ErrLost) {
		tb.Errorf("%s: want an error that is neither busy nor lost, have %v", what, err)
	}
}
