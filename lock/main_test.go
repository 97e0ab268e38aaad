package lock_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
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
