package member

import (
	"math"
	"sync"
	"time"

	"github.com/sidingq/siding/queue"
)

// A Collector sums up events; its Observe fits [queue.ServerConfig]. The zero value is ready to
// use, by several goroutines. The size of the sums is fixed, however long a worker runs.
type Collector struct {
	mu       sync.Mutex
	sum      Summary
	handOffs histogram
}

// A Summary has the figures of a Collector.
type Summary struct {
	// Tasks is how many runs of handlers have ended; a task that failed and was
	// tried again counts each time.
	Tasks int64 `json:"tasks"`
	// Succeeded is how many of them returned no error and kept their lease.
	Succeeded int64 `json:"succeeded"`
	// Contended is how many tasks found their resource busy at least once.
	Contended int64 `json:"contended"`
	// Parked is how often a task was parked.
	Parked int64 `json:"parked"`
	// Lost is how often a lease ended while its handler was running.
	Lost int64 `json:"lost"`
	// A hand-off takes a lock straight from one task to the next. Half of the hand-offs took no
	// longer than HandOffP50, and 99 of 100 no longer than HandOffP99, both in µs to within 3 %.
	HandOffP50 int64 `json:"handoff_p50_us"`
	HandOffP99 int64 `json:"handoff_p99_us"`
}

// Observe counts an event.
func (c *Collector) Observe(e queue.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case queue.EventParked:
		c.sum.Parked++
		if e.Parked == 1 {
			c.sum.Contended++
		}
	case queue.EventAcquired:
		if e.HandOff > 0 {
			c.handOffs.add(e.HandOff)
		}
	case queue.EventReleased, queue.EventFinished:
		c.sum.Tasks++
		if e.Err == nil {
			c.sum.Succeeded++
		}
	case queue.EventLost:
		c.sum.Tasks++
		c.sum.Lost++
	case queue.EventRecovered: // its attempt begins anew
	case queue.EventStarted: // it ends with another event
	case queue.EventRejected, queue.EventCoalesced, queue.EventReplaced, queue.EventWaitedTooLong: // no handler has run
	}
}

// Summary returns the figures so far.
func (c *Collector) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sum
	s.HandOffP50 = c.handOffs.quantile(50)
	s.HandOffP99 = c.handOffs.quantile(99)
	return s
}

// A histogram counts durations in classes, each of which ends 3 % above the one before.
type histogram struct {
	total  int64
	counts [1000]int64 // up to 77 days
}

const growth = 1.03

func (h *histogram) add(d time.Duration) {
	class := int(math.Ceil(math.Log(max(d.Seconds()*1e6, 1)) / math.Log(growth)))
	h.total++
	h.counts[min(class, len(h.counts)-1)]++
}

// quantile returns the µs that percent of those counted do not exceed.
func (h *histogram) quantile(percent int64) int64 {
	rank := (h.total*percent + 99) / 100 // rounded up
	for class, n := range h.counts {
		if rank -= n; rank <= 0 && h.total > 0 {
			return int64(math.Pow(growth, float64(class)))
		}
	}
	return 0
}
