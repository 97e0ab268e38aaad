// Package poll waits until something has become true, by looking again and again.
package poll

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/sleep"
)

const (
	// patience is long, as a machine that builds and tests at once may be slow, and
	// only a test that fails waits for its end.
	patience = time.Minute
	// shortest and longest are the first pause between two looks and the last:
	// each is twice the one before.
	shortest = time.Millisecond
	longest  = 16 * time.Millisecond
)

// Until calls check until it returns nil. It gives up when ctx ends, after a minute
// if ctx has no deadline. The error is then the cause of that end with the last
// error of check.
func Until(ctx context.Context, check func() error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
		defer cancel()
	}
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := check()
		if err == nil {
			return nil
		}
		if end := sleep.For(ctx, pause); end != nil {
			return fmt.Errorf("%w: %w", end, err)
		}
	}
}

var errNotYet = errors.New("not yet")

// Eventually waits until ok returns true, also in a cleanup. After a minute it ends
// the test: what names the condition in the message.
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
