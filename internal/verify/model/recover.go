package model

// recovered puts the crashed tasks of a queue back when a step first comes there, and reports whether it did so with all.
func (x *script) recovered(q uint8) bool {
	if !x.visited[q] {
		x.visited[q] = true
		x.done[q] = x.Mistake == RecoverLast || x.recover(q)
	}
	return x.done[q]
}

// recover puts the crashed tasks of a queue back into their lines. It reports whether it did so with all.
func (x *script) recover(q uint8) (all bool) {
	s := x.s
	count := 0
	for n := range x.Tasks {
		t := &s.Tasks[n]
		if t.Lease != Over || x.Tasks[n].Queue != q {
			continue
		}
		holder := s.Holder(t.Attempt)
		if x.Mistake == RecoversMembers {
			holder = t.Attempt
		}
		alive := t.Known && x.keeps(&s.Redis, ID(n+1), holder)
		if t.Status == Active && alive && x.Mistake != RecoveryByLease {
			continue // whoever holds the lock may trust it
		}
		if count == x.most(maxRecovered) {
			x.more = true
			return x.Mistake == RecoveryBounded
		}
		count++
		x.item(func() { x.crash(ID(n + 1)) })
	}
	return true
}

// crash puts one crashed task back. Of a task that is somewhere else already only the lease is left.
func (x *script) crash(id ID) {
	t := x.s.task(id)
	if t.Status == Active || x.Mistake == LeftoverComesBack && t.hash() {
		if x.Mistake == RecoveryByLease && t.Known {
			x.free(int(t.Attempt - 1))
		}
		t.Crashes = min(t.Crashes+1, FreeCrashes+1)
		if t.Crashes > FreeCrashes || x.Mistake == CrashUsesRetry {
			t.Retried++
			x.backOff(t, 0)
		} else {
			x.comeBack(id, Waits, x.due(id))
		}
	}
	set(x, &t.Lease, NoLease)
}

// rescan is what a step does whose server has another idea of Redis' clock: whatever has a score is looked at,
// and no lock lasts longer than its TTL.
func (x *script) rescan() {
	for q := range uint8(MaxQueues) {
		if !x.serves(x.server, q) {
			continue
		}
		for r, score := range x.s.Queues[q].Ready {
			if score == Never {
				x.mark(q, uint8(r), 1)
			}
		}
		for n := range x.Tasks {
			t := &x.s.Tasks[n]
			if t.Lease != Far || x.Tasks[n].Queue != q {
				continue
			}
			x.write()
			if t.Lease = Runs; t.Known && !x.s.near(x.s.Holder(t.Attempt)) {
				t.Lease = Over
			}
		}
	}
}

// near has the locks of an attempt last no longer than their TTL, and reports whether it has any.
func (s *State) near(attempt uint8) (has bool) {
	for r := range s.Locks {
		if l := &s.Locks[r]; attempt != free && l.Token == attempt {
			l.Far, has = false, true
		}
	}
	return has
}
