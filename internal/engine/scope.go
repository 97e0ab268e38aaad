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
	beat       []*attempt // of the heartbeat that is under way; nil for none
	complained time.Time
}

func newScope(l *loop, name string) *scope {
	p := &scope{loop: l, name: name}
	for lane := range taskredis.Lanes {
		p.senders[lane] = &sender{scope: p, lane: lane}
	}
	return p
}

// underWay returns how many steps are under way.
func (p *scope) underWay() (n int) {
	for _, s := range p.senders {
		if s.flight != nil {
			n++
		}
	}
	return n
}

// waiting returns how many outcomes wait for a step.
func (p *scope) waiting() int {
	return len(p.unsent) + len(p.senders[0].resend) + len(p.senders[1].resend)
}

// worth reports whether so many outcomes, or slots, are worth a step now. While one step is under way another one leaves only
// with half of the slots or more: a step costs Redis about as much as two tasks do, however few it has. With a quarter, tasks that do
// nothing went by 6 in a step, not by 9, and cost Redis a tenth more.
func (p *scope) worth(n int) bool {
	busy := p.underWay()
	return busy == 0 || busy < len(p.senders) && 2*n >= min(p.loop.cfg.Concurrency, 2*mostSlots)
}

// mayTake reports whether the next step may take tasks for so many free slots.
func (p *scope) mayTake(free int) bool {
	return p.worth(max(free, p.waiting())) && (p.careful == 0 || p.waiting() == 0)
}

// send has a sender send a step if there is something to say, or one of the draws is of this scope. It also sends the steps
// again whose answers are late.
func (p *scope) send(ctx context.Context, now time.Time, draws []taskredis.Draw, slots []taskredis.Order) {
	for _, s := range p.senders {
		switch {
		case s.flight == nil && p.worth(max(len(slots), p.waiting())):
			if s.send(ctx, now, draws, slots) {
				draws, slots = nil, nil
			}
		case s.flight != nil && !now.Before(s.flight.resendAt) && s.flight.tries < mostTries:
			s.try(ctx, now)
		}
	}
}

// next says when there is something to do if nothing happens.
func (p *scope) next(sooner func(time.Time)) {
	for _, s := range p.senders {
		switch {
		case s.flight != nil && s.flight.tries < mostTries:
			sooner(s.flight.resendAt)
		case s.flight == nil && p.mayBeForgotten() && p.worth(p.waiting()):
			sooner(p.askNext)
		}
	}
}

// complain logs that Redis does not answer a call, or refuses it, once in a while.
func (p *scope) complain(ctx context.Context, call string, err error) {
	if now := time.Now(); now.Sub(p.complained) >= 5*time.Second {
		p.complained = now
		p.loop.logger.WarnContext(ctx, "Redis does not answer, or refuses; the call is made again", "call", call, "error", err)
	}
}
