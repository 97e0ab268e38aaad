package taskredis

import (
	"context"
	"fmt"
)

var rescanScript = script("rescan")

// Rescan has the locks looked at for which tasks of a queue wait: after a change of the rules somebody may start that could
// not before.
func (c *Steps) Rescan(ctx context.Context, queue string) error {
	for cursor := "0"; ; {
		next, err := rescanScript.Run(ctx, c.Redis, together(queue, ReadyKey(queue)), queue, cursor).Text()
		if err != nil {
			return fmt.Errorf("taskredis: rescan: %w", err)
		}
		if cursor = next; cursor == "0" {
			return nil
		}
	}
}
