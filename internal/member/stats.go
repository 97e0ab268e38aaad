package member

import (
	"sync"

	"github.com/sidingq/siding/queue"
)

// A Collector sums up events; its Observe fits [queue.ServerConfig]. The zero value is ready to
// use, by several goroutines.
type Collector struct {
	mu  sync.Mutex
	sum Summary
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
	case queue.EventReleased, queue.EventFinished:
		c.sum.Tasks++
		if e.Err == nil {
			c.sum.Succeeded++
		}
	case queue.EventLost:
		c.sum.Tasks++
		c.sum.Lost++
	case queue.EventRecovered: // its attempt begins anew
	case queue.EventAcquired, queue.EventStarted: // it ends with another event
	case queue.EventRejected, queue.EventCoalesced, queue.EventReplaced, queue.EventWaitedTooLong: // no handler has run
	}
}

// Summary returns the figures so far.
func (c *Collector) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sum
}
