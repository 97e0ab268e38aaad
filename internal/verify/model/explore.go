package model

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// A Report is what an exploration found.
type Report struct {
	States, Steps int
	// Broken is the property that is broken, "" if none is, and Trace a shortest
	// way there, in words.
	Broken string
	Trace  []string
}

func (r Report) String() string {
	if r.Broken == "" {
		return fmt.Sprintf("%d states, %d steps", r.States, r.Steps)
	}
	return fmt.Sprintf("%s (%d states, %d steps)\n  %s", r.Broken, r.States, r.Steps, strings.Join(r.Trace, "\n  "))
}

// A graph has all states by number, in the order of their discovery, and the steps between them
// that count.
type graph struct {
	*Model

	whole   bool // the states keep what has no effect any more
	seeds   [2]maphash.Seed
	numbers map[[2]uint64]int32
	parents []int32
	moves   []uint8 // which step of the parent leads here
	final   []bool
	first   []int32 // the index of the first step of each state
	targets []int32
	actors  []uint8
}

// Explore visits every state that can be reached, and checks all properties up to the first one
// that is broken.
func (m *Model) Explore() Report {
	g := newGraph(m)
	report := g.build(func(int32, *State, *Step) {})
	if report.Broken == "" {
		g.judge(&report)
	}
	return report
}

// A Way leads through the model from its start to a step of some kind.
type Way struct {
	Kind  string
	Steps []Step
}

// Cover returns a shortest way to a step of each kind. kind names the kind of a step from s.
func (m *Model) Cover(kind func(s *State, step *Step) string) (ways []Way) {
	g := newGraph(m)
	g.whole = true
	ends := map[string]int32{}
	g.build(func(n int32, s *State, step *Step) {
		k := kind(s, step)
		if _, found := ends[k]; !found {
			ends[k] = n
			ways = append(ways, Way{Kind: k})
		}
	})
	for i := range ways {
		way := &ways[i]
		steps, s := g.trace(ends[way.Kind])
		for _, step := range g.Steps(nil, &s) {
			if kind(&s, &step) == way.Kind {
				way.Steps = append(steps, step)
				break
			}
		}
	}
	return ways
}

func newGraph(m *Model) *graph {
	return &graph{
		Model: m, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, numbers: map[[2]uint64]int32{},
	}
}

// build finds all states, and calls visit for each step from them.
func (g *graph) build(visit func(n int32, s *State, step *Step)) (report Report) {
	start := g.representative(g.Start())
	g.add(start, -1, 0)
	var steps []Step
	queue := []State{start}
	for n := int32(0); len(queue) > 0; n++ {
		s := queue[0]
		queue = queue[1:]
		g.first = append(g.first, int32(len(g.targets)))
		steps = g.Steps(steps[:0], &s)
		moves := false
		for i := range steps {
			step := &steps[i]
			report.Steps++
			visit(n, &s, step)
			if step.Broken != "" {
				report.States = len(g.parents)
				report.Trace, report.Broken = g.wordsToBroken(n)
				return report
			}
			next := g.representative(step.Next)
			number, known := g.numbers[g.hash(next)]
			if !known {
				number = g.add(next, n, uint8(i))
				queue = append(queue, next)
			}
			if kind := step.Move.Kind; step.counts {
				moves = moves || !kind.waits() && kind.fair()
				g.targets = append(g.targets, number)
				g.actors = append(g.actors, actor(&s, step.Move))
			}
		}
		if s.Faults == g.Faults && !moves && s.waiting() {
			report.States = len(g.parents)
			report.Trace = g.words(n)
			report.Broken = "timers: nothing went wrong, and only a timer or the sweeper brings a waiting task back"
			return report
		}
	}
	g.first = append(g.first, int32(len(g.targets)))
	report.States = len(g.parents)
	return report
}

// representative returns the state that stands for s.
func (g *graph) representative(s State) State {
	if !g.whole {
		g.prune(&s)
	}
	return g.canonical(s)
}

// hash identifies a state: no two of some million have the same 128 bits.
func (g *graph) hash(s State) [2]uint64 {
	return [2]uint64{maphash.Comparable(g.seeds[0], s), maphash.Comparable(g.seeds[1], s)}
}

// add gives a state its number.
func (g *graph) add(s State, parent int32, move uint8) int32 {
	number := int32(len(g.parents))
	g.numbers[g.hash(s)] = number
	g.parents, g.moves = append(g.parents, parent), append(g.moves, move)
	g.final = append(g.final, s.Final())
	return number
}

// Final reports whether all is over.
func (s *State) Final() bool {
	for i := range s.Tasks {
		if !s.Tasks[i].finished() {
			return false
		}
	}
	return s.Attempts == [maxAttempts]Attempt{} && s.Wakers == [maxWakers]Waker{} && s.Recovery == Recovery{} && s.Loss == Loss{}
}

// waiting reports whether a task is parked, or is prefetched and has not started.
func (s *State) waiting() bool {
	return slices.ContainsFunc(s.Tasks[:], func(t Task) bool { return t.In == Parked }) ||
		slices.ContainsFunc(s.Attempts[:], func(a Attempt) bool { return a.Prefetched })
}

// trace returns a shortest way to state number n, and that state. The way has the states themselves
// and not their representatives, so that a task keeps its name.
func (g *graph) trace(n int32) (steps []Step, s State) {
	var on []int32
	for ; n > 0; n = g.parents[n] {
		on = append(on, n)
	}
	s = g.Start()
	for _, number := range slices.Backward(on) {
		for _, step := range g.Steps(nil, &s) {
			if n, known := g.numbers[g.hash(g.representative(step.Next))]; known && n == number {
				s, steps = step.Next, append(steps, step)
				break
			}
		}
	}
	return steps, s
}

func (g *graph) words(n int32) (words []string) {
	steps, _ := g.trace(n)
	for _, step := range steps {
		words = append(words, step.String())
	}
	return words
}

// wordsToBroken returns a shortest way to a step from state number n that breaks a property, and
// the property.
func (g *graph) wordsToBroken(n int32) (words []string, broken string) {
	_, s := g.trace(n)
	for _, step := range g.Steps(nil, &s) {
		if step.Broken != "" {
			return append(g.words(n), step.String()), step.Broken
		}
	}
	return g.words(n), "a property that is broken for the representative only"
}
