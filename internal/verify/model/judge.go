package model

import "slices"

// The properties of the whole graph. Both leave out further faults, and the fallback times of
// waiters. They ask what comes within seconds when nothing more goes wrong.

// actor returns who or what makes a move. A run is fair if no actor stands still for ever that
// could move at any time from some point on.
func actor(s *State, m Move) uint8 {
	const perTask, perResource = 8, 4
	const others = MaxTasks*perTask + MaxResources*perResource
	task, resource := uint8(m.Task-1)*perTask, MaxTasks*perTask+m.Resource*perResource
	switch m.Kind {
	case Acquire, Park, Write, Release, Acknowledge, Finish, Requeue, GiveBack, Rejoin:
		return task + flags(s.Attempts[m.Slot].Latest)
	case Wake, Confirm, Leave, Skip:
		return task + 2 + flags(s.Wakers[m.Slot].Standing)
	case Timer:
		return task + 4
	case RecoverByAsynq:
		return task + 5
	case Find:
		return task + 6
	case Miss, Enlist:
		return task + 7
	case ExpireReservation:
		return resource
	case Expire:
		return resource + 1
	case FreeForeign:
		return resource + 2
	case Sweep:
		return resource + 3
	case Dequeue:
		return others
	case Recover, HandOff:
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
	component, hope := g.components()
	if n := slices.IndexFunc(component, func(c int32) bool { return !hope[c] }); n >= 0 {
		report.Broken = "hope: from here not all tasks can finish any more"
		report.Trace = g.words(int32(n))
		return
	}
	if g.Symmetric {
		return
	}
	if n := g.treadmill(component); n >= 0 {
		report.Broken = "progress: from here steps can go on for ever, fairly, and no task finishes"
		report.Trace = g.words(n)
	}
}

// treadmill returns a state of a strongly connected component in which a fair run can stay for
// ever, -1 if there is none. That is so if each actor now and then cannot move there, or moves
// within. Steps that finish a task leave a component, as only a fault brings a task back.
func (g *graph) treadmill(component []int32) int32 {
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

// components returns the strongly connected component of each state, and of each component whether
// it leads to a final state. Tarjan's algorithm, here with a stack of its own, finds a component
// after all to which that component leads.
func (g *graph) components() (component []int32, hope []bool) {
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
			first := len(stack) - 1
			for ; stack[first] != n; first-- {
			}
			hope = append(hope, slices.ContainsFunc(stack[first:], func(n int32) bool { return g.hopeful(n, component, hope) }))
			for _, member := range stack[first:] {
				component[member] = found
			}
			stack = stack[:first]
			found++
		}
	}
	return component, hope
}

// hopeful reports whether a state is final, or leads to a component that leads to a final state.
func (g *graph) hopeful(n int32, component []int32, hope []bool) bool {
	return g.final[n] || slices.ContainsFunc(g.targets[g.first[n]:g.first[n+1]], func(to int32) bool {
		return component[to] >= 0 && hope[component[to]]
	})
}
