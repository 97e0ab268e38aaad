package model

import (
	"hash/maphash"
	"slices"
	"time"
)

// A graph has all states by number, in the order of their discovery, and the steps between them
// that count.
type graph struct {
	*Model

	goals   []Goal
	seeds   [2]maphash.Seed
	numbers map[[2]uint64]int32
	parents []int32
	reached []uint8 // the goals
	first   []int32 // the index of the first step of each state
	targets []int32
	counts  []uint8
	actors  []uint8
}

// Explore visits every state that can be reached, and checks all properties up to the first one that is
// broken.
func (m *Model) Explore() Report {
	began, g := time.Now(), newGraph(m)
	report := g.build()
	for i := 0; i < len(g.goals) && report.Broken == ""; i++ {
		g.judge(&report, i)
	}
	report.Took = time.Since(began)
	return report
}

func newGraph(m *Model) *graph {
	return &graph{
		Model: m, goals: m.Goals(), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, numbers: map[[2]uint64]int32{},
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
				g.targets = append(g.targets, number)
				g.counts, g.actors = append(g.counts, step.Counts), append(g.actors, step.Actor)
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

// hash identifies a state: no two of some million have the same 128 bits.
func (g *graph) hash(s State) [2]uint64 {
	return [2]uint64{maphash.Comparable(g.seeds[0], s), maphash.Comparable(g.seeds[1], s)}
}

// add gives a state its number.
func (g *graph) add(hash [2]uint64, s *State, parent int32) int32 {
	number := int32(len(g.parents))
	g.numbers[hash] = number
	var reached uint8
	for i, goal := range g.goals {
		if goal.Reached(s) {
			reached |= 1 << i
		}
	}
	g.parents, g.reached = append(g.parents, parent), append(g.reached, reached)
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
