package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/taskredis"
)

// On one Redis, a resource has one lock, which tasks and goroutines wait for. If the locks are in an external store, tasks
// wait on their own Redis for a lock of another prefix. In a Cluster the tasks of each queue wait for a lock in the slot
// of their queue, and the first of them asks for the lock itself, in a slot of its own.

// lookBatch is how many locks one round trip reads. Redis serves others between two round trips. A
// lock takes Redis some 25 us, so a hand-off is delayed by 0.2 ms at most.
const lookBatch = 8

// A spot is the lock of a resource.
type spot struct {
	resource  string
	elsewhere bool // it is in an external store
}

// A target is a lock that is to be looked at.
type target struct {
	spot

	queues  []string // in a Cluster: those whose tasks may wait for it
	entries []taskredis.Ready
	lockredis.LookAt
}

// A sight is a lock at a moment, with all who wait for it.
type sight struct {
	spot
	lockredis.Looked

	ready time.Time // since when the first who wait could have it; zero if they cannot
}

// waitKey is the key of the lock for which the tasks of a queue wait.
func (i *Inspector) waitKey(s spot, queue string) string {
	prefix := i.cfg.Prefix
	if s.elsewhere {
		prefix = taskredis.WaitPrefix + prefix
	}
	if !lockredis.IsCluster(i.rdb) {
		queue = ""
	}
	return taskredis.LockPrefix(queue, prefix) + s.resource
}

// key is the key of the lock itself, or on one Redis that of the lock for which tasks wait.
func (i *Inspector) key(s spot) string {
	if s.elsewhere {
		return taskredis.WaitPrefix + i.cfg.Prefix + s.resource
	}
	return i.cfg.Prefix + s.resource
}

// spotOf returns which lock a key is of, as [taskredis.ResourceOf] does.
func (i *Inspector) spotOf(key string) (s spot, queue string, ok bool) {
	s.resource, queue, s.elsewhere, ok = taskredis.ResourceOf(key, i.cfg.Prefix)
	return s, queue, ok
}

// keys are those of a target.
func (i *Inspector) keys(p *target) (keys []string) {
	if !lockredis.IsCluster(i.rdb) {
		return []string{i.key(p.spot)}
	}
	if !p.elsewhere {
		keys = append(keys, i.key(p.spot))
	}
	for _, queue := range p.queues {
		keys = append(keys, i.waitKey(p.spot, queue))
	}
	return keys
}

// lookAt looks at targets, eight at a time.
func (f *fleet) lookAt(ctx context.Context, targets []target) ([]sight, error) {
	sights := make([]sight, 0, len(targets))
	for some := range slices.Chunk(targets, lookBatch) {
		var at []lockredis.LookAt
		for n := range some {
			for _, key := range f.keys(&some[n]) {
				one := some[n].LookAt
				one.Key = key
				if lockredis.IsCluster(f.rdb) {
					one.From, one.Count = 0, one.From+one.Count // the waiters of all its keys are put in order here
					if _, queue, _ := f.spotOf(key); queue != one.Queue {
						one.Waiter = "" // it waits in another slot
					}
				}
				at = append(at, one)
			}
		}
		looked, err := lockredis.Look(ctx, f.rdb, at)
		if err != nil {
			return nil, fmt.Errorf("inspect: %w", err)
		}
		for n := range some {
			p := &some[n]
			parts := looked[:len(f.keys(p))]
			looked = looked[len(parts):]
			sights = append(sights, f.sightOf(p, parts))
		}
	}
	return sights, f.findReady(ctx, targets, sights)
}

// sightOf puts together what was found by the keys of a target.
func (i *Inspector) sightOf(p *target, parts []lockredis.Looked) sight {
	s := sight{spot: p.spot}
	if len(parts) == 0 {
		s.State = lockredis.LookFree
		return s
	}
	if p.elsewhere { // one of those that are in use stands for the lock, which is not known here
		slices.SortFunc(parts, func(a, b lockredis.Looked) int {
			return cmp.Or(falseFirst(a.State == lockredis.LookFree, b.State == lockredis.LookFree), cmp.Compare(b.Fence, a.Fence))
		})
	}
	s.Looked = parts[0]
	for _, part := range parts[1:] {
		s.Lines = append(s.Lines, part.Lines...)
		s.Waiters = append(s.Waiters, part.Waiters...)
		if s.First = cmp.Or(s.First, part.First); part.First > 0 {
			s.First = min(s.First, part.First)
		}
		if part.Position > 0 {
			s.Position = part.Position
		}
	}
	if len(parts) > 1 {
		slices.SortFunc(s.Lines, func(a, b lockredis.Line) int { return cmp.Compare(a.First, b.First) })
		slices.SortFunc(s.Waiters, func(a, b lockredis.Waiter) int { return cmp.Compare(a.Ticket, b.Ticket) })
	}
	if lockredis.IsCluster(i.rdb) {
		s.Waiters = s.Waiters[min(p.From, len(s.Waiters)):min(p.From+p.Count, len(s.Waiters))]
	}
	return s
}

// look looks at the lock of a resource. If there is one of that name on this Redis, and one in an external store for which
// tasks wait, it returns the one that is in use, or the one that was used last.
func (f *fleet) look(ctx context.Context, resource string, at lockredis.LookAt) (sight, error) {
	targets := []target{{spot: spot{resource, false}, LookAt: at}, {spot: spot{resource, true}, LookAt: at}}
	for n := range targets {
		p := &targets[n]
		var entries []taskredis.Ready
		for _, queue := range f.queues {
			entries = append(entries, taskredis.Ready{Queue: queue, Lock: f.waitKey(p.spot, queue)})
		}
		if err := taskredis.ReadyAt(ctx, f.rdb, entries); err != nil {
			return sight{}, fmt.Errorf("inspect: %w", err)
		}
		held, err := f.placesTaken(ctx, p.spot)
		if err != nil {
			return sight{}, err
		}
		for _, e := range entries {
			if e.Due > 0 || held[e.Queue] || e.Queue == at.Queue {
				p.queues = append(p.queues, e.Queue)
			}
			p.come(e)
		}
	}
	both, err := f.lookAt(ctx, targets)
	if err != nil {
		return sight{}, err
	}
	here, elsewhere := &both[0], &both[1]
	if elsewhere.used() || !here.used() && elsewhere.Fence > here.Fence {
		elsewhere.Revoked = cmp.Or(elsewhere.Revoked, here.Revoked)
		return *elsewhere, nil
	}
	return *here, nil
}

// placesTaken returns the queues of a Cluster one of whose tasks has the lock of its place.
func (f *fleet) placesTaken(ctx context.Context, s spot) (map[string]bool, error) {
	if !lockredis.IsCluster(f.rdb) {
		return nil, nil
	}
	found, err := taskredis.Each(ctx, f.rdb, f.queues, func(pipe redis.Pipeliner, queue string) *redis.IntCmd {
		return pipe.Exists(ctx, f.waitKey(s, queue))
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	held := make(map[string]bool)
	for i, queue := range f.queues {
		held[queue] = found[i] > 0
	}
	return held, nil
}

// come takes note of an entry for the place.
func (p *target) come(e taskredis.Ready) {
	if e.Due > 0 {
		p.entries = append(p.entries, e)
	}
}

// used reports whether somebody has the lock, or waits for it.
func (s *sight) used() bool { return s.State != lockredis.LookFree || s.Waiting() > 0 }

// A gathering has targets that are to be looked at, each once, in the order in which they came.
type gathering struct {
	targets []target
	at      map[spot]int // where each of them is
}

// add returns the place of a lock, for which tasks of the queue may wait.
func (g *gathering) add(s spot, queue string) *target {
	if g.at == nil {
		g.at = make(map[spot]int)
	}
	n, known := g.at[s]
	if !known {
		n = len(g.targets)
		g.targets, g.at[s] = append(g.targets, target{spot: s}), n
	}
	p := &g.targets[n]
	if !slices.Contains(p.queues, queue) {
		p.queues = append(p.queues, queue)
	}
	return p
}

// contended returns the locks for which tasks wait. It leaves out those of another prefix. more is how many others it left out.
func (f *fleet) contended(ctx context.Context) (g gathering, more int, _ error) {
	entries, more, err := taskredis.AllReady(ctx, f.rdb, f.queues, mostContended)
	if err != nil {
		return g, 0, fmt.Errorf("inspect: %w", err)
	}
	for _, e := range entries {
		if s, _, ok := f.spotOf(e.Lock); ok {
			g.add(s, e.Queue).come(e)
		}
	}
	return g, more, nil
}
