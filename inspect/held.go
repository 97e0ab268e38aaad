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

	"github.com/sidingq/siding/internal/limits"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/queue"
)

// mostContended bounds how many contended locks are read.
const mostContended = 2000

// A fleet is what one call has read: the queues and the limits of operators, and maybe the servers and the running tasks.
type fleet struct {
	*Inspector

	queues  []string
	paused  map[string]bool
	limits  *limits.Table
	servers []*taskredis.ServerInfo
	active  []taskredis.Active
	named   map[string][]*taskredis.Active // the running tasks by what labels say of them, see names
}

// listQueues finds the queues, which are paused, and the limits. A limit that cannot be read is left out. A server keeps to what it
// knew of that limit before.
func (i *Inspector) listQueues(ctx context.Context) (_ *fleet, err error) {
	f := &fleet{Inspector: i}
	if f.queues, err = taskredis.QueueNames(ctx, i.rdb); err == nil {
		f.paused, err = taskredis.PausedQueues(ctx, i.rdb, f.queues)
	}
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	overrides, err := limits.Load(ctx, i.rdb, i.cfg.Prefix)
	if overrides == nil { // else some cannot be read
		return nil, fmt.Errorf("inspect: %w", err)
	}
	f.limits = limits.New(nil).With(overrides)
	return f, nil
}

func (i *Inspector) fleet(ctx context.Context) (*fleet, error) {
	f, err := i.listQueues(ctx)
	if err != nil {
		return nil, err
	}
	if f.servers, err = taskredis.Servers(ctx, i.rdb); err == nil {
		f.active, err = taskredis.AllActive(ctx, i.rdb, f.queues)
	}
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	f.named = make(map[string][]*taskredis.Active)
	for n := range f.active {
		a := &f.active[n]
		for _, text := range []string{a.Message.ID, a.Message.Type + " " + a.Message.ID} {
			f.named[text] = append(f.named[text], a)
		}
	}
	return f, nil
}

// spotsOf returns the locks of a task that holds or waits for those of a text; or, as it knows of none, those of the resources that
// it names itself. There is none for a task that is unguarded or cannot be read.
func (i *Inspector) spotsOf(locks string, m *taskredis.Message) (spots []spot) {
	for _, key := range store.SplitLocks(locks) {
		if s, _, ok := i.spotOf(key); ok && key != "" {
			spots = append(spots, s)
		}
	}
	if spots != nil {
		return spots
	}
	resource := m.Headers[queue.HeaderResource]
	if find, ok := i.cfg.Resources[m.Type]; ok {
		var err error
		if resource, err = resourceIn(find, m.Payload); err != nil {
			return nil
		}
	}
	text, err := store.CheckResources(resource)
	if err != nil {
		return nil
	}
	for _, name := range store.Names(text) {
		spots = append(spots, spot{resource: name})
	}
	return spots
}

// resourceIn calls a function of the user. A task with which that panics names no resource, as for a server.
func resourceIn(find queue.ResourceFunc, payload []byte) (resource string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return find(payload)
}

// resourcesOf returns the resources of the same.
func (i *Inspector) resourcesOf(locks string, m *taskredis.Message) (resources []string) {
	for _, s := range i.spotsOf(locks, m) {
		resources = append(resources, s.resource)
	}
	return resources
}

// resourceOf returns these as one text for people.
func (i *Inspector) resourceOf(locks string, m *taskredis.Message) string {
	return strings.Join(i.resourcesOf(locks, m), ", ")
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
	return f.heldLocks(ctx)
}

func (f *fleet) heldLocks(ctx context.Context) (List, error) {
	g, more, err := f.contended(ctx)
	if err != nil {
		return List{}, err
	}
	contended := len(g.targets)
	for n := range f.active {
		a := &f.active[n]
		for _, s := range f.spotsOf(a.Lock, a.Message) {
			if at, known := g.at[s]; !known || at >= contended {
				g.add(s, a.Queue)
			}
		}
	}
	sights, err := f.lookAt(ctx, g.targets)
	if err != nil {
		return List{}, err
	}
	list := List{}
	for n := range sights {
		l := f.lockOf(&sights[n])
		if l.State == Free && l.Waiting == 0 {
			continue
		}
		if l.Waiting > 0 && n >= contended {
			more-- // a contended lock that was left out, but belongs to a running task
		}
		f.name(&l)
		list.Locks = append(list.Locks, l)
	}
	list.LeftOut = max(0, more)
	slices.SortFunc(list.Locks, func(a, b Lock) int { return cmp.Compare(a.Resource, b.Resource) })
	return list, nil
}

// name says which of the active tasks holds a lock, and whether its worker is gone.
func (f *fleet) name(l *Lock) {
	if !l.Leased() {
		return
	}
	if len(l.Permits) < 2 {
		l.Task, l.Gone = f.taskOf(l.Resource, l.Holder)
	}
	for n := range l.Permits {
		if p := &l.Permits[n]; p.State != Reserved {
			p.Task, p.Gone = f.taskOf(l.Resource, p.Holder)
			l.Gone = l.Gone || p.Gone
		}
	}
}

// taskOf returns which of the active tasks has a label, nil for none, and whether its worker is gone.
func (f *fleet) taskOf(resource, label string) (task *Task, gone bool) {
	text, worker := parseHolder(label)
	for _, a := range f.named[text] {
		if slices.Contains(f.resourcesOf(a.Lock, a.Message), resource) {
			return &Task{Queue: a.Queue, ID: a.ID, Kind: a.Message.Type}, a.Orphaned || !f.lives(worker)
		}
	}
	return nil, false
}

// lives reports whether a server of that process is alive, or the process is not known.
func (f *fleet) lives(w *Worker) bool {
	return w == nil || slices.ContainsFunc(f.servers, func(s *taskredis.ServerInfo) bool { return s.Host == w.Host && s.PID == w.PID })
}

// Scan lists what [Inspector.Held] does, and then every other lock that is held or reserved, also those of programs that are no
// tasks, by resource. It reads all keys of Redis by SCAN, on each master of a Cluster, so it may take minutes. A lock that is taken
// meanwhile may be missing, and one that is released meanwhile may be there. In a Cluster Scan knows the waiting tasks of at most
// 2,000 locks. Scan calls progress, unless nil, with the approximate number of keys read so far, from one goroutine at a time.
func (i *Inspector) Scan(ctx context.Context, progress func(scanned int)) ([]Lock, error) {
	f, err := i.fleet(ctx)
	if err != nil {
		return nil, err
	}
	held, err := f.heldLocks(ctx) // a lock that is free, or in an external store, has no key of its own
	if err != nil {
		return nil, err
	}
	found, scanned := make(map[spot]Lock), 0
	for _, l := range held.Locks {
		found[spot{l.Resource, l.Elsewhere}] = l
	}
	var mu sync.Mutex
	scan := func(ctx context.Context, rdb redis.UniversalClient) error {
		const count = 1000
		for cursor := uint64(0); ; {
			keys, next, err := rdb.Scan(ctx, cursor, literally(i.cfg.Prefix)+"*", count).Result()
			if err != nil {
				return err
			}
			var targets []target
			mu.Lock()
			for _, key := range keys {
				// A key with braces is another key of a lock.
				s := spot{resource: strings.TrimPrefix(key, i.cfg.Prefix)}
				if _, known := found[s]; !known && store.CheckResource(s.resource) == nil {
					targets = append(targets, target{spot: s})
				}
			}
			mu.Unlock()
			sights, err := f.lookAt(ctx, targets)
			if err != nil {
				return err
			}
			mu.Lock()
			for n := range sights {
				if l := f.lockOf(&sights[n]); l.State != Free {
					f.name(&l)
					found[sights[n].spot] = l
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
	locks := slices.AppendSeq(make([]Lock, 0, len(found)), maps.Values(found))
	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Resource, b.Resource) })
	return locks, nil
}

// literally returns a pattern of Redis that matches only the text itself.
func literally(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}
