package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// warnUnserved names the asynq queues, of those that got tasks, that no worker serves now. One may be
// misspelt. An error of Redis is ignored: the tasks are stored.
func (a *app) warnUnserved(client redis.UniversalClient, queues map[string]bool) {
	if len(queues) == 0 {
		return
	}
	servers, err := asynq.NewInspectorFromRedisClient(client).Servers()
	if err != nil {
		return
	}
	for _, queue := range slices.Sorted(maps.Keys(queues)) {
		served := slices.ContainsFunc(servers, func(s *asynq.ServerInfo) bool { return s.Queues[queue] > 0 })
		if !served {
			_, _ = fmt.Fprintf(a.stderr, "enqueue: no worker serves the queue %s now; its tasks wait for one\n", queue)
		}
	}
}
