package taskredis

import (
	"context"
	"fmt"
)

var beganScript = script("began")

// Began writes down what is about to begin, so that it still counts if the server dies, and reports whether the attempt is the
// task's latest: the handler of a task without retries, which then does not run again, unless [Steps.NoRetriesToo] says so; or with
// waitOver what the user does with a task that got its lock too late, whose handler then never runs.
func (c *Steps) Began(ctx context.Context, n Name, waitOver bool) (latest bool, err error) {
	latest, err = beganScript.Run(ctx, c.Redis, []string{TaskKey(n.Queue, n.ID)}, n.Attempt, flag(waitOver)).Bool()
	if err != nil {
		return false, fmt.Errorf("taskredis: began: %w", err)
	}
	return latest, nil
}
