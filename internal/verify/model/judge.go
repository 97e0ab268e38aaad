package model

import "slices"

// judge looks for a state without a way to a goal, and for a run without end.
func (g *graph) judge(report *Report, goal int) {
	bit := uint8(1) << goal
	component, hope := g.components(bit)
	if n := slices.IndexFunc(component, func(c int32) bool { return !hope[c] }); n >= 0 {
		report.Broken, report.Trace = g.goals[goal].Property, g.words(int32(n))
		return
	}
	if fair := g.goals[goal].Fair; fair != "" {
		if n := g.treadmill(bit, component); n >= 0 {
			report.Broken, report.Trace = fair, g.words(n)
		}
	}
}

// treadmill returns a state of a strongly connected component in which a fair run can stay for
// ever, -1 if there is none. That is so if each actor now and then cannot move there, or moves
// within.
func (g *graph) treadmill(bit uint8, component []int32) int32 {
	count := slices.Max(component) + 1
	within, always := make([]uint64, count), make([]uint64, count)
	some := make([]int32, count)
	for c := range always {
		always[c] = ^uint64(0) &^ (1 << nobody)
	}
	for n := range int32(len(g.parents)) {
		c, possible := component[n], uint64(0)
		for e := g.first[n]; e < g.first[n+1]; e++ {
			if g.counts[e]&bit == 0 {
				continue
			}
			possible |= 1 << g.actors[e]
			if to := g.targets[e]; to != n && component[to] == c {
				within[c] |= 1 << g.actors[e]
			}
		}
		always[c] &= possible
		some[c] = n
	}
	for c := range within {
		if within[c] != 0 && always[c]&^within[c] == 0 {
			return some[c]
		}
	}
	return -1
}

// components returns the strongly connected component of each state, and of each component whether
// it leads to the goal. Tarjan's algorithm, here with a stack of its own, finds a component after
// all to which that component leads.
func (g *graph) components(bit uint8) (component []int32, hope []bool) {
	size := len(g.parents)
	component = make([]int32, size)
	order, low := make([]int32, size), make([]int32, size)
	for n := range component {
		component[n] = -1
	}
	var stack []int32
	type frame struct{ n, next int32 }
	var path []frame
	seen, found := int32(0), int32(0)
	enter := func(n int32) {
		seen++
		order[n], low[n] = seen, seen
		stack = append(stack, n)
		path = append(path, frame{n, g.first[n]})
	}
	for root := range int32(size) {
		if order[root] == 0 {
			enter(root)
		}
		for len(path) > 0 {
			f := &path[len(path)-1]
			if f.next < g.first[f.n+1] {
				e := f.next
				f.next++
				to := g.targets[e]
				switch {
				case g.counts[e]&bit == 0:
				case order[to] == 0:
					enter(to)
				case component[to] < 0:
					low[f.n] = min(low[f.n], order[to])
				}
				continue
			}
			n := f.n
			path = path[:len(path)-1]
			if len(path) > 0 {
				from := path[len(path)-1].n
				low[from] = min(low[from], low[n])
			}
			if low[n] != order[n] {
				continue
			}
			first := len(stack) - 1
			for ; stack[first] != n; first-- {
			}
			hope = append(hope, slices.ContainsFunc(stack[first:], func(n int32) bool { return g.hopeful(n, bit, component, hope) }))
			for _, member := range stack[first:] {
				component[member] = found
			}
			stack = stack[:first]
			found++
		}
	}
	return component, hope
}

// hopeful reports whether a state is at the goal, or leads to a component that leads there.
func (g *graph) hopeful(n int32, bit uint8, component []int32, hope []bool) bool {
	if g.reached[n]&bit != 0 {
		return true
	}
	for e := g.first[n]; e < g.first[n+1]; e++ {
		if c := component[g.targets[e]]; g.counts[e]&bit != 0 && c >= 0 && hope[c] {
			return true
		}
	}
	return false
}
