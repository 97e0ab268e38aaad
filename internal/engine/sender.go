package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/taskredis"
)

// A sender makes steps for a scope, one at a time. A step keeps its number and its content until it is answered: while
// Redis is silent, the sender sends it again and again, on other connections. The first answer counts, and Redis answers
// all of them alike. An error is an answer, too. If it passes, the same step is sent again; if not, what the step
// had is sent one by one, so that the one thing that Redis refuses holds up nothing else.
type sender struct {
	*scope

	lane   int
	flight *flight // the step that is under way; nil for none
	number int64   // of the last step

	// resend are the attempts of a step that Redis has refused. A copy of that step may still come and succeed, until the next step of
	// this lane is recorded. By the other lane their outcomes could be settled twice, so they stay in this one.
	resend []*attempt

	recorded   int64 // the last step that Redis has recorded, and when
	recordedAt time.Time
}

// A flight is a step that is under way.
type flight struct {
	*taskredis.Step

	attempts []*attempt // of the outcomes
	since    time.Time  // when it was sent first
	tries    int        // that have no answer yet
	unheard  bool       // a try has ended without an answer: Redis may have made the step
	silence  time.Duration
	resendAt time.Time
}

// overdue reports whether a step is under way for so long that it takes no tasks, unless Redis has made it already.
func (f *flight) overdue() bool { return time.Since(f.since) > overdueAfter }

// sentOutcomes are the outcomes of a step that was answered, for a Redis that forgets them.
type sentOutcomes struct {
	sender   *sender
	number   int64
	at       time.Time
	outcomes []taskredis.Outcome
}

// Times of a sender.
const (
	firstSilence = 250 * time.Millisecond // after which a step is sent again; the time doubles
	mostSilence  = 4 * time.Second
	mostTries    = 4                // of a step at once
	refusedPause = time.Second      // before a step that Redis has refused is sent again
	remembered   = 10 * time.Second // outcomes, for a Redis that forgets them in a failover
	overdueAfter = 3 * time.Second  // a second more than MAX_AGE of step.lua, from when on a step takes no tasks
	askAgain     = time.Second      // after a step, whether Redis knows of it, while it may forget outcomes
)

// Bounds of a step.
const (
	mostOutcomes     = 200
	mostOutcomeBytes = 1 << 20
	mostSlots        = 100
)

// send sends a step if there is something to say, or to ask. It reports whether it has.
func (s *sender) send(ctx context.Context, now time.Time, draws []taskredis.Draw, slots []taskredis.Order) bool {
	f := &flight{Step: &taskredis.Step{Scope: s.name, Lane: s.lane}, since: now, silence: firstSilence}
	s.addOutcomes(f)
	if s.careful == 0 || len(f.Outcomes) == 0 {
		s.addSlots(f, draws, slots)
	}
	if len(f.Outcomes) == 0 && len(f.Slots) == 0 {
		if s.waiting() == 0 {
			s.careful = 0
		}
		if !s.mayBeForgotten() || now.Before(s.askNext) {
			return false
		}
	}
	s.number++
	f.Number, f.After, f.Sent = s.number, s.recorded, s.clock.at(now)
	if other := s.other(); now.Sub(other.recordedAt) <= remembered {
		f.OtherAfter = other.recorded
	}
	s.flight = f
	s.try(ctx, now)
	return true
}

// other returns the sender of the other lane.
func (s *sender) other() *sender { return s.senders[1-s.lane] }

// addOutcomes moves the outcomes that wait into a step, as many as it may have.
func (s *sender) addOutcomes(f *flight) {
	most, bytes := mostOutcomes, 0
	if s.careful > 0 {
		most = 1
	}
	f.Outcomes = make([]taskredis.Outcome, 0, min(len(s.resend)+len(s.unsent), most))
	for _, waiting := range []*[]*attempt{&s.resend, &s.unsent} {
		n := 0
		for n < len(*waiting) && len(f.Outcomes) < most && bytes < mostOutcomeBytes {
			a := (*waiting)[n]
			f.attempts = append(f.attempts, a)
			f.Outcomes = append(f.Outcomes, a.outcome)
			bytes += len(a.outcome.Message)
			n++
		}
		*waiting = slices.Delete(*waiting, 0, n)
	}
}

// addSlots adds the slots whose queues are of this scope. In a Cluster each slot tries one queue.
func (s *sender) addSlots(f *flight, draws []taskredis.Draw, slots []taskredis.Order) {
	if s.name == "" && s.careful == 0 {
		f.Draws, f.Slots = draws, slots
		return
	}
	for _, order := range slots {
		d := draws[order[0]-1]
		if s.loop.scopeOf(d.Queue) != s.name || len(f.Draws) == 1 && f.Draws[0].Queue != d.Queue {
			continue
		}
		f.Draws = []taskredis.Draw{d}
		f.Slots = append(f.Slots, "\x01")
	}
}

// try sends the step once more.
func (s *sender) try(ctx context.Context, now time.Time) {
	f := s.flight
	f.tries++
	f.resendAt = now.Add(f.silence)
	f.silence = min(2*f.silence, mostSilence)
	step, l := f.Step, s.loop
	l.goroutines.run(func() {
		answer, err := l.calls.Step(ctx, step)
		_ = l.do(ctx, func() { s.answered(ctx, step.Number, now, answer, err) })
	})
}

// answered takes the answer to a try of a step, which was sent at a time.
func (s *sender) answered(ctx context.Context, number int64, sent time.Time, answer *taskredis.Answer, err error) {
	f := s.flight
	if f == nil || f.Number != number { // another try was answered before
		if err == nil { // this one may have done what the other found in the record
			s.loop.tellOf(ctx, answer)
		}
		return
	}
	f.tries--
	now := time.Now()
	switch {
	case err == nil:
		s.flight = nil
		s.careful = max(0, s.careful-1)
		s.apply(ctx, f, answer, sent, now)
	case !redisreply.Answered(err):
		s.complain(ctx, "step", err)
		f.unheard = true
	case redisreply.Transient(err), redisreply.OfConnection(err):
		// Redis has done nothing by this try, but maybe by an earlier one. So the step stays the same.
		s.complain(ctx, "step", err)
		f.resendAt = now.Add(refusedPause)
		if s.loop.stopping && len(f.Outcomes) == 0 && f.tries == 0 && !f.unheard {
			s.flight = nil // it was to take tasks only, and has taken none
		}
	default:
		s.flight = nil
		s.careful = max(0, s.careful-1)
		s.refused(ctx, f, err, now)
	}
}

// refused is called with a step that Redis will always refuse.
func (s *sender) refused(ctx context.Context, f *flight, err error, now time.Time) {
	l := s.loop
	one := len(f.Outcomes)+len(f.Draws) == 1
	switch {
	case one && len(f.Outcomes) == 1:
		l.logger.ErrorContext(ctx, "Redis refuses the outcome of a task; it runs again once its lease is over",
			"queue", f.Outcomes[0].Queue, "task_id", f.Outcomes[0].ID, "outcome", f.Outcomes[0].Kind, "error", err)
		l.abandon(f.attempts[0])
	case one:
		l.logger.ErrorContext(ctx, "Redis gives no tasks of a queue", "queue", f.Draws[0].Queue, "error", err)
		l.queues.rest(f.Draws[0].Queue, now.Add(refusedPause))
	case len(f.Outcomes)+len(f.Draws) == 0: // it only asked whether Redis has forgotten something
		s.complain(ctx, "step", err)
		s.askNext = now.Add(askAgain)
	default:
		s.careful += len(f.Outcomes) + len(f.Draws)
		s.resend = append(f.attempts, s.resend...)
	}
}

// apply does what the answer of a step says. sent is when the try left that was answered: what the answer says was so after
// that.
func (s *sender) apply(ctx context.Context, f *flight, a *taskredis.Answer, sent, now time.Time) {
	l := s.loop
	s.clock.set(a.Now, now)
	s.askNext = now.Add(askAgain)
	if !a.Follows(f.Step) { // it has done nothing: what it was to say goes with the next one
		s.unsent = append(f.attempts, s.unsent...)
		s.forgotten(f, a, now)
		return
	}
	s.recorded, s.recordedAt = f.Number, now
	if len(f.Outcomes) > 0 {
		s.recent, s.settledAt = append(s.recent, sentOutcomes{s, f.Number, now, f.Outcomes}), now
	}
	for len(s.recent) > 0 && now.Sub(s.recent[0].at) > remembered {
		s.recent = s.recent[1:]
	}
	for i, result := range a.Results {
		l.result(s, f.attempts[i], result, a.Replies[i], f.Number, sent)
	}
	for i, d := range a.Drawn { // none if the step was answered from its record, which knows nothing of the queues
		if d.Untried {
			continue
		}
		l.queues.drawn(f.Draws[i].Queue, d, a.Now, sent, now)
	}
	for i := range a.Taken {
		a.Taken[i].At = a.Now
		l.take(ctx, s, &a.Taken[i], f.Number, sent, now)
	}
	for _, a := range f.attempts {
		if a.outcome.Kind == taskredis.More {
			l.batchComplete(a)
		}
	}
	l.tellOf(ctx, a)
}

// tellOf tells what the record of a step does not have: who was parked and recovered, and what went wrong.
func (l *loop) tellOf(ctx context.Context, a *taskredis.Answer) {
	l.troubles.found(ctx, a.Troubles)
	if l.cfg.Parked != nil && len(a.Parked) > 0 {
		l.told.tell(ctx, l.logger, "Parked", func() {
			for i := range a.Parked {
				l.cfg.Parked(&a.Parked[i], l.resourceOf(a.Parked[i].Queue, a.Parked[i].Lock))
			}
		})
	}
	if l.cfg.Recovered != nil {
		for _, name := range a.Recovered {
			l.told.tell(ctx, l.logger, "Recovered", func() { l.cfg.Recovered(name, l.resourceOf(name.Queue, name.Lock)) })
		}
	}
}

// forgotten is called with a step that does not follow those before it. If Redis has lost these in a failover, what they had settled
// is sent again, before all else and in the order in which it was settled: a task that is at work again, for Redis, holds a lock that
// nobody will free, and the tasks of a batch end before their lock is free. What was taken by a lost step is not ours any more.
func (s *sender) forgotten(f *flight, a *taskredis.Answer, now time.Time) {
	l, other, expired := s.loop, s.other(), now.Sub(s.recordedAt) >= taskredis.Recorded
	lost := func(by *sender, step int64) bool {
		switch by {
		case s:
			return a.Known < step && !expired
		case other:
			return a.OtherKnown < step && step <= f.OtherAfter // of what it has done since, this answer knows nothing
		default: // of another scope
			return false
		}
	}
	step, known := s.recorded, a.Known
	if !lost(s, step) {
		step, known = f.OtherAfter, a.OtherKnown
	}
	if known < step {
		l.logger.Warn("Redis has lost the last writes; sending outcomes again", "step", step, "known", known)
	}
	var again []*attempt
	s.recent = slices.DeleteFunc(s.recent, func(sent sentOutcomes) bool {
		if !lost(sent.sender, sent.number) {
			return false
		}
		for _, o := range sent.outcomes {
			if o.Kind != taskredis.Ask && o.Kind != taskredis.More {
				again = append(again, &attempt{outcome: o, Taken: taskredis.Taken{Name: o.Name}, settled: sent.at})
			}
		}
		return true
	})
	s.unsent = append(again, s.unsent...)
	slices.SortStableFunc(s.unsent, func(x, y *attempt) int { // some may be there that another answer has found forgotten
		return cmp.Or(x.settled, now).Compare(cmp.Or(y.settled, now))
	})
	for _, a := range l.attempts {
		if lost(a.sender, a.step) && a.ended.IsZero() {
			l.lose(a)
		}
	}
	if lost(other, other.recorded) {
		other.recorded = a.OtherKnown
	}
	s.recorded, s.recordedAt = a.Known, now
	s.beatNext = now // which of the others does Redis still know?
}

// mayBeForgotten reports whether outcomes were settled so recently that a failover may lose them. Then the scope has a step
// each second, also with nothing in it: nobody else knows that the lock of a task is held by no one.
func (sc *scope) mayBeForgotten() bool { return time.Since(sc.settledAt) <= remembered }

// A clock tells Redis' time by the answers of Redis.
type clock struct {
	redis int64
	local time.Time
}

func (c *clock) set(redis int64, local time.Time) { c.redis, c.local = redis, local }

func (c *clock) at(local time.Time) int64 { return c.redis + local.Sub(c.local).Microseconds() }
