// Package workload says which tasks a benchmark of queues enqueues, and when.
package workload

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// A Task is one task of a plan. No two tasks with the same key may run at once, unless the plan says
// otherwise.
type Task struct {
	ID   int           // its place in the plan
	Key  string        // what it works on
	Also string        // what else; "" for nothing
	Work time.Duration // for which its handler waits; 0 returns at once
	At   time.Duration // when it is enqueued, after the start; none before the one before it
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
	// Holders is how many tasks with the same key may run at once; 0 for one.
	Holders int
	// PerSecond is how many tasks with the same key may start in any second; 0 for no such rate.
	PerSecond int
}

// workers is how many every plan has.
const workers = 20

// hotKey is the key of tasks that get in each other's way.
const hotKey = "hot"

// Ideal returns the time that nothing can beat. One key's work is done one by one, and all work by
// so many workers.
func (p Plan) Ideal() time.Duration {
	var all, longest time.Duration
	keys := make(map[string]time.Duration)
	for _, t := range p.Tasks {
		all += t.Work
		longest = max(longest, t.At+t.Work)
		for _, key := range t.Keys() {
			keys[key] += t.Work
			longest = max(longest, keys[key]/time.Duration(max(1, p.Holders)))
		}
	}
	return max(longest, all/time.Duration(p.Workers))
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

// numbered gives the tasks their ids, and those without a key one of their own.
func numbered(tasks []Task) []Task {
	for i := range tasks {
		tasks[i].ID = i
		if tasks[i].Key == "" {
			tasks[i].Key = fmt.Sprintf("alone-%d", i)
		}
	}
	return tasks
}

// some returns n tasks with the same key; "" gives each its own.
func some(n int, key string, work time.Duration) []Task {
	return slices.Repeat([]Task{{Key: key, Work: work}}, n)
}

// every spreads tasks evenly over the time that they take at so many per second.
func every(perSecond int, tasks []Task) []Task {
	for i := range tasks {
		tasks[i].At = time.Duration(i) * time.Second / time.Duration(perSecond)
	}
	return tasks
}

// merged puts tasks in the order in which they are enqueued.
func merged(tasks ...[]Task) []Task {
	all := slices.Concat(tasks...)
	slices.SortStableFunc(all, func(a, b Task) int { return int(a.At - b.At) })
	return all
}

// shuffled mixes tasks, always in the same way.
func shuffled(tasks ...[]Task) []Task {
	all := slices.Concat(tasks...)
	rng := rand.New(rand.NewPCG(1, 2))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// scaled returns n times scale, but enough to see something.
func scaled(n int, scale float64) int { return max(4, int(float64(n)*scale)) }

// Mixed has one hot key among many others: 200 tasks of 10 ms share one, and 2,000 have their own.
func Mixed(scale float64) Plan {
	const work = 10 * time.Millisecond
	return Plan{Workers: workers, Tasks: numbered(shuffled(
		some(scaled(200, scale), hotKey, work),
		some(scaled(2000, scale), "", work)))}
}

// Hot has 2,000 tasks that do nothing on one key.
func Hot(scale float64) Plan {
	return Plan{Workers: workers, Tasks: numbered(some(scaled(2000, scale), hotKey, 0))}
}

// Uncontended has 20,000 tasks that do nothing, each on a key of its own.
func Uncontended(scale float64) Plan {
	return Plan{Workers: workers, Stored: true, Tasks: numbered(some(scaled(20_000, scale), "", 0))}
}

// Transfers has 2,000 tasks of 10 ms, each on two of 50 keys.
func Transfers(scale float64) Plan {
	rng := rand.New(rand.NewPCG(1, 2))
	tasks := some(scaled(2000, scale), "", 10*time.Millisecond)
	for i := range tasks {
		const accounts = 50
		from, to := rng.IntN(accounts), rng.IntN(accounts-1)
		if to >= from {
			to++
		}
		tasks[i].Key, tasks[i].Also = fmt.Sprintf("account:%02d", min(from, to)), fmt.Sprintf("account:%02d", max(from, to))
	}
	return Plan{Workers: workers, Tasks: numbered(tasks)}
}

// Limit has 500 tasks of 20 ms on one key, of which five may run at once.
func Limit(scale float64) Plan {
	return Plan{Workers: workers, Holders: 5, Tasks: numbered(some(scaled(500, scale), hotKey, 20*time.Millisecond))}
}

// Rate has 400 tasks that do nothing on one key, of which 100 may start in any second.
func Rate(scale float64) Plan {
	return Plan{Workers: workers, Holders: workers, PerSecond: 100, Tasks: numbered(some(scaled(400, scale), hotKey, 0))}
}

// Long has 1,000 tasks of 10 ms that come at once and wait for one key. Meanwhile 100 others per
// second come and go.
func Long(scale float64) Plan {
	return Plan{Workers: workers, Tasks: numbered(merged(
		some(scaled(1000, scale), hotKey, 10*time.Millisecond),
		every(100, some(scaled(1000, scale), "", 5*time.Millisecond))))}
}

// Backlog has 100,000 tasks pending that do nothing. In the first tenth of them are 200 of 5 ms for
// one key. Once the first few have run, tasks that wait for the key come behind all others, unless
// the queue moves them to the front.
func Backlog(scale float64) Plan {
	hot, others := scaled(200, scale), scaled(100_000, scale)
	first := shuffled(some(hot, hotKey, 5*time.Millisecond), some(others/10, "", 0))
	return Plan{Workers: workers, Stored: true, Tasks: numbered(slices.Concat(first, some(others-others/10, "", 0)))}
}

// BehindAlone has 1,000 tasks of 5 ms pending, each with its own key.
func BehindAlone(scale float64) Plan {
	return Plan{Workers: workers, Stored: true, Tasks: numbered(behind(scale))}
}

// Behind has the same behind 100,000 tasks that do nothing, on one key.
func Behind(scale float64) Plan {
	front := some(scaled(100_000, scale), hotKey, 0)
	return Plan{Workers: workers, Stored: true, Tasks: numbered(slices.Concat(front, behind(scale)))}
}

func behind(scale float64) []Task { return some(scaled(1000, scale), "", 5*time.Millisecond) }

// BystandersAlone has 400 tasks of 2 ms per second for 5 s, each with its own key.
func BystandersAlone(scale float64) Plan {
	return Plan{Workers: workers, Tasks: numbered(bystanders(scale))}
}

// Bystanders has the same, and a key that has 50 tasks of 15 ms per second, and 100 more at once
// after 1 s.
func Bystanders(scale float64) Plan {
	const work = 15 * time.Millisecond
	burst := some(scaled(100, scale), hotKey, work)
	for i := range burst {
		burst[i].At = time.Duration(float64(time.Second) * min(1, scale))
	}
	return Plan{Workers: workers, Tasks: numbered(merged(
		bystanders(scale), every(50, some(scaled(250, scale), hotKey, work)), burst))}
}

func bystanders(scale float64) []Task {
	return every(400, some(scaled(2000, scale), "", 2*time.Millisecond))
}
