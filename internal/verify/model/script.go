package model

import (
	"cmp"
	"slices"
)

// What one step does at most, so that a few tasks reach the bounds.
const (
	maxRecovered = 1 // crashed tasks of a queue
	maxLooks     = 2 // at entries of a ready set, for each slot
	maxPassed    = 1 // waiters that are gone, for each look
	maxParked    = 2 // tasks from pending, for each slot
)

// FreeCrashes is how many crashes of a task use no retry.
const FreeCrashes = 2

// most returns a bound of a step.
func (m *Model) most(bound int) int {
	if m.Wide {
		return 20
	}
	return bound
}

// A script is one run of step.lua. Each outcome, each recovered task and each start is an item that
// stands by itself: if a write fails, the rest of its item is left out, and the next item goes on.
type script struct {
	*Model

	s       *State
	server  uint8
	fails   uint8 // the number of the write that fails, counted down; 0 for none
	failed  bool
	tickets [MaxResources]uint8 // the last one of each resource
	more    bool                // a bound was reached: there may be more to do at once
	visited [MaxQueues]bool     // queues that a slot has tried, or whose tasks ask
	done    [MaxQueues]bool     // those of which all crashed tasks are back
	touched [MaxQueues]bool     // an entry of the ready set became due, or is offered
	turn    [MaxQueues]bool     // true: the next one is from pending
}

// aborted is the panic of a write that fails.
type aborted struct{}

// write comes before each change of a key.
func (x *script) write() {
	if x.fails == 0 {
		return
	}
	if x.fails--; x.fails == 0 {
		panic(aborted{})
	}
}

// set changes a key.
func set[T any](x *script, key *T, value T) {
	x.write()
	*key = value
}

// item runs what stands by itself, and reports whether all of its writes were made.
func (x *script) item(do func()) (ok bool) {
	if x.fails == 0 {
		do()
		return true
	}
	defer func() {
		if r := recover(); r != nil {
			if _, mine := r.(aborted); !mine {
				panic(r)
			}
			x.failed, x.s.Torn = true, true
		}
	}()
	do()
	return true
}

// step is the whole script. Without fetch it takes no tasks. answers is false if no server waits for it.
func (x *script) step(sent *Copy, fetch, answers bool) {
	s, server := x.s, &x.s.Servers[x.server]
	left := sent.Slots
	x.turn = sent.Turn
	lost := answers && server.Strange && x.Mistake != ClockUnseen // in time
	if x.Mistake == AsksFirst {
		x.settleAll(sent, answers, true)
	}
	x.settleAll(sent, answers, false)
	if lost {
		server.Strange = !x.item(x.rescan)
		x.more = true
	}
	if !lost {
		for slot, kind := range sent.Kinds {
			if kind == Ask {
				x.recovered(x.Tasks[s.Attempts[slot].Task-1].Queue)
			}
		}
		if x.Mistake != AsksFirst {
			x.settleAll(sent, answers, true)
		}
	}
	for slot, kind := range sent.Kinds {
		if kind != More {
			continue
		}
		if fetch && !lost {
			x.join(slot, answers)
		}
		if a := &s.Attempts[slot]; answers && a.asks() {
			a.Result = IsOver // also if nobody joins
		}
	}
	if fetch && !lost {
		left = x.fetch(sent, answers)
	}
	if !answers {
		left = 0
	}
	for q := range uint8(MaxQueues) {
		x.notify(q, left)
	}
	if answers {
		s.Records[x.server], server.Turn = Latest, x.turn
	}
}

// settleAll settles the outcomes of a step. Those that ask for a lock come last, in the order of their tickets.
func (x *script) settleAll(sent *Copy, answers, asks bool) {
	s := x.s
	slots := slices.DeleteFunc(s.Outcomes(sent), func(slot int) bool { return sent.Kinds[slot] == More || (sent.Kinds[slot] == Ask) != asks })
	if asks && x.Mistake != AsksInAnyOrder {
		slices.SortStableFunc(slots, func(a, b int) int {
			one, two := s.Attempts[a].Task, s.Attempts[b].Task
			return cmp.Or(cmp.Compare(s.task(one).Ticket, s.task(two).Ticket), cmp.Compare(one, two))
		})
	}
	for _, slot := range slots {
		result := NoResult // of an item that fails: it is sent again
		x.item(func() { result = x.settle(slot, sent.Kinds[slot]) })
		if a := &s.Attempts[slot]; answers && a.Phase == Ended {
			a.Result = result
		}
	}
}

// notify wakes a server for what is due in a queue, unless this one has a slot left for it.
func (x *script) notify(q, left uint8) {
	queue := &x.s.Queues[q]
	serves := x.serves(x.server, q)
	offered := false
	work := queue.Pending[0] != 0
	for _, score := range queue.Ready {
		work = work || score.due()
		offered = offered || score == Offer && x.touched[q]
	}
	switch {
	case serves && left > 0, !work && !offered, !serves && !x.touched[q], x.Mistake == NobodyTold, x.Mistake == OthersNotTold && !serves:
	default:
		queue.Notify = true
	}
}
