package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/sidingq/siding/internal/taskredis"
)

// Orphans lists active tasks whose worker died or was cut off, and those that run again after that.
func (i *Inspector) Orphans(ctx context.Context) ([]Orphan, error) {
	queues, err := taskredis.QueueNames(ctx, i.rdb)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	active, err := taskredis.AllActive(ctx, i.rdb, queues)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	var found []Orphan
	for n := range active {
		if a := &active[n]; a.Orphaned || a.Crashes > 0 {
			found = append(found, Orphan{
				Task: Task{Queue: a.Queue, ID: a.ID, Kind: a.Message.Type}, Resource: i.resourceOf(a.Lock, a.Message),
				Orphaned: a.Orphaned, Crashes: a.Crashes, Tolerated: i.tolerated(), LeaseEnds: utc(a.Lease),
				UsesRetry: a.Orphaned && i.usesRetry(a.Guarded, a.Last, a.Crashes),
			})
		}
	}
	return found, nil
}

// Servers lists asynq's servers. A server that was killed stays in the list for up to 10 s.
func (i *Inspector) Servers(ctx context.Context) ([]Server, error) {
	all, err := taskredis.Servers(ctx, i.rdb)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	servers := make([]Server, len(all))
	for n, s := range all {
		servers[n] = Server{Worker: Worker{s.Host, s.PID}, ID: s.ID, Queues: slices.Sorted(maps.Keys(s.Queues)), Guarded: s.Guarded, Versions: s.Versions}
	}
	for _, bad := range taskredis.Unguarded(all) {
		at := slices.IndexFunc(servers, func(s Server) bool { return s.ID == bad.ID && s.Worker == Worker{bad.Host, bad.PID} })
		servers[at].Unguarded = slices.Sorted(maps.Keys(bad.Queues))
	}
	return servers, nil
}

// Queues lists asynq's queues, with the number of tasks in each state.
func (i *Inspector) Queues(ctx context.Context) ([]Queue, error) {
	names, err := taskredis.QueueNames(ctx, i.rdb)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	sizes, err := taskredis.SizesOf(ctx, i.rdb, names)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	servers, err := taskredis.Servers(ctx, i.rdb)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	queues := make([]Queue, len(sizes))
	for n, s := range sizes {
		queues[n] = Queue{
			Name: names[n], Paused: s.Paused, Pending: s.Pending, Active: s.Active, Scheduled: s.Scheduled, Aggregating: s.Aggregating,
			Waiting: s.Waiting, Retrying: s.Retry - s.Waiting, Estimated: s.Estimated, Archived: s.Archived, Completed: s.Completed, Contended: s.Lines, Held: s.Held, Stopped: s.Stopped,
		}
		queues[n].Servers, _ = serving(servers, names[n])
	}
	return queues, nil
}

// serving returns how many servers serve a queue, and how many of them are guarded.
func serving(servers []*taskredis.ServerInfo, queue string) (all, guarded int) {
	for _, s := range servers {
		if _, serves := s.Queues[queue]; serves {
			all++
			if s.Guarded {
				guarded++
			}
		}
	}
	return all, guarded
}
