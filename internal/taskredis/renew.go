package taskredis

import (
	"context"
	"fmt"

	"github.com/sidingq/siding/internal/redisreply"
)

var renewScript = script("renew")

// Renew gives the locks of attempts in a scope another TTL from now, and their leases 0.1 s less; those without a lock get
// asynq's 30 s. It says for each attempt whether it is still its task's latest and holds its lock.
func (c *Steps) Renew(ctx context.Context, scope string, attempts []Name) ([]bool, error) {
	argv := make([]any, 0, 2+4*len(attempts))
	argv = append(argv, c.TTL.Milliseconds(), c.FenceTTL.Milliseconds())
	for _, a := range attempts {
		argv = append(argv, a.Queue, a.ID, a.Attempt, a.Lock)
	}
	var records [Lanes]string
	for lane := range records {
		records[lane] = c.record(scope, lane)
	}
	reply, err := renewScript.Run(ctx, c.Redis, together(scope, records[:]...), argv...).Int64Slice()
	if err == nil && len(reply) != len(attempts) {
		err = fmt.Errorf("%w: want %d values, have %d", redisreply.ErrReply, len(attempts), len(reply))
	}
	if err != nil {
		return nil, fmt.Errorf("taskredis: renew: %w", err)
	}
	kept := make([]bool, len(reply))
	for i, n := range reply {
		kept[i] = n == 1
	}
	return kept, nil
}
