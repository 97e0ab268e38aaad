package engine

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
)

// The queues know which of a server's queues may have something to take, and from which of them each free slot tries
// to. A step names only those that were drawn. So a server with a thousand queues of which a few have work names
// those few, and an idle one names none until it is told of one.
type queues struct {
	all    map[string]*queue
	sorted []*queue // all of them, by name
	strict bool
	random func(n int) int // from 0 to n-1
	work   []*queue        // those that may have something, in the order of their priorities if that is strict
	turn   int             // which of sorted is looked at next beside those, see beside
}

type queue struct {
	name     string
	priority int
	pending  bool      // whose turn is next: pending tasks, or waiting ones
	work     bool      // it is in queues.work
	due      time.Time // when a lock should be looked at; zero for never
	rests    time.Time // until then it has nothing: it is paused, or Redis refuses
	told     time.Time // when somebody said last that it may have tasks
	looked   time.Time // when a step had looked at it last
	asOf     int64     // when that was by Redis' clock, µs
}

// mostTried is from how many queues one slot tries to take a task in one step; those that had nothing are not tried
// in the next step.
const mostTried = 8

// fewTried is the same for a server with more queues that may have something. Each that a step names costs Redis some time, also
// if no slot comes to try it.
const fewTried = 3

// lookAgain is how often a server that has work looks at queues beside those that have it, if it cannot do that each time.
const lookAgain = 100 * time.Millisecond

// mostDraws is how many queues a step can name.
const mostDraws = 255

func newQueues(priorities map[string]int, strict bool) *queues {
	q := &queues{all: make(map[string]*queue), strict: strict, random: rand.IntN}
	for _, name := range slices.Sorted(maps.Keys(priorities)) {
		one := &queue{name: name, priority: priorities[name]}
		q.all[name], q.sorted = one, append(q.sorted, one)
		q.has(one) // until a step has found that it has none
	}
	return q
}

func (q *queues) has(one *queue) {
	if one.work {
		return
	}
	one.work = true
	q.work = append(q.work, one)
	if q.strict {
		slices.SortFunc(q.work, byPriority)
	}
}

func (q *queues) hasNot(one *queue) {
	one.work = false
	q.work = slices.DeleteFunc(q.work, func(other *queue) bool { return other == one })
}

// found says of queues that they may have something to take. One that rests is looked at when it has rested.
func (q *queues) found(names []string, now time.Time) {
	for _, name := range names {
		if one := q.all[name]; one != nil && !now.Before(one.rests) {
			one.told = now
			q.has(one)
		}
	}
}

// rest says that a queue has nothing until a time.
func (q *queues) rest(name string, until time.Time) {
	one := q.all[name]
	one.rests, one.due = until, until
	q.hasNot(one)
}

// drawn takes what a step that was sent at a time has found out about a queue, at a time by Redis' clock. Of two steps that were
// under way together the one counts that Redis made later, whichever answer comes first.
func (q *queues) drawn(name string, d taskredis.Drawn, asOf int64, sent, now time.Time) {
	one := q.all[name]
	if sent.Before(one.looked) && asOf < one.asOf {
		return
	}
	one.pending, one.due, one.looked, one.asOf = d.Pending, time.Time{}, now, asOf
	switch {
	case d.Paused:
		q.rest(name, now.Add(pausedPause))
		return
	case d.More || one.told.After(sent): // the step may not have seen what it was told of
		q.has(one)
		return
	case d.Due >= 0:
		one.due = now.Add(d.Due)
	}
	q.hasNot(one)
}

// next returns when a queue has something to look at that has nothing to take now.
func (q *queues) next() (time.Time, bool) {
	var at time.Time
	for _, one := range q.sorted {
		if !one.work && !one.due.IsZero() && (at.IsZero() || one.due.Before(at)) {
			at = one.due
		}
	}
	return at, !at.IsZero()
}

// served returns the queues of which the server would take a task now. They are the first thousand.
func (q *queues) served(now time.Time) []string {
	names := make([]string, 0, len(q.all))
	for _, one := range q.sorted {
		if !now.Before(one.rests) && len(names) < 1000 {
			names = append(names, one.name)
		}
	}
	return names
}

// idle reports whether no queue of a scope has anything to take. In a Cluster the scope of a queue has its name, see loop.scopeOf.
func (q *queues) idle(scope string) bool {
	if scope == "" {
		return len(q.work) == 0
	}
	return !q.all[scope].work
}

// draw draws the queues for so many free slots: as asynq draws them, by weights or by strict priority, for each slot
// on its own. A queue of which may says no is left out. With single, the sender tries only the first queue for each slot.
func (q *queues) draw(free int, now time.Time, single bool, may func(queue string) bool) ([]taskredis.Draw, []taskredis.Order) {
	if free <= 0 {
		return nil, nil
	}
	for _, one := range q.sorted {
		if !one.work && !one.due.IsZero() && !now.Before(one.due) {
			one.due = time.Time{}
			q.has(one)
		}
	}
	if len(q.work) == 0 {
		return nil, nil
	}
	var candidates []*queue
	for _, one := range q.work {
		if !now.Before(one.rests) && may(one.name) {
			candidates = append(candidates, one)
		}
	}
	if len(candidates) > 0 || single { // else none may, as on one Redis all are alike
		candidates = q.beside(candidates, now, single, may)
	}
	if len(candidates) == 0 {
		return nil, nil
	}
	indexes := make(map[*queue]byte, len(candidates))
	var draws []taskredis.Draw
	var slots []taskredis.Order
	for range free {
		order := make([]byte, 0, mostTried)
		for _, one := range q.orderOf(candidates) {
			index, ok := indexes[one]
			if !ok {
				if len(draws) == mostDraws {
					continue
				}
				draws = append(draws, taskredis.Draw{Queue: one.name, Pending: one.pending})
				index = byte(len(draws)) //nolint:gosec // at most 255
				indexes[one] = index
			}
			order = append(order, index)
		}
		if len(order) > 0 {
			slots = append(slots, taskredis.Order(order))
		}
	}
	return draws, slots
}

// beside adds queues that have nothing as far as is known. Only idle servers are told of tasks, so one that has work would not
// hear of those in another queue, which may come first. A few queues are looked at in each step; of many, or if a slot tries
// one only, some are in their turn, so that those that have work get theirs.
func (q *queues) beside(candidates []*queue, now time.Time, single bool, may func(queue string) bool) []*queue {
	few, most := !single && len(q.all) <= mostTried, mostTried/2
	for i := range q.sorted {
		at := (q.turn + i) % len(q.sorted)
		one := q.sorted[at]
		if one.work || now.Before(one.rests) || !few && now.Sub(one.looked) < lookAgain || !may(one.name) {
			continue
		}
		candidates = append(candidates, one)
		if most--; most == 0 && !few { // the others come first the next time, whether a slot tries these or not
			q.turn = at + 1
			break
		}
	}
	if q.strict {
		slices.SortFunc(candidates, byPriority)
	}
	return candidates
}

func byPriority(a, b *queue) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.name, b.name))
}

// orderOf returns the order in which one slot tries queues.
func (q *queues) orderOf(candidates []*queue) []*queue {
	if len(candidates) == 1 || q.strict {
		return candidates[:min(len(candidates), mostTried)]
	}
	left, total := slices.Clone(candidates), 0
	for _, one := range left {
		total += one.priority
	}
	most := mostTried
	if len(left) > mostTried {
		most = fewTried
	}
	order := make([]*queue, 0, most)
	for len(left) > 0 && len(order) < most {
		at, n := 0, q.random(total)
		for n >= left[at].priority {
			n -= left[at].priority
			at++
		}
		order = append(order, left[at])
		total -= left[at].priority
		left[at] = left[len(left)-1]
		left = left[:len(left)-1]
	}
	return order
}
