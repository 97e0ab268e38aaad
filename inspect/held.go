package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/queue"
)

const (
	// mostContended bounds how many contended locks are read.
	mostContended = 2000
	// If there are more, Top samples about mostSampled waiting tasks, and reads mostCandidates of
	// their locks.
	mostSampled    = 1000
	mostCandidates = 200
	// lookBatch is how many locks one round trip reads. Redis serves others between two round trips. A
	// lock takes Redis some 25 us, so a hand-off is delayed by 0.2 ms at most.
	lookBatch = 8
)

// A fleet has the queues, the servers and the running tasks.
type fleet struct {
	queues  []string
	servers []asynqredis.Server
	active  []asynqredis.Active
}

func (i *Inspector) fleet(ctx context.Context) (f fleet, err error) {
	if f.queues, err = asynqredis.Queues(ctx, i.rdb); err != nil {
		return f, fmt.Errorf("inspect: %w", err)
	}
	if f.servers, err = asynqredis.Servers(ctx, i.rdb); err != nil {
		return f, fmt.Errorf("inspect: %w", err)
	}
	if f.active, err = asynqredis.AllActive(ctx, i.rdb, f.queues); err != nil {
		return f, fmt.Errorf("inspect: %w", err)
	}
	return f, nil
}

// resourceOf returns the resource of a task, "" for one that is unguarded or cannot be read.
func (i *Inspector) resourceOf(kind string, payload []byte, headers map[string]string) string {
	resource := headers[queue.HeaderResource]
	if find, ok := i.cfg.Resources[kind]; ok {
		var err error
		if resource, err = find(payload); err != nil {
			return ""
		}
	}
	if store.CheckResource(resource) != nil {
		return ""
	}
	return resource
}

// An index finds active tasks by the resources that they need, and by their ids.
type index struct {
	byResource, byID map[string][]asynqredis.Active
}

func (i *Inspector) index(active []asynqredis.Active) index {
	x := index{make(map[string][]asynqredis.Active), make(map[string][]asynqredis.Active)}
	for _, a := range active {
		x.byID[a.ID] = append(x.byID[a.ID], a)
		if resource := i.resourceOf(a.Type, a.Payload, a.Headers); resource != "" {
			x.byResource[resource] = append(x.byResource[resource], a)
		}
	}
	return x
}

// mayHold returns the tasks of which one may hold a lock. The resources of some tasks are not known.
func (x index) mayHold(l *Lock) []asynqredis.Active {
	found := slices.Clone(x.byResource[l.Resource])
	for _, holder := range l.holders() {
		if named, _ := parseHolder(holder); named != nil {
			found = append(found, x.byID[named.ID]...)
		}
	}
	return found
}

// A place is a lock that may be in use.
type place struct {
	resource  string
	elsewhere bool
}

func (i *Inspector) key(p place) string {
	if p.elsewhere {
		return waitPrefix + i.cfg.Prefix + p.resource
	}
	return i.cfg.Prefix + p.resource
}

// Held lists locks that are held or reserved, or for which somebody waits, by resource. It reads the
// locks of all running tasks, and at most 2,000 contended locks. [List.LeftOut] counts the other
// contended locks. Held does not find the lock of a program that is no task while no task waits for
// that lock; see [Inspector.Scan].
func (i *Inspector) Held(ctx context.Context) (List, error) {
	f, err := i.fleet(ctx)
	if err != nil {
		return List{}, err
	}
	contended, more, err := i.contended(ctx, f.queues)
	if err != nil {
		return List{}, err
	}
	places := make(map[place]bool, len(contended)+len(f.active))
	for _, p := range contended {
		places[p] = true
	}
	// A running task holds the lock of its resource on this Redis, or waits on this Redis for the lock
	// of an external store. Few tasks do the latter, so the second is looked at only if the first is not
	// held by the task.
	active := i.index(f.active)
	var first []place
	for resource := range active.byResource {
		if p := (place{resource: resource}); !places[p] {
			first = append(first, p)
		}
	}
	locks, err := i.lookAt(ctx, append(contended, first...))
	if err != nil {
		return List{}, err
	}
	var second []place
	for _, l := range locks {
		p := place{l.Resource, true}
		if !l.Elsewhere && active.byResource[l.Resource] != nil && !places[p] && !l.Leased() {
			second = append(second, p)
		}
	}
	others, err := i.lookAt(ctx, second)
	if err != nil {
		return List{}, err
	}
	list := List{Locks: slices.DeleteFunc(append(locks, others...), func(l Lock) bool { return l.State == Free && l.Waiting == 0 })}
	known := 0
	for n := range list.Locks {
		l := &list.Locks[n]
		if l.Waiting > 0 && !places[place{l.Resource, l.Elsewhere}] {
			known++ // a contended lock that was left out, but belongs to a running task
		}
		f.name(l, active.mayHold(l))
	}
	list.LeftOut = max(0, more-known)
	slices.SortFunc(list.Locks, func(a, b Lock) int { return cmp.Compare(a.Resource, b.Resource) })
	return list, nil
}

// Top lists the n locks with the most waiting time, summed up over their waiters, the most first. If
// there are more than 2,000 contended locks, Top reads about 1,000 waiting tasks at random, and at most
// 200 of their locks. As a rule it then finds each lock with a hundredth of all the waiting time.
// [List.LeftOut] counts the contended locks that were not read.
func (i *Inspector) Top(ctx context.Context, n int) (List, error) {
	f, err := i.fleet(ctx)
	if err != nil {
		return List{}, err
	}
	contended, more, err := i.contended(ctx, f.queues)
	if err != nil {
		return List{}, err
	}
	if more > 0 {
		all := len(contended) + more
		if contended, err = i.candidates(ctx, f.queues); err != nil {
			return List{}, err
		}
		more = max(0, all-len(contended))
	}
	locks, err := i.lookAt(ctx, contended)
	if err != nil {
		return List{}, err
	}
	locks = slices.DeleteFunc(locks, func(l Lock) bool { return l.Waiting == 0 })
	slices.SortFunc(locks, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(b.WaitTime, a.WaitTime), cmp.Compare(a.Resource, b.Resource))
	})
	list := List{Locks: locks[:min(max(0, n), len(locks))], LeftOut: more}
	for n := range list.Locks {
		f.name(&list.Locks[n], f.active)
	}
	return list, nil
}

// candidates returns the locks with the most waiting time in a sample of the waiting tasks.
func (i *Inspector) candidates(ctx context.Context, queues []string) ([]place, error) {
	sums, err := asynqredis.SampleWaiting(ctx, i.rdb, queues, max(20, mostSampled/len(queues)))
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) })
	return i.places(keys[:min(mostCandidates, len(keys))]), nil
}

// contended returns contended locks. more is how many it left out.
func (i *Inspector) contended(ctx context.Context, queues []string) (places []place, more int, _ error) {
	keys, more, err := asynqredis.ContendedKeys(ctx, i.rdb, queues, mostContended)
	if err != nil {
		return nil, 0, fmt.Errorf("inspect: %w", err)
	}
	return i.places(keys), more, nil
}

// places returns the places of keys. It leaves out keys with another prefix.
func (i *Inspector) places(keys []string) []place {
	var places []place
	for _, key := range keys {
		if resource, elsewhere, ok := i.resourceOfKey(key); ok {
			places = append(places, place{resource, elsewhere})
		}
	}
	return places
}

func (i *Inspector) lookAt(ctx context.Context, places []place) ([]Lock, error) {
	locks := make([]Lock, 0, len(places))
	for some := range slices.Chunk(places, lookBatch) {
		at := make([]redisstore.LookAt, len(some))
		for n, p := range some {
			at[n].Key = i.key(p)
		}
		looked, err := redisstore.Look(ctx, i.rdb, at)
		if err != nil {
			return nil, fmt.Errorf("inspect: %w", err)
		}
		for n, l := range looked {
			locks = append(locks, lockOf(some[n].resource, l, some[n].elsewhere))
		}
	}
	return locks, nil
}

// name says which of the active tasks holds a lock, and whether its worker is gone.
func (f fleet) name(l *Lock, active []asynqredis.Active) {
	if !l.Leased() {
		return
	}
	if len(l.Permits) < 2 {
		l.Task, l.Gone = f.holder(l.Holder, l.Worker, active)
	}
	for n := range l.Permits {
		if p := &l.Permits[n]; p.State != Reserved {
			p.Task, p.Gone = f.holder(p.Holder, p.Worker, active)
			l.Gone = l.Gone || p.Gone
		}
	}
}

// holder returns which of the active tasks has a label, nil for none, and whether its worker is gone.
func (f fleet) holder(label string, worker *Worker, active []asynqredis.Active) (task *Task, gone bool) {
	orphaned := false
	for _, a := range active {
		if asynqredis.IsHolder(a.Type, a.ID, label) {
			task = &Task{Queue: a.Queue, ID: a.ID, Kind: a.Type}
			orphaned = a.Orphaned
		}
	}
	return task, task != nil && (orphaned || !f.lives(worker))
}

// lives reports whether a server of that process is alive, or the process is not known.
func (f fleet) lives(w *Worker) bool {
	return w == nil || slices.ContainsFunc(f.servers, func(s asynqredis.Server) bool { return s.Host == w.Host && s.PID == w.PID })
}

// Scan lists every lock that is held or reserved, also those of programs that are no tasks, by resource.
// It reads all keys of Redis by SCAN, on each master of a Cluster, so it may take minutes. A lock that
// is taken or released meanwhile may be missing. Scan calls progress, unless nil, with the approximate
// number of keys read so far, from one goroutine at a time.
func (i *Inspector) Scan(ctx context.Context, progress func(scanned int)) ([]Lock, error) {
	f, err := i.fleet(ctx)
	if err != nil {
		return nil, err
	}
	active := i.index(f.active)
	var mu sync.Mutex
	found, scanned := make(map[string]Lock), 0
	scan := func(ctx context.Context, rdb redis.UniversalClient) error {
		const count = 1000
		for cursor := uint64(0); ; {
			keys, next, err := rdb.Scan(ctx, cursor, literally(i.cfg.Prefix)+"*", count).Result()
			if err != nil {
				return err
			}
			var places []place
			for _, key := range keys {
				// A key with braces is another key of a lock.
				if resource := strings.TrimPrefix(key, i.cfg.Prefix); store.CheckResource(resource) == nil {
					places = append(places, place{resource: resource})
				}
			}
			locks, err := i.lookAt(ctx, places)
			if err != nil {
				return err
			}
			mu.Lock()
			for _, l := range locks {
				if l.State != Free {
					f.name(&l, active.mayHold(&l))
					found[l.Resource] = l
				}
			}
			scanned += count
			if progress != nil {
				progress(scanned)
			}
			mu.Unlock()
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	if cluster, ok := i.rdb.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return scan(ctx, master) })
	} else {
		err = scan(ctx, i.rdb)
	}
	if err != nil {
		return nil, fmt.Errorf("inspect: scan: %w", err)
	}
	locks := make([]Lock, 0, len(found))
	for _, l := range found {
		locks = append(locks, l)
	}
	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Resource, b.Resource) })
	return locks, nil
}

// literally returns a pattern of Redis that matches only the text itself.
func literally(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}
