package engine

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
)

// Strangers are the servers without locks on the queues of this one. The elected server looks for them on behalf of all, and
// logs which have come and gone.
type strangers struct {
	redis  redis.UniversalClient
	queues map[string]int
	logger *slog.Logger
	seen   map[string]seenServer // by the server's id
}

// strangersEvery is how often it looks. The entry of a server lasts no longer, so a server that two looks in a row have found
// was alive after the first.
const strangersEvery = 10 * time.Second

type seenServer struct {
	*taskredis.ServerInfo

	reported bool
}

func (w *strangers) look(ctx context.Context) (next time.Duration, err error) {
	servers, err := taskredis.Servers(ctx, w.redis)
	if err != nil {
		return strangersEvery, err
	}
	seen := make(map[string]seenServer)
	for _, s := range taskredis.Unguarded(servers, func(queue string) bool { return w.queues[queue] > 0 }) {
		before, again := w.seen[s.ID]
		seen[s.ID] = seenServer{s, again}
		if again && !before.reported {
			w.logger.WarnContext(ctx, "a server that takes no locks serves guarded queues", append(attrsOf(s), "advice", taskredis.UnguardedAdvice)...)
		}
	}
	for id, before := range w.seen {
		if _, there := seen[id]; before.reported && !there {
			w.logger.InfoContext(ctx, "the server that takes no locks has gone", attrsOf(before.ServerInfo)...)
		}
	}
	w.seen = seen
	return strangersEvery, nil
}

func attrsOf(s *taskredis.ServerInfo) []any {
	return []any{"host", s.Host, "pid", s.PID, "server_id", s.ID, "queues", slices.Sorted(maps.Keys(s.Queues))}
}
