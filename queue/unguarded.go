package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/sleep"
)

// An unguarded server is an asynq server without a guard on a queue of a guarded server. Such a
// server runs the guarded tasks of that queue without their locks. An example is a worker that was
// not restarted when its fleet got the guard. Each asynq server writes an entry about itself.
// Guarded servers mark theirs.

// watchEvery is how often the elected server looks for unguarded servers. The entry of a server
// lasts no longer. So a server that two checks in a row have found was alive after the first.
const watchEvery = 10 * time.Second

const unguardedAdvice = "it runs guarded tasks of these queues without their locks: pause the queues, stop it, and resume them; " +
	"or it has a guard of an older release, which did not say so: upgrade it"

// unguarded returns the unguarded servers, with those of their queues that a guarded server serves,
// too. Queues that do not count are ignored.
func unguarded(servers []asynqredis.Server, counts func(queue string) bool) []asynqredis.Server {
	guarded := make(map[string]bool)
	for _, s := range servers {
		for _, queue := range s.Queues {
			guarded[queue] = guarded[queue] || s.Guarded && counts(queue)
		}
	}
	var found []asynqredis.Server
	for _, s := range servers {
		queues := slices.DeleteFunc(slices.Sorted(slices.Values(s.Queues)), func(queue string) bool { return !guarded[queue] })
		if !s.Guarded && len(queues) > 0 {
			s.Queues = queues
			found = append(found, s)
		}
	}
	return found
}

// checkServers returns the findings for servers without a guard.
func checkServers(ctx context.Context, rdb redis.UniversalClient) ([]Finding, error) {
	const trait = "unguarded server"
	servers, err := asynqredis.Servers(ctx, rdb)
	if refusedByRedis(err) {
		return []Finding{{Trait: trait}}, nil
	}
	var found []Finding
	for _, s := range unguarded(servers, func(string) bool { return true }) {
		have := fmt.Sprintf("%v, queues: %s", s, strings.Join(s.Queues, ", "))
		found = append(found, Finding{Trait: trait, Have: have, Advice: unguardedAdvice})
	}
	return found, err
}

// An unguardedWatch remembers the unguarded servers of the last check.
type unguardedWatch struct {
	seen map[string]seenServer // by the server's id
}

type seenServer struct {
	asynqredis.Server

	reported bool // look has returned it
}

// look takes the unguarded servers of a check. come are those that the last check has found as
// well. gone are those that were returned as come, and that this check lacks.
func (l *unguardedWatch) look(found []asynqredis.Server) (come, gone []asynqredis.Server) {
	seen := make(map[string]seenServer, len(found))
	for _, s := range found {
		before, again := l.seen[s.ID]
		seen[s.ID] = seenServer{s, again}
		if again && !before.reported {
			come = append(come, s)
		}
	}
	for id, before := range l.seen {
		if _, there := seen[id]; before.reported && !there {
			gone = append(gone, before.Server)
		}
	}
	l.seen = seen
	return come, gone
}

// watch logs which unguarded servers serve one of queues, until ctx ends.
func (g *Guard) watch(ctx context.Context, queues []string) {
	rdb, ok := g.rdb.(redis.UniversalClient)
	if !ok {
		return // a redis.Scripter alone cannot list servers
	}
	var l unguardedWatch
	for {
		servers, err := asynqredis.Servers(ctx, rdb)
		g.fault(ctx, "unguarded servers cannot be looked for", err)
		if err == nil {
			come, gone := l.look(unguarded(servers, func(queue string) bool { return slices.Contains(queues, queue) }))
			for _, s := range come {
				g.cfg.Logger.WarnContext(ctx, "a server without the guard serves guarded queues",
					"host", s.Host, "pid", s.PID, "server_id", s.ID, "queues", s.Queues, "advice", unguardedAdvice)
			}
			for _, s := range gone {
				g.cfg.Logger.InfoContext(ctx, "the server without the guard has gone",
					"host", s.Host, "pid", s.PID, "server_id", s.ID, "queues", s.Queues)
			}
		}
		if sleep.For(ctx, g.watchEvery) != nil {
			return
		}
	}
}
