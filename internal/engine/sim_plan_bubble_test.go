package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// A plan is what a seed makes happen. Most seeds have a few kinds of faults only, so that what fails can be read.
type plan struct {
	seed      uint64
	servers   []int // their slots
	queues    []string
	weights   map[string]int
	strict    bool
	resources []string
	limits    string // as taskredis.Rules.Limits
	most      map[string]int
	count     int           // of tasks
	length    time.Duration // faults happen and tasks come for so long

	ttl, renew, margin, overrun time.Duration
	skew                        time.Duration // of Redis' clock to that of the servers
	tables                      bool          // see simRedis
	crashes                     int           // that use no retry

	// How likely things are, for each call.
	lost, silent, slow, twice, refused float64
	slowest                            time.Duration
	bells                              float64 // that a notification is lost
	// How likely things are, for each task.
	plain, wrong, fails, long, stubborn, unique, kept, sets, batches, holds float64

	rushes []time.Duration // when the tasks come, if not one by one
	events []event
}

// An event happens at a time after the start.
type event struct {
	at   time.Duration
	name string
	run  func(w *world)
}

// mix makes one number of several, each of which changes all of it.
func mix(numbers ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, n := range numbers {
		h ^= n
		h ^= h >> 30
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 27
		h *= 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// random returns what is random about one thing of a seed. Two things have nothing to do with each other, so it does not
// matter which comes first.
func random(numbers ...uint64) *rand.Rand {
	return rand.New(rand.NewPCG(mix(numbers...), mix(append(numbers, 1)...)))
}

// What random numbers are for.
const (
	forPlan uint64 = iota
	forQueues
	forStep
	forRenew
	forBell
	forHandler
	forDelay
	forMisc
	forBatches
	forHolds
	forRushes
)

// between returns a duration; short ones are as likely as long ones.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	low, high := math.Log(float64(from)), math.Log(float64(to))
	return time.Duration(math.Exp(low + r.Float64()*(high-low)))
}

func newPlan(seed uint64) *plan {
	r := random(seed, forPlan)
	p := &plan{seed: seed, weights: make(map[string]int), most: make(map[string]int)}
	for range 1 + r.IntN(3) {
		p.servers = append(p.servers, 1+r.IntN(4))
	}
	for i := range 1 + r.IntN(3) {
		p.queues = append(p.queues, fmt.Sprint("q", i+1))
		p.weights[p.queues[i]] = 1 + r.IntN(3)
	}
	p.strict = r.IntN(3) == 0
	for i := range 1 + r.IntN(5) {
		p.resources = append(p.resources, fmt.Sprint("r", i+1))
		p.most[p.resources[i]] = 1
	}
	p.count = 4 + r.IntN(30)
	p.length = 3*time.Second + time.Duration(r.Int64N(int64(30*time.Second)))
	p.ttl = []time.Duration{3 * time.Second, 6 * time.Second, 15 * time.Second}[r.IntN(3)]
	p.renew, p.margin = p.ttl/3, p.ttl/15
	p.overrun = []time.Duration{time.Minute, 2 * time.Second}[r.IntN(2)]
	p.tables, p.crashes = r.IntN(2) == 0, 3
	some := func(one int, most float64) float64 { // in one of so many seeds
		if r.IntN(one) > 0 {
			return 0
		}
		return most * r.Float64()
	}
	p.long, p.fails, p.stubborn = some(2, 0.3), some(2, 0.5), some(3, 0.5)
	p.unique, p.kept, p.sets = some(4, 1), some(4, 1), some(3, 0.6) // sets of resources
	if p.plain = some(3, 1); p.plain > 0 {
		p.wrong = some(3, 0.3)
	}
	if r.IntN(6) == 0 {
		p.addLimits(r)
	}
	if r.IntN(8) > 0 { // else nothing goes wrong
		p.lost, p.silent, p.slow, p.twice = some(3, 0.2), some(3, 0.2), some(2, 0.3), some(2, 0.3)
		p.slowest = []time.Duration{time.Second, 5 * time.Second, 20 * time.Second}[r.IntN(3)]
		p.refused = some(4, 0.2)
		p.bells = some(3, 1)
		if r.IntN(4) == 0 {
			p.skew = between(r, time.Millisecond, 5*time.Second)
			if r.IntN(2) == 0 {
				p.skew = -p.skew
			}
		}
		p.addFaults(r)
	}
	if r := random(seed, forHolds); r.IntN(3) == 0 {
		p.holds, p.fails, p.crashes = r.Float64(), max(p.fails, 0.4), 3*r.IntN(2)
		p.addOperators(r)
	}
	if r := random(seed, forRushes); r.IntN(4) == 0 {
		p.addRushes(r)
	}
	p.addTasks(r)
	if r := random(seed, forBatches); r.IntN(3) == 0 {
		p.batches = r.Float64()
	}
	slices.SortStableFunc(p.events, func(a, b event) int { return int(a.at - b.at) })
	return p
}

func (p *plan) addLimits(r *rand.Rand) {
	for _, resource := range p.resources {
		switch r.IntN(3) {
		case 0:
			p.most[resource] = 2 + r.IntN(2)
			p.limits += fmt.Sprintf("\n%s\t%d", resource, p.most[resource])
		case 1:
			p.limits += fmt.Sprintf("\n%s\t%d %d/%d", resource, 1, 1+r.IntN(3), 1000*(100+r.IntN(2000)))
		}
	}
}

// when returns a moment of the seed.
func (p *plan) when(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(p.length))) }

func (p *plan) add(at time.Duration, run func(w *world), name string, args ...any) {
	p.events = append(p.events, event{at, fmt.Sprintf(name, args...), run})
}

// addRushes has the tasks come in rushes, to servers with many slots. In the middle of a rush all that wait are run.
func (p *plan) addRushes(r *rand.Rand) {
	p.count += 30
	for i := range p.servers {
		p.servers[i] += 4
	}
	for range 2 + r.IntN(4) {
		at := p.when(r) / 4
		p.rushes = append(p.rushes, at)
		p.add(at+time.Duration(p.count/2)*time.Microsecond, func(w *world) { w.runAll() }, "run all that wait")
	}
}

func (p *plan) addTasks(r *rand.Rand) {
	crowd := r.IntN(3) == 0 // most come at once
	until := p.length * 3 / 4
	for i := range p.count {
		at := time.Duration(r.Int64N(int64(until)))
		if crowd && r.IntN(4) > 0 {
			at = time.Duration(r.IntN(int(time.Second)))
		}
		if len(p.rushes) > 0 {
			at = p.rushes[i%len(p.rushes)] + time.Duration(i)*time.Microsecond
		}
		j := &job{
			n: i, id: fmt.Sprintf("t%02d", i), queue: p.queues[r.IntN(len(p.queues))],
			retries: 25, timeout: 60, kind: "kind",
		}
		if r.IntN(10) > 0 {
			j.resource = p.resources[r.IntN(len(p.resources))]
			j.field = j.resource
		}
		if j.resource != "" && r.Float64() < p.sets {
			names := make([]string, 2+r.IntN(3))
			for i := range names {
				names[i] = p.resources[r.IntN(len(p.resources))]
			}
			j.resource = store.Join(names...)
			j.field = j.resource
		}
		if r.Float64() < p.plain {
			j.field = ""
		} else if j.field != "" && r.Float64() < p.wrong {
			j.field = p.resources[r.IntN(len(p.resources))]
		}
		if r.IntN(8) == 0 {
			j.retries = r.IntN(3)
		}
		if r.IntN(4) == 0 {
			j.timeout = int64(1 + r.IntN(5))
		}
		if r.Float64() < p.unique {
			j.unique = "asynq:{" + j.queue + "}:unique:" + j.id
		}
		if r.Float64() < p.kept {
			j.retention = 3600
		}
		if j.field != "" && j.field == j.resource && r.IntN(12) == 0 {
			j.priority = 1 + r.IntN(3)
		}
		if r := random(p.seed, forHolds, uint64(i)); r.Float64() < p.holds && j.field == j.resource {
			j.kind = []string{holdKind, stopKind}[r.IntN(2)]
			if r.IntN(2) == 0 {
				j.retries = r.IntN(3)
			}
		}
		p.add(at, func(w *world) { w.enqueue(j) }, "enqueue %s", j.id)
	}
}

// addOperators has operators do something about tasks that hold their lines.
func (p *plan) addOperators(r *rand.Rand) {
	for range r.IntN(10) {
		what, n := []string{"retry", "retry", "skip", "skip", "run", "delete", "archive"}[r.IntN(7)], r.IntN(p.count)
		p.add(p.when(r), func(w *world) { w.operateHeld(what, n) }, "%s a task that holds its line", what)
	}
}

func (p *plan) addFaults(r *rand.Rand) {
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(3) {
			n, again := r.IntN(len(p.servers)), between(r, 100*time.Millisecond, 10*time.Second)
			at := p.when(r)
			p.add(at, func(w *world) { w.members[n].kill() }, "server %d dies", n+1)
			p.add(at+again, func(w *world) { w.startServer(n) }, "server %d starts", n+1)
		}
	}
	if r.IntN(4) == 0 {
		n, again, patience := r.IntN(len(p.servers)), between(r, 100*time.Millisecond, 10*time.Second), between(r, 10*time.Millisecond, 10*time.Second)
		at := p.when(r)
		p.add(at, func(w *world) { w.shutdown(n, patience) }, "server %d shuts down", n+1)
		p.add(at+again, func(w *world) { w.startServer(n) }, "server %d starts", n+1)
	}
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(3) {
			n, d, answers := r.IntN(len(p.servers)+1), between(r, 100*time.Millisecond, 2*p.ttl), r.IntN(2) == 0
			p.add(p.when(r), func(w *world) { w.stall(n, d, answers) }, "server %d stalls", n+1)
		}
	}
	if r.IntN(6) == 0 {
		at, lost := p.when(r), between(r, time.Millisecond, 2*time.Second)
		p.add(at, func(w *world) { w.snapshot() }, "last write that is kept")
		p.add(at+lost, func(w *world) { w.failover() }, "failover")
	}
	if r.IntN(8) == 0 {
		d := between(r, time.Millisecond, 20*time.Second)
		if r.IntN(2) == 0 {
			d = -d
		}
		p.add(p.when(r), func(w *world) { w.clock(d) }, "clock steps by %v", d)
	}
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(6) {
			what, n := []string{"delete", "run", "archive"}[r.IntN(3)], r.IntN(p.count)
			p.add(p.when(r), func(w *world) { w.operate(what, fmt.Sprintf("t%02d", n)) }, "%s %s", what, fmt.Sprintf("t%02d", n))
		}
	}
	if r.IntN(5) == 0 {
		queue := p.queues[r.IntN(len(p.queues))]
		at, d := p.when(r), between(r, 100*time.Millisecond, 10*time.Second)
		p.add(at, func(w *world) { w.pause(queue, true) }, "pause %s", queue)
		p.add(at+d, func(w *world) { w.pause(queue, false) }, "unpause %s", queue)
	}
	if r.IntN(4) == 0 {
		for i := range 1 + r.IntN(3) {
			resource, d, forever := p.resources[r.IntN(len(p.resources))], between(r, time.Millisecond, 5*time.Second), r.IntN(3) == 0
			at, token := p.when(r), fmt.Sprint("other", i)
			p.add(at, func(w *world) { w.foreignTakes(resource, token, d, forever) }, "another program wants %s", resource)
			p.add(at+d, func(w *world) { w.foreignLeaves(resource, token) }, "another program leaves %s", resource)
		}
	}
}
