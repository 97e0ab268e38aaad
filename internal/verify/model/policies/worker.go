package policies

// join is acquire.lua for the worker of a task.
func (m *Model) join(s *State, i id) {
	t, me := s.task(i), i.worker()
	s.claim(me)
	if s.By == i || s.For == me {
		t.Worker = 0
		m.grant(s, i)
		return
	}
	if t.Worker == 0 {
		t.Worker = 2*s.Clock + headStart + 1 // behind all that have come
		if m.Mistake == WorkerFirst {
			t.Worker = 1
		}
	}
	t.Phase = waiting
}

// waiting adds what the worker of a task does that is in the wait queue.
func (b *builder) waiting(i id) {
	t := b.s.task(i)
	if b.s.For == i.worker() && !t.Missed {
		b.call("the worker of task %d takes the lock", i, 0, func(s *State) {
			if s.For == i.worker() || s.By == i {
				b.grant(s, i)
			}
		})
	}
	b.may(waits, "the worker of task %d has waited for long enough", i, 0, func(s *State) {
		t := s.task(i)
		t.local = local{Phase: taken, Came: t.Came, Waited: true}
		if b.Mistake != WorkerStaysQueued {
			t.Worker = 0
		}
		if s.For == i.worker() && b.Mistake != WorkerKeepsLock {
			s.handOff()
		}
	})
}

// reservedForWorker adds what becomes of a reservation for a worker, beside that it comes.
func (b *builder) reservedForWorker(worker id) {
	if i := worker - outsider; worker != goneWorker && b.s.task(i).Phase == waiting && !b.s.task(i).Missed {
		b.may(fault, "the reservation for the worker of task %d expires before it comes", i, 0, func(s *State) { s.For = 0 })
		b.may(fault, "the worker of task %d does not hear of its reservation", i, 0, func(s *State) { s.task(i).Missed = true })
		return
	}
	b.may(waits, "the reservation expires for a worker that does not come", 0, 0, func(s *State) { s.For = 0 })
}
