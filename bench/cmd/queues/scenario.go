package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/workload"
)

// A scenario is one kind of work with what is measured of it.
type scenario struct {
	contest.Entry

	// plan makes the work, smaller by the scale.
	plan    func(scale float64) workload.Plan
	figures []figure
}

// workers is how many every plan has.
const workers = 20

// hotKey is the key of tasks that get in each other's way.
const hotKey = "hot"

// ms is a millisecond.
const ms = time.Millisecond

// scenarios returns all there are.
func scenarios() []scenario {
	// of has a plan of so many tasks as its scale makes of a number, but enough to see something.
	of := func(name, about string, plan func(n func(int) int) workload.Plan, figures ...[]figure) scenario {
		return scenario{contest.Entry{Name: name, About: about}, func(scale float64) workload.Plan {
			p := plan(func(n int) int { return max(4, int(float64(n)*scale)) })
			p.Workers, p.Tasks = workers, workload.Numbered(p.Tasks)
			return p
		}, slices.Concat(figures...)}
	}
	behind := func(n func(int) int) []workload.Task { return some(n(1000), "", 5*ms) }
	return []scenario{
		of("H", "200 tasks of 10 ms on one key, shuffled among 2,000 of 10 ms on keys of their own", func(n func(int) int) workload.Plan {
			return workload.Plan{Tasks: shuffled(some(n(200), hotKey, 10*ms), some(n(2000), "", 10*ms))}
		}, []figure{makespan, toWorked}, handOffs, costs),
		of("hot", "2,000 tasks that do nothing on one key", func(n func(int) int) workload.Plan {
			return workload.Plan{Tasks: some(n(2000), hotKey, 0)}
		}, []figure{throughput}, handOffs, costs),
		of("uncontended", "20,000 tasks that do nothing on keys of their own, enqueued beforehand", func(n func(int) int) workload.Plan {
			return workload.Plan{Stored: true, Tasks: some(n(20_000), "", 0)}
		}, []figure{throughput}, costs),
		of("transfers", "2,000 tasks of 10 ms, each on two of 50 keys", func(n func(int) int) workload.Plan {
			return workload.Plan{Tasks: onTwo(50, some(n(2000), "", 10*ms))}
		}, []figure{makespan, toInOrder, inversions}, costs),
		of("behind-alone", "1,000 tasks of 5 ms pending, on keys of their own, when the workers start", func(n func(int) int) workload.Plan {
			return workload.Plan{Stored: true, Tasks: behind(n)}
		}, []figure{makespan}, latencies),
		of("behind", "the same behind 100,000 tasks that do nothing, on one key", func(n func(int) int) workload.Plan {
			return workload.Plan{Stored: true, Tasks: slices.Concat(some(n(100_000), hotKey, 0), behind(n))}
		}, []figure{makespan}, latencies),
		of("bystander", "400 tasks of 2 ms per second on keys of their own, beside a key with 50 tasks of 15 ms per second and 100 more at once", func(n func(int) int) workload.Plan {
			burst := some(n(100), hotKey, 15*ms)
			for i := range burst {
				burst[i].At = min(time.Second, time.Duration(n(1_000_000))*time.Microsecond)
			}
			return workload.Plan{Tasks: merged(every(400, some(n(2000), "", 2*ms)), every(50, some(n(250), hotKey, 15*ms)), burst)}
		}, latencies, handOffs),
	}
}

// some returns n tasks with the same key; "" gives each its own.
func some(n int, key string, work time.Duration) []workload.Task {
	return slices.Repeat([]workload.Task{{Key: key, Work: work}}, n)
}

// every spreads tasks evenly over the time that they take at so many per second.
func every(perSecond int, tasks []workload.Task) []workload.Task {
	for i := range tasks {
		tasks[i].At = time.Duration(i) * time.Second / time.Duration(perSecond)
	}
	return tasks
}

// merged puts tasks in the order in which they are enqueued.
func merged(tasks ...[]workload.Task) []workload.Task {
	all := slices.Concat(tasks...)
	slices.SortStableFunc(all, func(a, b workload.Task) int { return int(a.At - b.At) })
	return all
}

// shuffled mixes tasks, always in the same way.
func shuffled(tasks ...[]workload.Task) []workload.Task {
	all := slices.Concat(tasks...)
	rng := rand.New(rand.NewPCG(1, 2))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// onTwo has each task work on two of so many accounts, always the same.
func onTwo(accounts int, tasks []workload.Task) []workload.Task {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range tasks {
		from, to := rng.IntN(accounts), rng.IntN(accounts-1)
		if to >= from {
			to++
		}
		tasks[i].Key, tasks[i].Also = fmt.Sprintf("account:%02d", min(from, to)), fmt.Sprintf("account:%02d", max(from, to))
	}
	return tasks
}
