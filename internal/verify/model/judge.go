package model

import "slices"

// The properties of the whole graph. Both leave out faults, and the timers of tasks in line:
// they ask what comes when no more go wrong than have, within seconds.

// An actor is who makes a move, or what: fairness is to each of them. A run is
// fair if no actor that could move at any time from some point on stands still
// for ever.
func actor(s *State, m Move) uint8 {
	const perTask, perResource = 8, 4
	const others = MaxTasks*perTask + MaxResources*perResource
	task, resource := uint8(m.Task-1)*perTask, MaxTasks*perTask+m.Resource*perResource
	switch m.Kind {
	case Acquire, Park, Write, Release, Acknowledge, Finish, PutBack, GiveBack, Rejoin:
		return task + flags(s.Attempts[m.Slot].Latest)
	case Promote, Tell, Drop, SetAside:
		return task + 2 + flags(s.Calls[m.Slot].Standing)
	case Timer:
		return task + 4
	case RecoverByAsynq:
		return task + 5
	case Find:
		return task + 6
	case Miss, Enlist:
		return task + 7
	case Lapse:
		return resource
	case Expire:
		return resource + 1
	case FreeForeign:
		return resource + 2
	case Sweep:
		return resource + 3
	case Dequeue:
		return others
	case Recover, HandOn:
		return others + 1
	case Resume:
		return others + 2
	case Restore:
		return others + 3
	default:
		return nobody
	}
}

const nobody = 63

func (g *graph) judge(report *Report) {
	if n := g.hopeless(); n >= 0 {
		report.Broken = "hope: from here not all tasks can finish any more"
		report.Trace = g.words(n)
		return
	}
	if g.Symmetric {
		return
	}
	if n := g.treadmill(); n >= 0 {
		report.Broken = "progress: from here steps can go on for ever, fairly, and no task finishes"
		report.Trace = g.words(n)
	}
}

// hopeless returns the first state from which no final one can be reached, -1 if
// there is none.
func (g *graph) hopeless() int32 {
	first := make([]int32, len(g.parents)+1)
	for _, to := range g.targets {
		first[to+1]++
	}
	for n := range g.parents {
		first[n+1] += first[n]
	}
	fill, sources := slices.Clone(first), make([]int32, len(g.targets))
	for n := range int32(len(g.parents)) {
		for _, to := range g.targets[g.first[n]:g.first[n+1]] {
			sources[fill[to]] = n
			fill[to]++
		}
	}
	reached := slices.Clone(g.final)
	var stack []int32
	for n, final := range g.final {
		if final {
			stack = append(stack, int32(n))
		}
	}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, from := range sources[first[n]:first[n+1]] {
			if !reached[from] {
				reached[from] = true
				stack = append(stack, from)
			}
		}
	}
	return int32(slices.Index(reached, false))
}

// treadmill returns a state of a strongly connected component in which a fair
// run can stay for ever, -1 if there is none. It can if each actor now and
// then cannot move there, or moves within. Steps that finish a task
// lead out of a component, as nothing but a fault brings one back.
func (g *graph) treadmill() int32 {
	component := g.components()
	count := slices.Max(component) + 1
	within, always := make([]uint64, count), make([]uint64, count)
	some := make([]int32, count)
	for c := range always {
		always[c] = ^uint64(0) &^ (1 << nobody)
	}
	for n := range int32(len(g.parents)) {
		c, possible := component[n], uint64(0)
		for e := g.first[n]; e < g.first[n+1]; e++ {
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

// components returns the strongly connected component of each state, by Tarjan's
// algorithm with a stack of its own.
func (g *graph) components() []int32 {
	size := len(g.parents)
	component, order, low := make([]int32, size), make([]int32, size), make([]int32, size)
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
				to := g.targets[f.next]
				f.next++
				if order[to] == 0 {
					enter(to)
				} else if component[to] < 0 {
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
			for {
				member := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				component[member] = found
				if member == n {
					break
				}
			}
			found++
		}
	}
	return component
}
