package asynqredis

import (
	"math"
	"slices"
	"time"
)

// These are for tests that decide themselves what becomes of prefetched tasks.

// KeepPrefetched has f keep prefetched tasks until they are claimed, or dropped.
// Call it before the server begins.
func (f *Fetcher) KeepPrefetched() { f.prefetched.timer = time.AfterFunc(math.MaxInt64, func() {}) }

// Prefetched returns the attempts of f that no dequeue has claimed so far, the oldest first.
func (f *Fetcher) Prefetched() (unclaimed []*Attempt) {
	p := &f.prefetched
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tasks {
		unclaimed = append(unclaimed, t.attempt)
	}
	return unclaimed
}

// Drop has no dequeue claim a.
func (f *Fetcher) Drop(a *Attempt) {
	p := &f.prefetched
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tasks = slices.DeleteFunc(p.tasks, func(t prefetchedTask) bool { return t.attempt == a })
}

// Over reports whether f has ended its attempt, or has found it over.
func (f *Finish) Over() bool { return f.over }

// ServeOnly has f prefetch tasks of one queue only.
func (f *Fetcher) ServeOnly(queue string) {
	p := &f.prefetch
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order, p.differ = newPriorities(map[string]int{queue: 1}, false), false
}
