package model

import (
	"cmp"
	"slices"
)

// tidy forgets what cannot change anything any more.
func (m *Model) tidy(s *State) {
	for n := range m.Tasks {
		t := &s.Tasks[n]
		if t.Attempt != 0 && t.Status != Active && !s.knows(t.Attempt) {
			t.Attempt = 0
		}
	}
	for i := range s.Attempts {
		a := &s.Attempts[i]
		again := s.Behind || s.Servers[a.Server].Gap || s.Failed && s.Records[a.Server] == Forgotten // its outcome may be sent again
		if a.Phase == Settled && !again && !m.keeps(&s.Redis, a.Task, token(i)) {
			a.Phase = Gone
		}
		if a.Phase != Gone {
			continue
		}
		*a = a.gone()
		name := token(i)
		switch known := s.refers(&s.Redis, name) || s.Behind && s.refers(&s.Copied, name); {
		case s.carries(i):
		case known:
			a.Kind, a.Server = NoKind, 0
		default:
			*a = Attempt{}
		}
	}
	s.Unfair = false
	for _, redis := range []*Redis{&s.Redis, &s.Copied} {
		for q := range redis.Queues {
			for r, score := range redis.Queues[q].Ready {
				if !m.Turns || !score.due() {
					redis.Queues[q].Since[r] = 0
				}
			}
		}
	}
}

// knows reports whether a process may still name an attempt.
func (s *State) knows(name uint8) bool {
	i := int(name - 1)
	return s.Attempts[i].Phase != Gone && s.Attempts[i].Phase != None || s.carries(i)
}

// carries reports whether a late copy has an outcome of the attempt.
func (s *State) carries(slot int) bool {
	for n := range s.Servers {
		if s.Servers[n].Stray.Kinds[slot] != NoKind || s.Servers[n].Sent.Kinds[slot] != NoKind {
			return true
		}
	}
	return false
}

// refers reports whether Redis knows an attempt, or it is the first of a batch.
func (s *State) refers(r *Redis, name uint8) bool {
	return slices.ContainsFunc(r.Locks[:], func(l Lock) bool { return l.Token == name }) ||
		slices.ContainsFunc(r.Tasks[:], func(t Task) bool { return t.Attempt == name }) ||
		slices.ContainsFunc(s.Attempts[:], func(a Attempt) bool { return a.First == name })
}

// Canonical returns the state that stands for s, and for all states that differ from s only in what
// changes nothing. It names attempts, tickets and scores anew.
func (m *Model) Canonical(s State) State {
	s.sortAttempts()
	m.renumberTickets(&s)
	renumberScores(&s.Redis)
	if s.Behind {
		renumberScores(&s.Copied)
	}
	return s
}

// sortAttempts orders the attempts by what they are.
func (s *State) sortAttempts() {
	type numbered struct {
		Attempt
		was int
	}
	var sorted [maxAttempts]numbered
	for i, a := range s.Attempts {
		sorted[i] = numbered{a, i}
	}
	slices.SortStableFunc(sorted[:], func(a, b numbered) int { return cmp.Compare(s.key(b.was), s.key(a.was)) })
	var names [int(Foreign) + 1]uint8
	names[locker], names[Foreign] = locker, Foreign
	for i, a := range sorted {
		s.Attempts[i] = a.Attempt
		names[token(a.was)] = token(i)
	}
	for i := range s.Attempts {
		s.Attempts[i].First = names[s.Attempts[i].First]
	}
	for _, redis := range []*Redis{&s.Redis, &s.Copied} {
		for r := range redis.Locks {
			redis.Locks[r].Token = names[redis.Locks[r].Token]
		}
		for n := range redis.Tasks {
			redis.Tasks[n].Attempt = names[redis.Tasks[n].Attempt]
		}
	}
	for n := range s.Servers {
		for _, sent := range []*Copy{&s.Servers[n].Sent, &s.Servers[n].Stray} {
			before := sent.Kinds
			for i, a := range sorted {
				sent.Kinds[i] = before[a.was]
			}
		}
	}
}

// key orders attempts; those that are none come last.
func (s *State) key(slot int) (key uint64) {
	a := &s.Attempts[slot]
	name := token(slot)
	key = uint64(a.Task)<<8 | uint64(a.Phase)
	bit := func(set bool) {
		if key <<= 1; set {
			key++
		}
	}
	bit(a.First != free)
	bit(a.Locked)
	bit(a.Lost)
	bit(a.Untrusted)
	bit(a.Disowned)
	for _, r := range []*Redis{&s.Redis, &s.Copied} {
		bit(slices.ContainsFunc(r.Locks[:], func(l Lock) bool { return l.Token == name }))
		bit(slices.ContainsFunc(r.Tasks[:], func(t Task) bool { return t.Attempt == name }))
	}
	bit(a.Server > 0)
	key = key<<8 | uint64(a.Kind)<<4 | uint64(a.Result)
	for n := range s.Servers {
		bit(s.Servers[n].Stray.Kinds[slot] != NoKind)
	}
	return key
}

// renumberTickets names the tickets of each resource anew in their order. That of a set has one name in all of its lines.
func (m *Model) renumberTickets(s *State) {
	var names [MaxResources][64]uint8
	var shared [64]bool
	m.tickets(s, func(locks []uint8, ticket *uint8) {
		for _, r := range locks {
			names[r][*ticket] = 1
		}
		shared[*ticket] = shared[*ticket] || len(locks) > 1
	})
	var last [MaxResources]uint8
	for ticket := 1; ticket < len(shared); ticket++ {
		if shared[ticket] {
			last = [...]uint8{max(last[0], last[1]), max(last[0], last[1])}
		}
		for r := range last {
			last[r] += names[r][ticket]
			names[r][ticket] = last[r]
		}
	}
	m.tickets(s, func(locks []uint8, ticket *uint8) {
		if *ticket > 0 && len(locks) > 0 {
			*ticket = names[locks[0]][*ticket]
		}
	})
}

// tickets calls do with each ticket, and with the locks whose lines it counts in.
func (m *Model) tickets(s *State, do func(locks []uint8, ticket *uint8)) {
	for i, redis := range []*Redis{&s.Redis, &s.Copied} {
		if i > 0 && !s.Behind {
			break
		}
		for n := range m.Tasks {
			t, own := &redis.Tasks[n], m.Tasks[n].Locks()
			do(own, &t.Ticket)
			for _, r := range own {
				do(locks[r], &t.Line[r])
			}
		}
		for r := range redis.Locks {
			for q := range redis.Locks[r].Lines {
				do(locks[r], &redis.Locks[r].Lines[q])
			}
		}
	}
}

// renumberScores names the scores that are due anew in their order.
func renumberScores(redis *Redis) {
	for q := range redis.Queues {
		queue := &redis.Queues[q]
		var dues, sinces [MaxResources]uint8
		due, since := dues[:0], sinces[:0]
		for r, score := range queue.Ready {
			if score.due() {
				due, since = append(due, uint8(score)), append(since, queue.Since[r])
			}
		}
		slices.Sort(due)
		slices.Sort(since)
		for r, score := range queue.Ready {
			if score.due() {
				queue.Ready[r] = Score(slices.Index(due, uint8(score)) + 1)
				queue.Since[r] = min(queue.Since[r], uint8(slices.Index(since, queue.Since[r])+1))
			}
		}
	}
}
