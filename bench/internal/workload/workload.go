// Package workload says which tasks a benchmark of queues enqueues, and when.
package workload

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// A Task is one task of a plan. No two tasks with the same key may run at once. Programs in Node read it as JSON.
type Task struct {
	ID   int           `json:"id"`             // its place in the plan
	Key  string        `json:"key"`            // what it works on
	Also string        `json:"also,omitempty"` // what else
	Work time.Duration `json:"work"`           // for which its handler waits; 0 returns at once
	At   time.Duration `json:"at"`             // when it is enqueued, after the start; none before the one before it
}

// Keys returns all that the task works on.
func (t Task) Keys() []string {
	if t.Also == "" {
		return []string{t.Key}
	}
	return []string{t.Key, t.Also}
}

// A Plan is what one run does.
type Plan struct {
	Tasks   []Task
	Workers int // how many tasks may run at once
	// Stored has all tasks enqueued before the workers start. Otherwise workers
	// that have nothing to do wait for the first.
	Stored bool
}

// Pairs reports whether tasks work on two keys.
func (p Plan) Pairs() bool {
	return slices.ContainsFunc(p.Tasks, func(t Task) bool { return t.Also != "" })
}

// InOrder returns the time that the work takes with no other cost, if each key has its tasks one by one, in the order of the
// plan, and all of them come at once.
func (p Plan) InOrder() (now time.Duration) {
	waiting, ends := slices.Clone(p.Tasks), make(map[int]time.Duration) // of those at work, by task
	for len(waiting)+len(ends) > 0 {
		taken := make(map[string]bool)
		for task := range ends {
			for _, key := range p.Tasks[task].Keys() {
				taken[key] = true
			}
		}
		waiting = slices.DeleteFunc(waiting, func(t Task) bool {
			starts := len(ends) < p.Workers
			for _, key := range t.Keys() {
				starts = starts && !taken[key]
				taken[key] = true // nobody passes it
			}
			if starts {
				ends[t.ID] = now + t.Work
			}
			return starts
		})
		now = slices.Min(slices.Collect(maps.Values(ends)))
		maps.DeleteFunc(ends, func(_ int, end time.Duration) bool { return end == now })
	}
	return now
}

// Alone tells for each task whether no other one has its key.
func (p Plan) Alone() []bool {
	keys := make(map[string]int)
	for _, t := range p.Tasks {
		for _, key := range t.Keys() {
			keys[key]++
		}
	}
	alone := make([]bool, len(p.Tasks))
	for i, t := range p.Tasks {
		alone[i] = !slices.ContainsFunc(t.Keys(), func(key string) bool { return keys[key] > 1 })
	}
	return alone
}

// Numbered gives the tasks their ids, and those without a key one of their own.
func Numbered(tasks []Task) []Task {
	for i := range tasks {
		tasks[i].ID = i
		if tasks[i].Key == "" {
			tasks[i].Key = fmt.Sprintf("alone-%d", i)
		}
	}
	return tasks
}
