package engine

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
)

// A report tells the loop what an attempt has come to.
type report struct {
	attempt *attempt
	outcome taskredis.Outcome
	batch   *Batch // of an attempt that asks for more
}

// Times of the loop.
const (
	pausedPause = time.Second // before a paused queue is asked again
	mostSleep   = time.Second // of an idle loop
)

// A caller makes the calls of the loop. A test may lose, delay and repeat them.
type caller interface {
	Step(ctx context.Context, s *taskredis.Step) (*taskredis.Answer, error)
	Renew(ctx context.Context, scope string, attempts []taskredis.Name) ([]bool, error)
	Began(ctx context.Context, n taskredis.Name, waitOver bool) (latest bool, err error)
	Notify(ctx context.Context, queues ...string) error
}

// The loop is the part of a server that talks to Redis about tasks. One goroutine runs it, and nothing else
// touches its state:
//
//	handlers ──> reports ──┐
//	all others ─> requests ─┴─> loop ──> step: what has ended, how many slots are free
//	                              └──< answer: which attempts start
//
// The loop itself never waits for Redis: a [sender] has a step under way, one at a time. What ends meanwhile goes with the
// next one, so under load a step has many tasks, and without load it has one and leaves at once. Each [scope] has two
// senders, so that under load Redis works on the step of one while this process works on the answer of the other.
type loop struct {
	cfg        *Config
	calls      caller
	logger     *slog.Logger
	goroutines *goroutines

	reports  chan report
	requests chan func() // run by the loop, for those who want to know or change its state, see do

	atWork   atomic.Int64        // how many attempts run, but for those that wait for their locks; anybody may read it
	attempts map[string]*attempt // by name, until they are settled
	running  int                 // how many slots are taken
	queues   *queues
	scopes   map[string]*scope
	troubles troubles
	told     teller

	staleSaid time.Time // when it was said last that the outcome of a task does not count
	lapsed    bool      // it is said that locks could not be renewed, and no heartbeat was answered since
	lookAt    time.Time // when expire has to look at the attempts

	stopping  bool // no more tasks are taken
	closing   bool // likewise, as the server shuts down
	suspended bool // likewise, until Suspend(false)
	drained   chan struct{}
	done      chan struct{} // closed when run has returned
}

func newLoop(cfg *Config, calls caller) *loop {
	l := &loop{
		cfg: cfg, calls: calls, logger: cfg.Logger,
		reports:  make(chan report, 2*cfg.Concurrency+16),
		requests: make(chan func()),
		attempts: make(map[string]*attempt),
		queues:   newQueues(cfg.Queues, cfg.Strict),
		scopes:   make(map[string]*scope),
		troubles: troubles{logger: cfg.Logger},
		drained:  make(chan struct{}),
		done:     make(chan struct{}),
	}
	l.goroutines = &goroutines{most: int64(cfg.Concurrency), done: l.done, next: make(chan func())}
	l.told.goroutines = l.goroutines
	for queue := range cfg.Queues {
		if name := l.scopeOf(queue); l.scopes[name] == nil {
			l.scopes[name] = newScope(l, name)
		}
	}
	return l
}

// scopeOf returns the scope of a queue: what a step can reach in one call. On one Redis that is all, and in a Cluster each
// queue has its own slot.
func (l *loop) scopeOf(queue string) string {
	if l.cfg.Cluster {
		return queue
	}
	return ""
}

// run runs until ctx ends. Then nobody watches over the locks of the attempts any more, so the contexts of their handlers
// end, and what they report goes nowhere. It returns when the user's functions have been told all.
func (l *loop) run(ctx context.Context) {
	defer l.told.wait()
	defer l.abort()
	defer close(l.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		l.expire(now)
		l.sendSteps(ctx, now)
		l.sendBeat(ctx, now)
		l.listen()
		l.checkDrained()
		timer.Reset(time.Until(l.nextTime(now)))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case r := <-l.reports:
			l.report(r)
			for more := true; more; { // what has ended by now goes together
				select {
				case r := <-l.reports:
					l.report(r)
				default:
					more = false
				}
			}
		case f := <-l.requests:
			f()
		}
	}
}

// do has the loop run f, and returns when it has. It returns an error when ctx ends, or once the loop has ended.
func (l *loop) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case l.requests <- func() { f(); close(done) }:
		<-done
		return nil
	case <-l.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send sends a report to the loop, if that still runs.
func (l *loop) send(r report) {
	select {
	case l.reports <- r:
	case <-l.done:
	}
}

// report takes what an attempt has come to.
func (l *loop) report(r report) {
	a := r.attempt
	if l.attempts[a.Attempt] != a || !a.ended.IsZero() {
		l.reportOfGone(r)
		return
	}
	a.outcome = r.outcome
	if r.outcome.Kind == taskredis.More {
		a.batch = r.batch
		l.toSend(a)
		return
	}
	if r.outcome.Kind != taskredis.Ask {
		a.ended = time.Now()
		l.running -= a.slots
	}
	if a.Lock != "" {
		l.queues.found([]string{a.Queue}, time.Now()) // the step that frees the lock takes who waits for it
	}
	l.toSend(a)
}

// reportOfGone takes a report of an attempt that the loop has given up, or that has ended already.
func (l *loop) reportOfGone(r report) {
	switch a := r.attempt; {
	case r.outcome.Kind == taskredis.Ask: // it does not get its lock
		close(a.granted)
	case r.outcome.Kind == taskredis.More: // it gets no members
		r.batch.complete()
	case a.ended.IsZero(): // it went on for too long, and returns only now
		a.lost.Store(true)
		l.tellSettled(a)
	}
}

// toSend has the outcome of an attempt go with the next step of its scope.
func (l *loop) toSend(a *attempt) {
	sc := l.scopes[l.scopeOf(a.Queue)]
	sc.unsent = append(sc.unsent, a)
}

// sendSteps has each scope send a step if there is something to say, or if it is to take tasks.
func (l *loop) sendSteps(ctx context.Context, now time.Time) {
	single := l.cfg.Cluster
	for _, sc := range l.scopes {
		single = single || sc.careful > 0
	}
	free := l.free()
	draws, slots := l.queues.draw(free, now, single, func(queue string) bool { return l.scopes[l.scopeOf(queue)].mayTake(free) })
	for _, sc := range l.scopes {
		sc.send(ctx, now, draws, slots)
	}
}

// free returns how many slots a step may ask tasks for: those that are not taken, and not promised to a step that is
// under way. If such a step comes to nothing for too long, others get its slots: one master of a Cluster that does not answer must
// not keep the slots from the others.
func (l *loop) free() int {
	if l.stopping || l.suspended {
		return 0
	}
	n := l.cfg.Concurrency - l.running
	for _, sc := range l.scopes {
		for _, s := range sc.senders {
			if s.flight != nil && !s.flight.overdue() {
				n -= len(s.flight.Slots)
			}
		}
	}
	return min(n, mostSlots)
}

// hasFound tells the loop that queues may have something to take.
func (l *loop) hasFound(queues ...string) {
	_ = l.do(context.Background(), func() { l.queues.found(queues, time.Now()) })
}

// notified is hasFound for a wake-up that no other server has: without a slot it is passed on.
func (l *loop) notified(ctx context.Context, queues ...string) {
	_ = l.do(ctx, func() {
		l.queues.found(queues, time.Now())
		if len(queues) > 0 && l.free() <= 0 {
			go func() { _ = l.calls.Notify(ctx, queues...) }() // another server may have a slot
		}
	})
}

// cancel ends the context of a task, as asynq's CancelProcessing asks for; or of a batch, if the task is in one.
func (l *loop) cancel(id string) {
	_ = l.do(context.Background(), func() {
		for _, a := range l.attempts {
			if a.ID == id {
				l.cancelContext(a.worker(), context.Canceled)
			}
		}
	})
}

// nextTime returns when the loop has to look again if nothing happens.
func (l *loop) nextTime(now time.Time) time.Time {
	next := now.Add(mostSleep)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for _, sc := range l.scopes {
		sc.next(sooner)
		if len(l.attempts) > 0 && sc.beat == nil {
			sooner(sc.beatNext)
		}
	}
	if l.free() > 0 { // else nothing is drawn
		if at, ok := l.queues.next(); ok {
			sooner(at)
		}
	}
	if len(l.attempts) > 0 {
		sooner(l.lookAt)
	}
	return next
}

// listen has the listener of each scope wait for notifications if there are slots for what it would tell of, and nothing is
// known to be there.
func (l *loop) listen() {
	if l.free() <= 0 {
		return
	}
	for _, sc := range l.scopes {
		if len(sc.armed) == 0 && l.queues.idle(sc.name) && !sc.sending() {
			sc.armed <- l.queues.served(time.Now()) // only the loop sends
		}
	}
}

// checkDrained says once that all is over.
func (l *loop) checkDrained() {
	if l.stopping && l.running == 0 && !l.sending() {
		select {
		case <-l.drained:
		default:
			close(l.drained)
		}
	}
}

// sending reports whether an outcome is on its way, or a step that may take tasks. One that only asks whether Redis has forgotten
// something is nothing to wait for.
func (l *loop) sending() bool {
	for _, sc := range l.scopes {
		if sc.waiting() > 0 {
			return true
		}
		for _, s := range sc.senders {
			if s.flight != nil && len(s.flight.Outcomes)+len(s.flight.Slots) > 0 {
				return true
			}
		}
	}
	return false
}
