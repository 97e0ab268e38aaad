package inspect

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/sidingq/siding/internal/asynqredis"
)

// sample is how many tasks of each retry set [Inspector.Queues] reads.
const sample = 500

// Orphans lists active tasks whose worker died or was cut off, and those that run again after that. It
// assumes that [queue.Recovery].NoRetries is off: a task without retries whose handler had started is
// left to asynq.
func (i *Inspector) Orphans(ctx context.Context) ([]Orphan, error) {
	queues, err := asynqredis.Queues(ctx, i.rdb)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	active, err := asynqredis.AllActive(ctx, i.rdb, queues)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	var found []Orphan
	for _, a := range active {
		if !a.Orphaned && a.Crashes == 0 {
			continue
		}
		resource := i.resourceOf(a.Type, a.Payload, a.Headers)
		left := a.Orphaned && (!a.Known() || i.leftToAsynq(resource, a.Crashes, a.Retries, a.Started))
		found = append(found, Orphan{
			Task: Task{Queue: a.Queue, ID: a.ID, Kind: a.Type}, Resource: resource, Process: a.Process(), Orphaned: a.Orphaned,
			Crashes: a.Crashes, Tolerated: i.tolerated(), LeaseEnds: utc(a.Lease), Left: left, Unnamed: a.Orphaned && !left && i.unnamed(resource),
		})
	}
	return found, nil
}

// mostLost is how many tasks [Inspector.Lost] examines.
const mostLost = 50

// Lost lists active tasks that have lost their locks, and whose handlers have not returned. It looks at
// the locks of all active tasks, and then examines those that do not hold theirs: 50 at most.
func (i *Inspector) Lost(ctx context.Context) ([]Lost, error) {
	f, err := i.fleet(ctx)
	if err != nil {
		return nil, err
	}
	active := i.index(f.active)
	var places []place
	for resource := range active.byResource {
		places = append(places, place{resource: resource})
	}
	locks, err := i.lookAt(ctx, places)
	if err != nil {
		return nil, err
	}
	var suspects []asynqredis.Active
	for _, l := range locks {
		for _, a := range active.byResource[l.Resource] {
			if !a.Orphaned && !l.heldBy(a) {
				suspects = append(suspects, a)
			}
		}
	}
	w := &inquiry{Inspector: i, fleet: f}
	var lost []Lost
	for _, a := range suspects[:min(mostLost, len(suspects))] {
		t, err := i.find(ctx, []string{a.Queue}, Task{ID: a.ID})
		if err != nil {
			return nil, err
		}
		if t == nil {
			continue // it has ended
		}
		x, err := w.examine(ctx, *t)
		if err != nil {
			return nil, err
		}
		if x.state == StateLost && !x.gone {
			lost = append(lost, Lost{Task{Queue: a.Queue, ID: a.ID, Kind: a.Type}, x.resource, x.worker, utc(x.started)})
		}
	}
	slices.SortFunc(lost, func(a, b Lost) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Task.ID, b.Task.ID)) })
	return lost, nil
}

// Servers lists asynq's servers. A server that was killed stays in the list for up to 10 s.
func (i *Inspector) Servers(ctx context.Context) ([]Server, error) {
	all, err := asynqredis.Servers(ctx, i.rdb)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	guarded := make(map[string]bool)
	for _, s := range all {
		for _, queue := range s.Queues {
			guarded[queue] = guarded[queue] || s.Guarded
		}
	}
	servers := make([]Server, len(all))
	for n, s := range all {
		slices.Sort(s.Queues)
		servers[n] = Server{Worker: Worker{s.Host, s.PID}, ID: s.ID, Queues: s.Queues, Guarded: s.Guarded, Versions: s.Versions}
		if s.Guarded {
			continue
		}
		for _, queue := range s.Queues {
			if guarded[queue] {
				servers[n].Unguarded = append(servers[n].Unguarded, queue)
			}
		}
	}
	return servers, nil
}

// Queues lists asynq's queues, with the number of tasks in each state.
func (i *Inspector) Queues(ctx context.Context) ([]Queue, error) {
	names, err := asynqredis.Queues(ctx, i.rdb)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	sizes, err := asynqredis.SizesOf(ctx, i.rdb, names, sample)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	servers, err := asynqredis.Servers(ctx, i.rdb)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	queues := make([]Queue, len(sizes))
	for n, s := range sizes {
		q := Queue{
			Name: s.Queue, Paused: s.Paused, Pending: s.Pending, Active: s.Active, Scheduled: s.Scheduled, Aggregating: s.Aggregating,
			Estimated: s.Read < s.Retry, Archived: s.Archived, Completed: s.Completed, Contended: s.Contended,
		}
		if s.Read > 0 {
			q.Waiting = int(math.Round(float64(s.Retry) * float64(s.Parked) / float64(s.Read)))
		}
		q.Retrying = s.Retry - q.Waiting
		q.Servers, _ = serving(servers, s.Queue)
		queues[n] = q
	}
	return queues, nil
}

// serving returns how many servers serve a queue, and how many of them are guarded.
func serving(servers []asynqredis.Server, queue string) (all, guarded int) {
	for _, s := range servers {
		if slices.Contains(s.Queues, queue) {
			all++
			if s.Guarded {
				guarded++
			}
		}
	}
	return all, guarded
}
