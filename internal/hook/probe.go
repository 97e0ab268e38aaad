package hook

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

//go:embed probe.lua
var probeSource string

// probeName tells the keys of a probe from those of its queue. Both have the same hash tag and the same
// prefix, as the rights of a user may depend on the prefix.
const probeName = "siding-probe:"

// Probe tries, by one call, whether tasks can be taken from a queue. Then Redis answers, is no replica
// and has memory left, and the user of rdb has the rights. Probe takes no task, and leaves nothing
// behind. The error is that of the call.
func (h *Hook) Probe(ctx context.Context, rdb redis.Scripter, queue string) error {
	tasks, own := asynqredis.Prefix(queue)+probeName, "siding:{"+queue+"}:"+probeName
	keys := []string{tasks + "pending", tasks + "paused", tasks + "active", tasks + "lease", own + "notify", tasks + "retry", own + "contended"}
	argv := h.dequeueArgs(queue, 0, "probe")
	argv[1] = tasks + "t:"
	probe := asynqredis.OwnScript("local function dequeue()\n" + h.dequeue.Source + "\nend\n" + probeSource)
	if err := probe.Run(ctx, rdb, keys, argv...).Err(); err != nil {
		return fmt.Errorf("queue %s: %w", queue, err)
	}
	return nil
}
