package redistest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A permanentError ends poll at once.
type permanentError struct{ error }

// poll calls check until it returns nil, and gives up, with the last error of
// check, when that is a permanentError, patience is at its end, or ctx ends.
func poll(ctx context.Context, check func() error) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		if permanent := (permanentError{}); errors.As(err, &permanent) {
			return permanent.error
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			return fmt.Errorf("not ready after %v: %w", patience, err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
