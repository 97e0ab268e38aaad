package metrics

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/labels"
)

const (
	// readEvery is how long what was read from Redis serves all scrapes.
	readEvery = 5 * time.Second
	// readLimit bounds the reading, and so the time for which a scrape waits.
	readLimit = 2 * time.Second
)

// A Reader reads the state of the whole fleet. An [inspect.Inspector] is one.
type Reader interface {
	Held(context.Context) (inspect.List, error)
	Queues(context.Context) ([]inspect.Queue, error)
	Servers(context.Context) ([]inspect.Server, error)
}

// Watch adds the gauges that are read from Redis. All workers of a fleet report the same. While Redis
// cannot be read, siding_redis_up is 0 and the other gauges are left out.
func (m *Metrics) Watch(r Reader, logger *slog.Logger) {
	same := func(word string) string { return word }
	m.registry.MustRegister(&fleet{reader: r, logger: logger, classes: labels.NewSet(same), queues: labels.NewSet(same)})
}

// A fleet is the collector of the gauges.
type fleet struct {
	reader          Reader
	logger          *slog.Logger
	classes, queues *labels.Set[string]

	mu   sync.Mutex // held while Redis is read, so that one scrape reads for all
	read time.Time
	last []prometheus.Metric // that were read then; nil if Redis could not be read
	err  error
}

// ofFleet returns the description of a gauge.
func ofFleet(name, help string, by ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help+" Of the whole fleet, and the same from each worker: use max, not sum, over workers.", by, nil)
}

var (
	redisUp = prometheus.NewDesc("siding_redis_up", "Whether this worker could read the gauges of the fleet from Redis: 1, or 0 with these gauges left out.", nil, nil)

	waitingTasks = ofFleet("siding_tasks_waiting", "Tasks and goroutines that wait for locks, without tasks of paused queues.", "class")
	oldestWait   = ofFleet("siding_oldest_wait_seconds", "The longest time for which one of them has waited.", "class")
	heldLocks    = ofFleet("siding_locks_held", "Locks of running tasks, and those for which tasks wait: held, revoked, reserved for a waiter, or held by a foreign holder.", "class", "state")
	unreadLocks  = ofFleet("siding_locks_unread", "Locks for which tasks wait and that the gauges by class leave out, as there are too many.")
	queueTasks   = ofFleet("siding_queue_tasks", "Tasks of an asynq queue. Waiting ones were parked and have not failed, retrying ones have; asynq counts both as retry.", "queue", "state")
	queuePaused  = ofFleet("siding_queue_paused", "Whether an asynq queue is paused: 1 or 0.", "queue")
	servers      = ofFleet("siding_servers", "Servers, those without a guard included.")
	unguarded    = ofFleet("siding_servers_unguarded", "Servers that run tasks of guarded queues without their locks.")
)

// Describe implements [prometheus.Collector].
func (f *fleet) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{redisUp, waitingTasks, oldestWait, heldLocks, unreadLocks, queueTasks, queuePaused, servers, unguarded} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (f *fleet) Collect(to chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read.IsZero() || time.Since(f.read) >= readEvery {
		f.refresh()
	}
	up := 1.0
	if f.err != nil {
		up = 0
	}
	to <- prometheus.MustNewConstMetric(redisUp, prometheus.GaugeValue, up)
	for _, g := range f.last {
		to <- g
	}
}

// refresh reads the gauges from Redis. It logs when that fails for the first time, and when it works
// again.
func (f *fleet) refresh() {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	before := f.err
	f.last, f.err = f.gauges(ctx)
	f.read = time.Now()
	switch {
	case f.err != nil && before == nil:
		f.logger.WarnContext(ctx, "the metrics of the fleet could not be read from redis", "error", f.err)
	case f.err == nil && before != nil:
		f.logger.InfoContext(ctx, "the metrics of the fleet are read from redis again")
	}
}

// gauges reads all gauges, or none.
func (f *fleet) gauges(ctx context.Context) ([]prometheus.Metric, error) {
	locks, err := f.reader.Held(ctx)
	if err != nil {
		return nil, err
	}
	queues, err := f.reader.Queues(ctx)
	if err != nil {
		return nil, err
	}
	fleet, err := f.reader.Servers(ctx)
	if err != nil {
		return nil, err
	}
	var all sums
	f.addLocks(&all, locks)
	f.addQueues(&all, queues)
	all.add(servers, float64(len(fleet)))
	all.add(unguarded, 0)
	for _, s := range fleet {
		if len(s.Unguarded) > 0 {
			all.add(unguarded, 1)
		}
	}
	return all.metrics(), nil
}

func (f *fleet) addLocks(all *sums, locks inspect.List) {
	all.add(unreadLocks, float64(locks.LeftOut))
	for _, l := range locks.Locks {
		class := f.classes.Of(labels.Class(l.Resource))
		for _, state := range []inspect.LockState{inspect.Held, inspect.Revoked, inspect.Reserved, inspect.Foreign} {
			one := 0.0
			if l.State == state {
				one = 1
			}
			all.add(heldLocks, one, class, string(state))
		}
		waiting, oldest := l.Waiting-l.Paused, time.Duration(l.OldestWait)
		if waiting == 0 {
			oldest = 0
		}
		all.add(waitingTasks, float64(waiting), class)
		all.most(oldestWait, oldest.Seconds(), class)
	}
}

func (f *fleet) addQueues(all *sums, queues []inspect.Queue) {
	for _, q := range queues {
		name := f.queues.Of(q.Name)
		for state, n := range map[string]int{
			"pending": q.Pending, "active": q.Active, "scheduled": q.Scheduled, "aggregating": q.Aggregating,
			"waiting": q.Waiting, "retrying": q.Retrying, "archived": q.Archived, "completed": q.Completed,
		} {
			all.add(queueTasks, float64(n), name, state)
		}
		paused := 0.0
		if q.Paused {
			paused = 1
		}
		all.most(queuePaused, paused, name)
	}
}
