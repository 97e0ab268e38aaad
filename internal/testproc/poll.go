package testproc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// patience bounds every wait for a server. It is long, because a machine
	// that builds and tests at once may be slow, and because only a test that
	// fails anyway waits for its end.
	patience = 60 * time.Second
	// glance is how often a condition is looked at while waiting for it.
	glance = 3 * time.Millisecond
)

// A PermanentError ends Poll at once.
type PermanentError struct{ error }

// Unwrap returns the error that is permanent.
func (e PermanentError) Unwrap() error { return e.error }

// Poll calls check until it returns nil, and gives up, with the last error of
// check, when that is a [PermanentError], a minute has passed, or ctx ends.
func Poll(ctx context.Context, check func() error) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		if permanent := (PermanentError{}); errors.As(err, &permanent) {
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
