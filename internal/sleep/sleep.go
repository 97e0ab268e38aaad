// Package sleep waits for a time to pass, or for the end of a context.
package sleep

import (
	"context"
	"time"
)

// For returns nil after d. If ctx ends first it returns the cause of that at once.
func For(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
