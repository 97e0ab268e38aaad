// Package runstats sums up what a worker's guarded tasks went through: how many
// had to wait, how often, and how fast locks were handed on.
package runstats

import (
	"sync"
	"time"

	"github.com/sidingq/siding/queue"
)

// A Collector sums up events; its Observe fits [queue.ServerConfig]. The zero
// value is ready to use, by several goroutines. Its size is fixed, however long
// a worker runs.
type Collector struct {
	mu       sync.Mutex
	sum      Summary
	handOffs histogram
}

// A Summary is what a Collector has seen so far.
type Summary struct {
	// Tasks is how many runs of handlers have ended; a task that failed and was
	// tried again counts each time.
	Tasks int64
	// Succeeded is how many of them returned no error and kept their lease.
	Succeeded int64
	// Contended is how many tasks found their resource busy at least once.
	Contended int64
	// Refused is how often that happened in all.
	Refused int64
	// Lost is how often a lease ended while its handler was running.
	Lost int64
	// HandOffs is how often a lock went straight from one task to the next,
	// and HandOffP50 and HandOffP99 how long that took, to within 3 %: half of
	// them, and 99 of 100, took no longer. Zero without hand-offs.
	HandOffs   int64
	HandOffP50 time.Duration
	HandOffP99 time.Duration
}

// Observe takes in an event.
func (c *Collector) Observe(e queue.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case queue.EventParked:
		c.sum.Refused++
		if e.Refusals == 1 {
			c.sum.Contended++
		}
	case queue.EventAcquired:
		if e.HandOff > 0 {
			c.handOffs.add(e.HandOff)
		}
	case queue.EventReleased:
		c.sum.Tasks++
		if e.Err == nil {
			c.sum.Succeeded++
		}
	case queue.EventRecovered: // it begins anew
	case queue.EventLost:
		c.sum.Lost++
	}
}

// Summary returns what has been seen so far.
func (c *Collector) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sum
	s.HandOffs = c.handOffs.total
	s.HandOffP50 = c.handOffs.quantile(50)
	s.HandOffP99 = c.handOffs.quantile(99)
	return s
}

// The classes of durations: parts is into how many equal ones each doubling is
// divided, which keeps the error of a value below 1/32. Durations from longest
// on, 12 days, share a class.
const (
	parts   = 32
	longest = 1 << 40 // microseconds
	classes = 37 * parts
)

// A histogram counts durations in microseconds, in classes that grow with them.
type histogram struct {
	total  int64
	counts [classes]int64
}

func (h *histogram) add(d time.Duration) {
	h.total++
	h.counts[class(d.Microseconds())]++
}

// class returns the class of a value: values below 2 * parts have one each;
// above, the doubling and the part of it tell.
func class(us int64) int64 {
	us = min(max(us, 0), longest)
	shift := int64(0)
	for us>>shift >= 2*parts {
		shift++
	}
	return shift*parts + us>>shift
}

// most returns the largest value of a class.
func most(class int64) int64 {
	shift := max(class/parts-1, 0)
	return (class-shift*parts+1)<<shift - 1
}

// quantile returns a duration that percent of those counted do not exceed.
func (h *histogram) quantile(percent int64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := (h.total*percent + 99) / 100 // rounded up
	for class, n := range h.counts {
		if rank -= n; rank <= 0 {
			return time.Duration(most(int64(class))) * time.Microsecond
		}
	}
	return 0 // not reached: the counts add up to total
}
