package queue

import (
	"fmt"

	"github.com/hibiken/asynq"
)

// Permanent wraps the error of a handler to say that no retry can mend it. The task is archived at
// once, whatever retries it has left. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
}
