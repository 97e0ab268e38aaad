package expect

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/sleep"
)

const (
	// patience is long: a machine that builds and tests at once is slow, and only a test that
	// fails waits so long.
	patience = time.Minute
	// shortest and longest are the first and the last pause between two looks. Each pause is
	// twice the one before.
	shortest = time.Millisecond
	longest  = 16 * time.Millisecond
)

// Until calls check until check returns nil. Until gives up when ctx ends, or after a minute if
// ctx has no deadline. The error then has the cause of that end and the last error of check. If
// ctx ends during a check, the error of that check counts only if there is no other.
func Until(ctx context.Context, check func() error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
		defer cancel()
	}
	var last error
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := check()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if end := sleep.For(ctx, pause); end != nil {
			return fmt.Errorf("%w: %w", end, last)
		}
	}
}

// Ended waits until ctx has ended, and returns the cause.
func Ended(tb testing.TB, ctx context.Context) error { //nolint:revive // tb first, as in all of them
	tb.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		tb.Fatal("want the context ended, have it alive")
		return nil
	}
}

var errNotYet = errors.New("not yet")

// Eventually waits until ok returns true, also in a cleanup. After a minute it ends the test
// with a message that names what it wanted.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	err := Until(context.WithoutCancel(tb.Context()), func() error {
		if ok() {
			return nil
		}
		return errNotYet
	})
	if err != nil {
		tb.Fatalf("want %s: %v", what, err)
	}
}
