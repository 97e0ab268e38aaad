package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
)

// checkServers returns the findings for servers that take no locks.
func checkServers(ctx context.Context, rdb redis.UniversalClient) ([]Finding, error) {
	const trait = "unguarded server"
	servers, err := taskredis.Servers(ctx, rdb)
	if refusedByRedis(err) {
		return []Finding{{Trait: trait}}, nil
	}
	var found []Finding
	for _, s := range taskredis.Unguarded(servers) {
		have := fmt.Sprintf("%v, queues: %s", s, strings.Join(slices.Sorted(maps.Keys(s.Queues)), ", "))
		found = append(found, Finding{Trait: trait, Have: have, Advice: taskredis.UnguardedAdvice})
	}
	return found, err
}
