package model

import "slices"

// A builder collects the moves out of a state.
type builder struct {
	*Model

	s     *State
	steps []Transition
	final bool
}

// Steps appends all steps that are possible in s.
func (m *Model) Steps(steps []Transition, s *State) []Transition {
	b := builder{m, s, steps, m.Final(s)}
	for n := range uint8(len(m.Servers)) {
		b.server(n)
	}
	for i := range s.Attempts {
		b.attempt(i)
	}
	for n := range m.Tasks {
		b.task(ID(n + 1))
	}
	for q := range uint8(MaxQueues) {
		b.queue(q)
	}
	for r := range uint8(MaxResources) {
		b.resource(r)
	}
	b.rest()
	return b.steps
}

// may adds a move, unless nothing is left for a fault or an action.
func (b *builder) may(move Move) {
	e := move.Event
	switch {
	case e.fault() && b.s.Faults == 0, e.action() && b.s.Actions == 0:
		return
	case e == ReplicaStops && !slices.Contains(b.Only, e), b.Only != nil && (e.fault() || e.action()) && !slices.Contains(b.Only, e):
		return
	}
	b.steps = append(b.steps, Transition{Move: move, Next: *b.s, AtOnce: !e.waits()})
	step := &b.steps[len(b.steps)-1]
	if !b.apply(&step.Next, move) {
		b.steps = b.steps[:len(b.steps)-1]
		return
	}
	step.Broken = b.broken(b.s, &step.Next, move)
	b.tidy(&step.Next)
	switch {
	case e.fault():
		step.Next.Faults--
		step.AtOnce = false
	case e.action():
		step.Next.Actions--
	case e != Failover && e != Retime && !b.final:
		step.Counts = hope
		if e != Expire || b.ends(move.Resource) {
			step.Counts |= prompt
		}
	}
}

// ends reports whether a lock has to expire, as nobody is there who could free it.
func (b *builder) ends(r uint8) bool {
	a := &b.s.Attempts[b.s.Locks[r].Token-1]
	return a.Phase == Gone || a.Phase != Settled && (b.s.Servers[a.Server].CutOff || a.Disowned || a.Lost)
}

func (b *builder) server(n uint8) {
	s, sv := b.s, &b.s.Servers[n]
	if sv.CutOff {
		b.may(Move{Event: Continue, Server: n})
		b.copies(n)
		return
	}
	b.may(Move{Event: Crash, Server: n})
	b.may(Move{Event: CutOff, Server: n})
	if other := 1 - n; len(b.Servers) > 1 && !sv.Drains && !s.Servers[other].Drains && slices.Equal(b.Servers[n].Queues, b.Servers[other].Queues) {
		b.may(Move{Event: Drain, Server: n})
	}
	if slices.ContainsFunc(s.Attempts[:], func(a Attempt) bool { return a.Server == n && a.Disowned && !a.Lost }) {
		b.may(Move{Event: Heartbeat, Server: n})
	}
	b.copies(n)
	if sv.Waits {
		b.waiting(n)
		return
	}
	if s.ended(n) || sv.Popped || !sv.Asleep && !sv.Drains && s.working(n) < b.Servers[n].Slots {
		b.step(n)
	} else if sv.Asleep {
		b.may(Move{Event: SecondPasses, Server: n})
	}
	for q := range uint8(MaxQueues) {
		if sv.Listens && s.Queues[q].Notify && b.serves(n, q) {
			b.may(Move{Event: Wake, Server: n, Queue: q})
		}
	}
}

// waiting adds what may happen to a server that waits for an answer.
func (b *builder) waiting(n uint8) {
	b.may(Move{Event: Resend, Server: n})
	if b.s.Records[n] == Latest {
		b.may(Move{Event: HearLate, Server: n})
	}
	if slices.ContainsFunc(b.s.Attempts[:], func(a Attempt) bool { return a.Server == n && a.ages() && !a.Untrusted }) {
		b.may(Move{Event: WindowEnds, Server: n})
	}
}

// step adds the steps that a server may make, for each queue that it may draw first.
func (b *builder) step(n uint8) {
	orders := uint8(1)
	if b.serves(n, 0) && b.serves(n, 1) {
		orders = 2
	}
	for order := range orders {
		b.may(Move{Event: Step, Server: n, Queue: order})
		b.may(Move{Event: StepUnheard, Server: n, Queue: order})
		b.may(Move{Event: StepDelayed, Server: n, Queue: order})
		b.fails(n, order)
	}
}

// copies adds the arrival of a late copy.
func (b *builder) copies(n uint8) {
	if b.s.Servers[n].Way != NoCopy {
		b.may(Move{Event: Arrive, Server: n})
		b.may(Move{Event: ArriveAged, Server: n})
	}
}

// fails adds a step for each of its writes that may fail.
func (b *builder) fails(server, order uint8) {
	for n, before := uint8(1), -1; before != len(b.steps); n++ {
		before = len(b.steps)
		b.may(Move{Event: StepFails, Server: server, Queue: order, N: n})
	}
}

func (b *builder) attempt(i int) {
	s, a := b.s, &b.s.Attempts[i]
	if a.Phase != Running || b.leads(i) && b.Mistake != FirstEndsFirst {
		return
	}
	move := Move{Event: HandlerEnds, Task: a.Task, Server: a.Server, N: uint8(i)}
	kinds := []Kind{Succeed, Fail, Requeue, Snooze, Hold, StopLine}
	if s.Failures == 0 {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		if (kind == Hold || kind == StopLine) && !a.Locked {
			continue
		}
		move.Kind = kind
		b.may(move)
	}
}

// leads reports whether others of its batch have not ended yet. The first ends after all of them.
func (b *builder) leads(i int) bool {
	return slices.ContainsFunc(b.s.Attempts[:], func(a Attempt) bool { return a.First == token(i) && a.Phase >= Begun && a.Phase <= Ended })
}

func (b *builder) task(id ID) {
	s, t, spec := b.s, b.s.task(id), b.Tasks[id-1]
	move := Move{Task: id, Queue: spec.Queue}
	may := func(e Event) {
		move.Event = e
		b.may(move)
	}
	switch {
	case t.Status == Absent && b.comes(id):
		may(Enqueue)
	case t.Status == Deleted:
		may(EnqueueAgain)
	case t.Status == Pending && s.Queues[spec.Queue].index(id) >= 0:
		may(Delete)
		may(Archive)
	case t.Status == Retry && t.Set != NotIn:
		may(Delete)
		may(Archive)
		may(DashboardRuns) // also by asynq's forwarder
		if t.Set == Waits && b.Mistake == UntilForgotten {
			may(Retime)
		}
	case t.Status == Archived && t.Set == Stopped:
		may(Delete)
		may(DashboardRuns)
		may(RetryHeld)
		may(SkipHeld)
	}
	if t.Status == Retry && (t.Set == Backoff || t.Set == Held) {
		may(TimeComes)
	}
	if t.Lease == Runs && !s.renewed(t.Attempt) && b.leaseEnds(id) {
		may(LeaseEnds)
	}
}

// comes reports whether a task is the next one of its kind that a client enqueues.
func (b *builder) comes(id ID) bool {
	for n, spec := range b.Tasks[:id-1] {
		if spec.Queue == b.Tasks[id-1].Queue && spec.Resource == b.Tasks[id-1].Resource && b.s.Tasks[n].Status == Absent {
			return false
		}
	}
	return true
}

// leaseEnds reports whether a lease may end that nobody renews. Of a living server's attempt it does so only after
// the server may not trust it any more.
func (b *builder) leaseEnds(id ID) bool {
	t := b.s.task(id)
	if t.Status != Active {
		return true
	}
	a := &b.s.Attempts[t.Attempt-1]
	if b.Mistake == LeaseLater && t.Known && b.keeps(&b.s.Redis, id, b.s.Holder(t.Attempt)) {
		return false
	}
	return !a.ages() || a.Untrusted
}

func (b *builder) queue(q uint8) {
	s, queue := b.s, &b.s.Queues[q]
	if queue.Seen && !b.room(s, q) {
		b.may(Move{Event: Unseen, Queue: q})
	}
	if queue.Paused {
		b.may(Move{Event: Unpause, Queue: q})
	} else if b.served(q) {
		b.may(Move{Event: Pause, Queue: q})
	}
	for r := range uint8(MaxResources) {
		move := Move{Event: EntryDue, Queue: q, Resource: r}
		switch queue.Ready[r] {
		case Second, Expiry:
			b.may(move)
		case Later:
			if head := b.head(&s.Redis, q, r); head == 0 || !s.task(head).holds() {
				b.may(move)
			}
		default:
		}
		if queue.Ready[r] != NoEntry {
			b.may(Move{Event: Evict, Queue: q, Resource: r, N: 0})
			b.may(Move{Event: Evict, Queue: q, Resource: r, N: 1})
			b.may(Move{Event: Evict, Queue: q, Resource: r, N: 2})
		}
	}
}

func (b *builder) resource(r uint8) {
	s, l := b.s, &b.s.Locks[r]
	move := Move{Resource: r}
	may := func(e Event) {
		move.Event = e
		b.may(move)
	}
	switch {
	case l.Token == free:
		may(ForeignTakes)
		if !l.Fresh {
			may(LockerTakes)
		}
		if slices.ContainsFunc(s.Queues[:], func(q Queue) bool { return q.Ready[r] == Offer }) || l.Fresh {
			may(OfferEnds)
		}
	case l.Token == Foreign:
		may(ForeignLeaves)
	case l.Token == locker:
		may(LockerLeaves)
	case !l.Far && !s.renewed(l.Token):
		if a := &s.Attempts[l.Token-1]; !a.unheard() || a.Untrusted {
			may(Expire)
		}
	}
	if l.attempt() && !l.Revoked {
		may(Revoke)
	}
	if l.Token != free && slices.ContainsFunc(s.Queues[:], func(q Queue) bool { return q.Ready[r] == Offer }) {
		may(OfferEnds)
	}
}

// rest adds what concerns all of Redis.
func (b *builder) rest() {
	s := b.s
	if b.Mistake != NoUpkeep {
		next := *s
		if b.upkeep(&next); next.Redis != s.Redis {
			b.may(Move{Event: Upkeep})
		}
	}
	if !s.Back {
		b.may(Move{Event: ClockBack})
	}
	if s.Behind {
		b.may(Move{Event: Failover})
	} else if !s.Failed {
		b.may(Move{Event: ReplicaStops})
	}
}
