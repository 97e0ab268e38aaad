package model

import (
	"bytes"
	"cmp"
	"math"
	"slices"
)

// canonical returns the representative of all states that differ from s by
// nothing that matters: what tasks of one resource, workers, tickets and fences
// are called.
func (m *Model) canonical(s State) State {
	m.forgetTickets(&s)
	for r := range uint8(MaxResources) {
		m.renumberTickets(&s, r)
		m.renumberFences(&s, r)
	}
	if m.Symmetric {
		m.sortTasks(&s)
	}
	s.sortAttempts()
	s.sortCalls()
	return s
}

// prune takes out what is left of calls and attempts that cannot change anything
// any more, as they could by a mistake.
func (m *Model) prune(s *State) {
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if a.Task != 0 && !a.Latest && !a.Phase.matters() && m.Mistake != AckUnchecked {
			s.forget(i)
		}
	}
	for i := range s.Calls {
		c := &s.Calls[i]
		if c.Task == 0 || c.Standing {
			continue
		}
		t := s.task(c.Task)
		over := c.Turn == Dropping || c.Turn == Setting || c.Turn == Telling && m.Mistake != CalledUnchecked
		if over || c.Turn != Moving && c.Turn != Telling && (t.In == Done || t.In == Deleted) {
			*c = Call{}
		}
	}
	for r := range s.Locks {
		if m.over(s, uint8(r)) {
			s.Locks[r] = Lock{}
			for n := range m.Resources {
				if m.Resources[n] == uint8(r) {
					s.Tasks[n] = Task{In: Deleted}
				}
			}
		}
	}
}

// matters reports whether a superseded attempt in this phase may still change something.
func (p Phase) matters() bool {
	switch p {
	case Taken, Holding, Wrote, Unclaimed, Regained:
		return true
	default:
		return false
	}
}

// over reports whether nothing can happen any more on resource r that matters.
func (m *Model) over(s *State, r uint8) bool {
	on := func(id ID) bool { return id != 0 && m.Resource(id) == r }
	for n := range m.Resources {
		if in := s.Tasks[n].In; m.Resources[n] == r && in != Done && in != Deleted {
			return false
		}
	}
	return !slices.ContainsFunc(s.Attempts[:], func(a Attempt) bool { return on(a.Task) }) &&
		!slices.ContainsFunc(s.Calls[:], func(c Call) bool { return on(c.Task) }) && !on(s.Recovery.Task) && !on(s.Loss.Task)
}

// forgetTickets takes out the tickets that none will be compared with.
func (m *Model) forgetTickets(s *State) {
	var asks [MaxTasks + 1]bool // an attempt of the task may look whether it was called
	for i := range s.Attempts {
		a := &s.Attempts[i]
		a.Back = a.Back && a.Phase != Refused && a.Phase < Succeeded        // there is no release to come
		putsBack := s.Faults > 0 && a.Latest && s.task(a.Task).In == Active // a shutdown may
		if a.Phase != Taken && !a.Ahead && !a.Back && !putsBack {
			a.Came = 0
		}
		if a.Phase != Refused {
			a.Ticket = 0
		}
		asks[a.Task] = true
	}
	for i := range s.Calls {
		if c := &s.Calls[i]; c.Turn != Calling && c.Turn != Again && c.Turn != Moving {
			c.Ticket = 0
		}
	}
	for n := range m.Resources {
		if t := &s.Tasks[n]; t.In != Active || !asks[n+1] {
			t.Called = false
		}
	}
}

// renumberTickets names a resource's tickets anew in their order.
func (m *Model) renumberTickets(s *State, r uint8) {
	var all [MaxTasks*2 + maxAttempts*2 + maxCalls + 1]*uint8
	var used, names [math.MaxUint8 + 1]uint8
	tickets := m.tickets(all[:0], s, r)
	for _, ticket := range tickets {
		used[*ticket] = 1
	}
	last := uint8(0)
	for ticket := 1; ticket < len(used); ticket++ {
		last += used[ticket]
		names[ticket] = last
	}
	for _, ticket := range tickets {
		*ticket = names[*ticket]
	}
}

// renumberFences keeps of a resource's fences only which is higher.
func (m *Model) renumberFences(s *State, r uint8) {
	l := &s.Locks[r]
	fences := [maxAttempts + 2]*uint8{&l.Last, &l.Seen}
	n := 2
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Task != 0 && a.Fence != 0 && m.Resource(a.Task) == r {
			if a.Phase != Holding {
				a.Fence = 0 // it will not write
				continue
			}
			fences[n] = &a.Fence
			n++
		}
	}
	slices.SortFunc(fences[:n], func(a, b *uint8) int { return cmp.Compare(*a, *b) })
	rank, before := uint8(0), uint8(0)
	for _, f := range fences[:n] {
		if *f > before {
			rank, before = rank+1, *f
		}
		*f = min(*f, rank)
	}
}

// sortTasks orders the tasks of each resource by what they are doing.
func (m *Model) sortTasks(s *State) {
	var keys [MaxTasks + 1]uint64
	var order [MaxTasks]ID
	for n := range m.Resources {
		id := ID(n + 1)
		order[n], keys[id] = id, m.doing(s, id)
	}
	tasks := order[:len(m.Resources)]
	slices.SortStableFunc(tasks, func(a, b ID) int {
		return cmp.Or(cmp.Compare(m.Resource(a), m.Resource(b)), cmp.Compare(keys[a], keys[b]))
	})
	var name [MaxTasks + 1]ID
	before := s.Tasks
	for n, id := range tasks {
		name[id] = ID(n + 1)
		s.Tasks[n] = before[id-1]
	}
	rename := func(ids []ID) {
		for i := range ids {
			ids[i] = name[ids[i]]
		}
	}
	rename(s.Queue[:])
	for r := range s.Locks {
		rename(s.Locks[r].Line[:])
		s.Locks[r].For = name[s.Locks[r].For]
	}
	for i := range s.Attempts {
		s.Attempts[i].Task = name[s.Attempts[i].Task]
	}
	for i := range s.Calls {
		s.Calls[i].Task = name[s.Calls[i].Task]
	}
	s.Recovery.Task, s.Loss.Task = name[s.Recovery.Task], name[s.Loss.Task]
}

// doing is a number for what a task is doing. Where two tasks have the same, a
// state may have several representatives, which costs time, no more.
func (m *Model) doing(s *State, id ID) uint64 {
	t, l := s.task(id), &s.Locks[m.Resource(id)]
	key := uint64(t.In)<<8 | uint64(index(s.Queue[:], id)+1)<<4 | uint64(index(l.Line[:], id)+1)
	if l.For == id {
		key |= 1 << 12
	}
	if s.Recovery.Task == id {
		key |= 1 << 13
	}
	if s.Loss.Task == id {
		key |= 1 << 20
	}
	key |= uint64(t.Ticket)<<14 | uint64(flags(t.Called, t.Aside))<<18 | uint64(t.Effects)<<21
	var more uint64
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Task == id {
			more += uint64(a.Phase)*16 + uint64(flags(a.Latest, a.Stalled, a.Off, a.Ahead)) + 4096*uint64(a.Came)
		}
	}
	for i := range s.Calls {
		if c := &s.Calls[i]; c.Task == id {
			more += 256 * (uint64(c.Turn)*2 + uint64(flags(c.Standing)))
		}
	}
	return key | more<<24
}

func flags(bits ...bool) (n uint8) {
	for _, bit := range bits {
		n <<= 1
		if bit {
			n |= 1
		}
	}
	return n
}

// sortAttempts orders the attempts by task, and the workers by what they run.
func (s *State) sortAttempts() {
	type numbered struct {
		Attempt
		was uint8
	}
	var sorted [maxAttempts]numbered
	for i, a := range s.Attempts {
		sorted[i] = numbered{a, uint8(i + 1)}
	}
	slices.SortStableFunc(sorted[:], func(a, b numbered) int {
		if a.Task == 0 || b.Task == 0 {
			return cmp.Compare(flags(a.Task == 0), flags(b.Task == 0))
		}
		return cmp.Or(
			cmp.Compare(a.Task, b.Task),
			cmp.Compare(
				flags(a.Latest, a.Stalled, a.Off, a.Deprived, a.Back, a.Ahead), flags(b.Latest, b.Stalled, b.Off, b.Deprived, b.Back, b.Ahead)),
			cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Fence, b.Fence), cmp.Compare(a.Came, b.Came), cmp.Compare(a.Ticket, b.Ticket),
		)
	})
	var by [maxAttempts + 1]uint8
	for i, a := range sorted {
		s.Attempts[i] = a.Attempt
		by[a.was] = uint8(i + 1)
	}
	for r := range s.Locks {
		if l := &s.Locks[r]; l.Value == Held && l.By != ByRecovery {
			l.By = by[l.By]
		}
	}
	s.swapWorkers()
}

// swapWorkers calls the first worker that does something 0.
func (s *State) swapWorkers() {
	first := -1
	seen := func(task ID, w uint8) {
		if task != 0 && w != elected && first < 0 {
			first = int(w)
		}
	}
	for i := range s.Attempts {
		seen(s.Attempts[i].Task, s.Attempts[i].Worker)
	}
	if first < 0 {
		// Only calls: in their order, whoever makes them.
		slices.SortFunc(s.Calls[:], func(a, b Call) int { return bytes.Compare(a.key(false), b.key(false)) })
	}
	for i := range s.Calls {
		seen(s.Calls[i].Task, s.Calls[i].Worker)
	}
	if first != 1 {
		return
	}
	swap := func(task ID, w *uint8) {
		if task != 0 && *w != elected {
			*w = 1 - *w
		}
	}
	for i := range s.Attempts {
		swap(s.Attempts[i].Task, &s.Attempts[i].Worker)
	}
	for i := range s.Calls {
		swap(s.Calls[i].Task, &s.Calls[i].Worker)
	}
}

func (c Call) key(worker bool) []byte {
	w := c.Worker
	if !worker {
		w = 0
	}
	return []byte{255 - uint8(c.Task), c.Ticket, uint8(c.Turn), flags(c.Standing), w}
}

func (s *State) sortCalls() {
	slices.SortFunc(s.Calls[:], func(a, b Call) int { return bytes.Compare(a.key(true), b.key(true)) })
}
