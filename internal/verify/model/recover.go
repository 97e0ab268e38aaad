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
		alive := t.Known && s.Locks[x.Tasks[n].Resource].Token == t.Attempt
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
	t, r := x.s.task(id), x.Tasks[id-1].Resource
	if t.Status == Active || x.Mistake == LeftoverComesBack && t.hash() {
		if x.Mistake == RecoveryByLease && t.Known && x.s.Locks[r].Token == t.Attempt {
			x.free(int(t.Attempt-1), r)
		}
		t.Crashes = min(t.Crashes+1, FreeCrashes+1)
		if t.Crashes > FreeCrashes || x.Mistake == CrashUsesRetry {
			t.Retried++
			x.backOff(t, 0)
		} else {
			x.comeBack(id, Waits, x.due(x.Tasks[id-1].Resource))
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
			t, r := &x.s.Tasks[n], x.Tasks[n].Resource
			if t.Lease != Far || x.Tasks[n].Queue != q {
				continue
			}
			x.write()
			switch l := &x.s.Locks[r]; {
			case !t.Known:
				t.Lease = Runs
			case l.Token == t.Attempt:
				t.Lease, l.Far = Runs, false
			default:
				t.Lease = Over
			}
		}
	}
}
