package queue

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/sleep"
)

// An unguarded server is one of asynq's own that serves a queue which a guarded server serves, too.
// It runs the guarded tasks of that queue without their locks, as a worker does that was not
// restarted when the guard was introduced. Guarded servers say what they are in the entries that
// asynq's servers write about themselves.

// watchEvery is how often the elected server looks for unguarded servers. It is not shorter than the
// entry of a server lasts: one that is there at two looks in a row was alive after the first.
const watchEvery = 10 * time.Second

const unguardedAdvice = "it runs guarded tasks of these queues without their locks: pause the queues, stop it, and resume them; " +
	"or it has a guard of an older release, which did not say so: upgrade it"

// unguarded returns the unguarded ones among servers that serve one of those queues. Their Queues are
// the ones of these that a guarded server serves, too.
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

// An unguardedWatch knows which unguarded servers were there when it last looked.
type unguardedWatch struct {
	seen map[string]seenServer // by the server's id
}

type seenServer struct {
	server asynqredis.Server
	told   bool // that it is there
}

// look is told which unguarded servers are there now. It returns those that have come, which were
// there the last time as well, and those of them that have gone.
func (l *unguardedWatch) look(found []asynqredis.Server) (come, gone []asynqredis.Server) {
	seen := make(map[string]seenServer, len(found))
	for _, s := range found {
		before, again := l.seen[s.ID]
		seen[s.ID] = seenServer{server: s, told: again}
		if again && !before.told {
			come = append(come, s)
		}
	}
	for id, before := range l.seen {
		if _, there := seen[id]; before.told && !there {
			gone = append(gone, before.server)
		}
	}
	l.seen = seen
	return come, gone
}

// watch logs which unguarded servers serve one of queues, until ctx ends.
func (g *Guard) watch(ctx context.Context, queues []string) {
	rdb, ok := g.rdb.(redis.UniversalClient)
	if !ok {
		return // it runs scripts only
	}
	var l unguardedWatch
	for {
		servers, err := asynqredis.Servers(ctx, rdb)
		if err != nil && ctx.Err() == nil {
			g.faults.fault(ctx, g.cfg.Logger, "unguarded servers cannot be looked for", err)
		}
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
