package asynqredis

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/sidingq/siding/lock"
)

// A Seat is an idle [Lane] that waits for one task: that of the waiter to which a lock
// is handed over, if it takes the seat. So such a task needs no dequeue of its own.
type Seat struct {
	lane      *Lane
	queue     string
	name      string // of the attempt
	leaseEnds int64
}

// Seat returns a seat for a task of queue, nil when no lane that serves it and takes locks with
// its tasks is idle. It must be given up by Take or Leave.
func (d *Doorbell) Seat(queue string) *Seat {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.posts {
		if !slices.Contains(p.queues, queue) {
			continue
		}
		for _, l := range p.idle {
			if leaseEnds, ok := l.claim(); ok {
				return &Seat{lane: l, queue: queue, name: l.attemptName(), leaseEnds: leaseEnds}
			}
		}
	}
	return nil
}

// Args returns the id and the arguments of the seat for lock.Lease.HandOver.
func (s *Seat) Args() (id string, argv []any) {
	return s.name, []any{s.queue, s.leaseEnds, s.lane.ahead.Host}
}

// Leave gives the seat up: the lane waits for a bell again.
func (s *Seat) Leave() { s.lane.woken <- wake{vain: true} }

// Take has the lane begin with the task that has taken the seat. answer is what
// summon.lua has said of it.
func (s *Seat) Take(grant *lock.Grant, answer []any) {
	t := taken{grant: grant}
	if len(answer) == 3 {
		t.msg, _ = answer[0].(string)
		t.left, _ = strconv.ParseInt(fmt.Sprint(answer[1]), 10, 64)
		ticket, _ := answer[2].(string)
		t.came, _ = strconv.ParseInt(ticket, 10, 64) // 0 costs it its place, should it be put back
	}
	t.msg = s.lane.begin(t, s.queue, s.name, s.leaseEnds)
	s.lane.woken <- wake{task: &t}
}

// claim returns when the lease of a task ends that l takes now, if l is idle; it is then woken
// by a seat's end, and by nothing else.
func (l *Lane) claim() (leaseEnds int64, ok bool) {
	if l.ahead == nil || !l.dozing.CompareAndSwap(true, false) {
		return 0, false
	}
	if l.left.Load() != held { // it has left, or is about to, see Lane.leave
		l.dozing.Store(true)
		return 0, false
	}
	return l.leaseEnds.Load(), true
}
