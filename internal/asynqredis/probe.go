package asynqredis

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed probe.lua
var probeSource string

// probeName tells the keys of a probe from those of its queue. They share its hash tag, and
// what begins a key, which a user's rights may depend on.
const probeName = "siding-probe:"

// Probe tries, by one call, whether tasks can be taken from a queue: Redis answers, is no
// replica, has memory left, and the user of rdb has the rights. It takes no task, and leaves
// nothing behind. The error is that of the call.
func (h *Hook) Probe(ctx context.Context, rdb redis.Scripter, queue string) error {
	tasks, own := prefix(queue)+probeName, "siding:{"+queue+"}:"+probeName
	keys := []string{tasks + "pending", tasks + "paused", tasks + "active", tasks + "lease", own + "bell", tasks + "retry", own + "contended"}
	argv := h.dequeueArgs(queue, 0, "probe")
	argv[1] = tasks + "t:"
	probe := ownScript("local function dequeue()\n" + h.dequeue.source + "\nend\n" + probeSource)
	if err := probe.Run(ctx, rdb, keys, argv...).Err(); err != nil {
		return fmt.Errorf("queue %s: %w", queue, err)
	}
	return nil
}
