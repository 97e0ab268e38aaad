package engine

import (
	"context"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
)

// A scope is what a step can reach in one call: see loop.scopeOf. The outcomes for it wait here for the next step.
type scope struct {
	loop    *loop
	name    string
	senders [taskredis.Lanes]*sender // by lane

	unsent     []*attempt     // whose outcomes wait for a step
	recent     []sentOutcomes // of the last seconds, in the order in which they were settled
	settledAt  time.Time      // when outcomes were settled last
	askNext    time.Time      // when to ask whether Redis has forgotten them
	careful    int            // after a refused step: how many of the next ones have a single outcome or queue each
	clock      clock
	beat       []*attempt    // of the heartbeat that is under way; nil for none
	beatNext   time.Time     // when the next one is to leave
	armed      chan []string // of the listener, see there
	complained time.Time
}

func newScope(l *loop, name string) *scope {
	sc := &scope{loop: l, name: name, armed: make(chan []string, 1)}
	for lane := range taskredis.Lanes {
		sc.senders[lane] = &sender{scope: sc, lane: lane}
	}
	return sc
}

// underWay returns how many steps are under way.
func (sc *scope) underWay() (n int) {
	for _, s := range sc.senders {
		if s.flight != nil {
			n++
		}
	}
	return n
}

// waiting returns how many outcomes wait for a step.
func (sc *scope) waiting() int {
	return len(sc.unsent) + len(sc.senders[0].resend) + len(sc.senders[1].resend)
}

// sending reports whether an outcome or a step is on its way.
func (sc *scope) sending() bool { return sc.waiting() > 0 || sc.underWay() > 0 }

// worth reports whether so many outcomes, or slots, are worth a step now. While one step is under way another one leaves only
// with half of the slots or more: a step costs Redis about as much as two tasks do, however few it has. With a quarter, tasks that do
// nothing went by 6 in a step, not by 9, and cost Redis a tenth more.
func (sc *scope) worth(n int) bool {
	busy := sc.underWay()
	return busy == 0 || busy < len(sc.senders) && 2*n >= min(sc.loop.cfg.Concurrency, 2*mostSlots)
}

// mayTake reports whether the next step may take tasks for so many free slots.
func (sc *scope) mayTake(free int) bool {
	return sc.worth(max(free, sc.waiting())) && (sc.careful == 0 || sc.waiting() == 0)
}

// send has a sender send a step if there is something to say, or one of the draws is of this scope. It also sends the steps
// again whose answers are late.
func (sc *scope) send(ctx context.Context, now time.Time, draws []taskredis.Draw, slots []taskredis.Order) {
	for _, s := range sc.senders {
		switch {
		case s.flight == nil && sc.worth(max(len(slots), sc.waiting())):
			if s.send(ctx, now, draws, slots) {
				draws, slots = nil, nil
			}
		case s.flight != nil && !now.Before(s.flight.resendAt) && s.flight.tries < mostTries:
			s.try(ctx, now)
		}
	}
}

// next says when there is something to do if nothing happens.
func (sc *scope) next(sooner func(time.Time)) {
	for _, s := range sc.senders {
		switch {
		case s.flight != nil && s.flight.tries < mostTries:
			sooner(s.flight.resendAt)
		case s.flight == nil && sc.mayBeForgotten() && sc.worth(sc.waiting()):
			sooner(sc.askNext)
		}
	}
}

// complain logs that Redis does not answer a call, or refuses it, once in a while.
func (sc *scope) complain(ctx context.Context, call string, err error) {
	if now := time.Now(); now.Sub(sc.complained) >= 5*time.Second {
		sc.complained = now
		sc.loop.logger.WarnContext(ctx, "Redis does not answer, or refuses; the call is made again", "call", call, "error", err)
	}
}
