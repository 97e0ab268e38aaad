package metrics

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sidingq/siding/internal/telemetry"
)

// readEvery is for how long one reading of Redis serves all scrapes.
const readEvery = 5 * time.Second

// Watch adds the gauges that are read from Redis. All workers of a fleet report the same. While Redis
// cannot be read, siding_redis_up is 0 and the other gauges are left out.
func (m *Metrics) Watch(r telemetry.Reader, logger *slog.Logger) {
	m.registry.MustRegister(&fleet{state: telemetry.NewFleet(r), logger: logger})
}

// A fleet is the collector of the gauges.
type fleet struct {
	state  *telemetry.Fleet
	logger *slog.Logger

	mu   sync.Mutex // held while Redis is read, so that one scrape reads for all
	read time.Time
	last []prometheus.Metric // what was read then; nil if Redis could not be read
	err  error
}

// ofFleet returns the description of a gauge.
func ofFleet(name, help string, by ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help+" Of the whole fleet: use max, not sum, over workers.", by, nil)
}

var (
	redisUp = prometheus.NewDesc("siding_redis_up", "1 if this worker could read the gauges of the fleet from Redis. 0 if not, and then the other gauges of the fleet are left out.", nil, nil)

	waitingTasks = ofFleet("siding_tasks_waiting", "Tasks and goroutines that wait for locks, without tasks of paused queues. A task of several resources counts for each.", "class")
	oldestWait   = ofFleet("siding_oldest_wait_seconds", "The longest time for which one of the waiting tasks and goroutines has waited.", "class")
	heldLocks    = ofFleet("siding_locks_held", "Locks of running tasks, and locks for which tasks wait: held, revoked, reserved for a goroutine, or held by a foreign holder.", "class", "state")
	unserved     = ofFleet("siding_resources_unserved", "Resources that are free for waiting tasks which no server has taken for 3 s, without those of paused queues alone.", "class")
	longest      = ofFleet("siding_longest_unserved_seconds", "The longest time for which one of the unserved resources has been free.", "class")
	unreadLocks  = ofFleet("siding_locks_unread", "Contended locks that the gauges by class leave out, as there are too many. A worker reads at most 2,000.")
	queueTasks   = ofFleet("siding_queue_tasks", "Tasks of an asynq queue: pending, active, scheduled, aggregating, archived, completed, waiting for their locks, or retrying at their time; asynq counts the last two as retry. If there are more than 500 contended locks, or tasks of several resources, both are estimates.", "queue", "state")
	queuePaused  = ofFleet("siding_queue_paused", "1 if an asynq queue is paused, else 0.", "queue")
	heldLines    = ofFleet("siding_lines_held", "Lines of an asynq queue that wait for a task which has failed: held until its retry, or stopped until an operator sets them going.", "queue", "state")
	servers      = ofFleet("siding_servers", "Servers, also those that take no locks.")
	unguarded    = ofFleet("siding_servers_unguarded", "Servers that run tasks of guarded queues without their locks.")
)

// Describe implements [prometheus.Collector].
func (f *fleet) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{redisUp, waitingTasks, oldestWait, heldLocks, unserved, longest, unreadLocks, queueTasks, queuePaused, heldLines, servers, unguarded} {
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

// refresh reads the gauges from Redis. It logs the first failure, and the first success after that.
func (f *fleet) refresh() {
	ctx := context.Background()
	state, err := f.state.Read(ctx)
	before := f.err
	f.read, f.last, f.err = time.Now(), nil, err
	switch {
	case err == nil:
		f.last = metricsOf(state)
		if before != nil {
			f.logger.InfoContext(ctx, "the metrics of the fleet are read from redis again")
		}
	case before == nil:
		f.logger.WarnContext(ctx, "the metrics of the fleet could not be read from redis", "error", err)
	}
}

func metricsOf(s telemetry.State) []prometheus.Metric {
	var all []prometheus.Metric
	add := func(desc *prometheus.Desc, value float64, by ...string) {
		all = append(all, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, by...))
	}
	for class, c := range s.Classes {
		for state, n := range c.Held {
			add(heldLocks, float64(n), class, string(state))
		}
		add(waitingTasks, float64(c.Waiting), class)
		add(oldestWait, c.OldestWait.Seconds(), class)
		add(unserved, float64(c.Unserved), class)
		add(longest, c.LongestUnserved.Seconds(), class)
	}
	add(unreadLocks, float64(s.Unread))
	for queue, q := range s.Queues {
		for state, n := range q.Tasks {
			add(queueTasks, float64(n), queue, state)
		}
		add(queuePaused, float64(q.Paused), queue)
		add(heldLines, float64(q.Held-q.Stopped), queue, "held")
		add(heldLines, float64(q.Stopped), queue, "stopped")
	}
	add(servers, float64(s.Servers))
	add(unguarded, float64(s.Unguarded))
	return all
}
