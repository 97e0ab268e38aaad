package model

import (
	"cmp"
	"math"
	"slices"
)

// canonical returns the representative of all states that differ from s only in names. These are
// names of the tasks of one resource, of workers, tickets and fences.
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
	s.sortWakers()
	return s
}

// prune removes attempts and wakers that cannot change anything any more. By a mistake they could.
func (m *Model) prune(s *State) {
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if a.Task != 0 && !a.Latest && !a.Phase.matters() && m.Mistake != AckUnchecked {
			s.forget(i)
		}
	}
	for i := range s.Wakers {
		c := &s.Wakers[i]
		if c.Task == 0 || c.Standing {
			continue
		}
		t := s.task(c.Task)
		over := c.Stage == Leaving || c.Stage == Skipping || c.Stage == Confirming && m.Mistake != ConfirmUnchecked
		if over || c.Stage != Moving && c.Stage != Confirming && (t.In == Done || t.In == Deleted) {
			*c = Waker{}
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
	case Taken, Holding, Wrote, Requeued, Regained:
		return true
	default:
		return false
	}
}

// over reports whether nothing that matters can happen any more on resource r.
func (m *Model) over(s *State, r uint8) bool {
	on := func(id ID) bool { return id != 0 && m.Resource(id) == r }
	for n := range m.Resources {
		if in := s.Tasks[n].In; m.Resources[n] == r && in != Done && in != Deleted {
			return false
		}
	}
	return !slices.ContainsFunc(s.Attempts[:], func(a Attempt) bool { return on(a.Task) }) &&
		!slices.ContainsFunc(s.Wakers[:], func(c Waker) bool { return on(c.Task) }) && !on(s.Recovery.Task) && !on(s.Loss.Task)
}

// forgetTickets removes the tickets that no step will compare.
func (m *Model) forgetTickets(s *State) {
	var asks [MaxTasks + 1]bool // an attempt of the task may look whether a waker came
	for i := range s.Attempts {
		a := &s.Attempts[i]
		a.Rejoins = a.Rejoins && a.Phase != Busy && a.Phase < Succeeded     // there is no release to come
		requeues := s.Faults > 0 && a.Latest && s.task(a.Task).In == Active // a shutdown may
		if a.Phase != Taken && !a.Prefetched && !a.Rejoins && !requeues {
			a.Came = 0
		}
		if a.Phase != Busy {
			a.Ticket = 0
		}
		asks[a.Task] = true
	}
	for i := range s.Wakers {
		if c := &s.Wakers[i]; c.Stage != Waking && c.Stage != Again && c.Stage != Moving {
			c.Ticket = 0
		}
	}
	for n := range m.Resources {
		if t := &s.Tasks[n]; t.In != Active || !asks[n+1] {
			t.Woken = false
		}
	}
}

// renumberTickets names a resource's tickets anew in their order.
func (m *Model) renumberTickets(s *State, r uint8) {
	var all [MaxTasks*2 + maxAttempts*2 + maxWakers + 1]*uint8
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
		rename(s.Locks[r].Waiters[:])
		s.Locks[r].For = name[s.Locks[r].For]
	}
	for i := range s.Attempts {
		s.Attempts[i].Task = name[s.Attempts[i].Task]
	}
	for i := range s.Wakers {
		s.Wakers[i].Task = name[s.Wakers[i].Task]
	}
	s.Recovery.Task, s.Loss.Task = name[s.Recovery.Task], name[s.Loss.Task]
}

// doing is a number for what a task is doing. If two tasks have the same number, a state may have
// several representatives, which only costs time.
func (m *Model) doing(s *State, id ID) uint64 {
	t, l := s.task(id), &s.Locks[m.Resource(id)]
	key := uint64(t.In)<<8 | uint64(index(s.Queue[:], id)+1)<<4 | uint64(index(l.Waiters[:], id)+1)
	if l.For == id {
		key |= 1 << 12
	}
	if s.Recovery.Task == id {
		key |= 1 << 13
	}
	if s.Loss.Task == id {
		key |= 1 << 20
	}
	key |= uint64(t.Ticket)<<14 | uint64(flags(t.Woken, t.Skipped))<<18 | uint64(t.Effects)<<21
	var more uint64
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Task == id {
			more += uint64(a.Phase)*16 + uint64(flags(a.Latest, a.Stalled, a.Off, a.Prefetched)) + 4096*uint64(a.Came)
		}
	}
	for i := range s.Wakers {
		if c := &s.Wakers[i]; c.Task == id {
			more += 256 * (uint64(c.Stage)*2 + uint64(flags(c.Standing)))
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
	slices.SortStableFunc(sorted[:], func(a, b numbered) int { return cmp.Compare(a.key(), b.key()) })
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

// key orders attempts; those that are none come last.
func (a *Attempt) key() uint64 {
	return pack(uint8(a.Task)-1, flags(a.Latest, a.Stalled, a.Off, a.Deprived, a.Rejoins, a.Prefetched), uint8(a.Phase), a.Fence, a.Came, a.Ticket)
}

// key orders wakers; those that are none come last.
func (c *Waker) key(worker uint8) uint64 {
	return pack(-uint8(c.Task)-1, c.Ticket, uint8(c.Stage), flags(c.Standing), worker)
}

// pack makes one number of several, of which the first counts most.
func pack(parts ...uint8) (key uint64) {
	for _, part := range parts {
		key = key<<8 | uint64(part)
	}
	return key
}

func (s *State) sortWakers() {
	slices.SortFunc(s.Wakers[:], func(a, b Waker) int { return cmp.Compare(a.key(a.Worker), b.key(b.Worker)) })
}

// swapWorkers calls the first worker that does something 0.
func (s *State) swapWorkers() {
	var workers []*uint8
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Task != 0 {
			workers = append(workers, &a.Worker)
		}
	}
	if len(workers) == 0 { // only wakers: in their order, of whatever worker
		slices.SortFunc(s.Wakers[:], func(a, b Waker) int { return cmp.Compare(a.key(0), b.key(0)) })
	}
	for i := range s.Wakers {
		if c := &s.Wakers[i]; c.Task != 0 && c.Worker != elected {
			workers = append(workers, &c.Worker)
		}
	}
	if len(workers) > 0 && *workers[0] == 1 {
		for _, w := range workers {
			*w = 1 - *w
		}
	}
}
