package taskredis

import (
	"context"
	"fmt"
)

var beganScript = script("began")

// Began writes down that the handler of a task without retries is about to begin, and reports whether the attempt is the task's
// latest. If its server dies from then on, the task does not run again, unless [Steps.OnceToo] says so. With late it writes down
// that the task has waited for too long, as its server has found out.
func (c *Steps) Began(ctx context.Context, n Name, late bool) (latest bool, err error) {
	latest, err = beganScript.Run(ctx, c.Redis, []string{TaskKey(n.Queue, n.ID)}, n.Attempt, flag(late)).Bool()
	if err != nil {
		return false, fmt.Errorf("taskredis: began: %w", err)
	}
	return latest, nil
}
