package model

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// A Transition is one call, or one event, and the state after it.
type Transition struct {
	Move   Move
	Next   State
	Broken string // the property that the step breaks
	Counts uint8  // the goals for which the step counts
	AtOnce bool   // it happens by itself, and no time has to pass before
}

// A Report is what an exploration found.
type Report struct {
	States, Steps int
	Took          time.Duration
	// Broken is the property that is broken, "" if none is, and Trace a shortest way there, in words.
	Broken string
	Trace  []string
}

func (r Report) String() string {
	size := fmt.Sprintf("%d states, %d steps, %.1f s", r.States, r.Steps, r.Took.Seconds())
	if r.Broken == "" {
		return size
	}
	return fmt.Sprintf("%s (%s)\n  %s", r.Broken, size, strings.Join(r.Trace, "\n  "))
}

// Property is the name of the property that is broken: what comes before the colon.
func (r Report) Property() string {
	name, _, _ := strings.Cut(r.Broken, ":")
	return name
}

// A graph has all states by number, in the order of their discovery, and the steps between them
// that count.
type graph struct {
	*Model

	seeds   [2]maphash.Seed
	numbers map[[2]uint64]int32
	parents []int32
	final   []bool  // nothing is left to run
	first   []int32 // the index of the first step of each state
	targets []int32
	counts  []uint8
}

// Explore visits every state that can be reached, and checks all properties up to the first one that is
// broken.
func (m *Model) Explore() Report {
	began, g := time.Now(), newGraph(m)
	report := g.build()
	for _, goal := range []uint8{hope, prompt} {
		if report.Broken != "" {
			break
		}
		if n := g.stuck(goal); n >= 0 {
			report.Broken, report.Trace = goals[goal], g.words(n)
		}
	}
	report.Took = time.Since(began)
	return report
}

func newGraph(m *Model) *graph {
	return &graph{
		Model: m, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, numbers: map[[2]uint64]int32{},
	}
}

// build finds all states, and the steps between them.
func (g *graph) build() (report Report) {
	start := g.Canonical(g.Start())
	g.add(g.hash(start), &start, -1)
	var steps []Transition
	queue := []State{start}
	for n := int32(0); len(queue) > 0 && report.Broken == ""; n++ {
		s := queue[0]
		queue = queue[1:]
		g.first = append(g.first, int32(len(g.targets)))
		steps = g.Steps(steps[:0], &s)
		moves := false
		for i := range steps {
			step := &steps[i]
			report.Steps++
			if step.Broken != "" {
				report.Trace, report.Broken = g.toBroken(n, step.Broken)
				break
			}
			next := g.Canonical(step.Next)
			hash := g.hash(next)
			number, known := g.numbers[hash]
			if !known {
				number = g.add(hash, &next, n)
				queue = append(queue, next)
			}
			moves = moves || step.AtOnce
			if step.Counts != 0 {
				g.targets, g.counts = append(g.targets, number), append(g.counts, step.Counts)
			}
		}
		if report.Broken == "" && !moves {
			if report.Broken = g.Idle(&s); report.Broken != "" {
				report.Trace = g.words(n)
			}
		}
	}
	g.first = append(g.first, int32(len(g.targets)))
	report.States = len(g.parents)
	return report
}

// stuck returns the first state from which no way leads to the end by the steps that count for a goal, -1 if there is none.
func (g *graph) stuck(goal uint8) int32 {
	leads := slices.Clone(g.final)
	for again := true; again; {
		again = false
		for n := int32(len(leads)) - 1; n >= 0; n-- { // most steps lead to a state that was found later
			for e := g.first[n]; e < g.first[n+1] && !leads[n]; e++ {
				if g.counts[e]&goal != 0 && leads[g.targets[e]] {
					leads[n], again = true, true
				}
			}
		}
	}
	return int32(slices.Index(leads, false))
}

// hash identifies a state: no two of some million have the same 128 bits.
func (g *graph) hash(s State) [2]uint64 {
	return [2]uint64{maphash.Comparable(g.seeds[0], s), maphash.Comparable(g.seeds[1], s)}
}

// add gives a state its number.
func (g *graph) add(hash [2]uint64, s *State, parent int32) int32 {
	number := int32(len(g.parents))
	g.numbers[hash] = number
	g.parents, g.final = append(g.parents, parent), append(g.final, g.Final(s))
	return number
}

// trace returns a shortest way to state number n, and that state. The way has the states themselves
// and not those that stand for them, so that everything keeps its name.
func (g *graph) trace(n int32) (steps []Transition, s State) {
	var on []int32
	for ; n > 0; n = g.parents[n] {
		on = append(on, n)
	}
	s = g.Start()
	for _, number := range slices.Backward(on) {
		for _, step := range g.Steps(nil, &s) {
			if n, known := g.numbers[g.hash(g.Canonical(step.Next))]; known && n == number {
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
		words = append(words, step.Move.String())
	}
	return words
}

// toBroken returns a shortest way to a step from state number n that breaks a property, and the
// property. If no step of the state itself does so, the model does not take care of what stands for it.
func (g *graph) toBroken(n int32, property string) (words []string, broken string) {
	_, s := g.trace(n)
	words = g.words(n)
	for _, step := range g.Steps(nil, &s) {
		if step.Broken != "" {
			return append(words, step.Move.String()), step.Broken
		}
	}
	return words, "representative: only that of the state breaks this: " + property
}
