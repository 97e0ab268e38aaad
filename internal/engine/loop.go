package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// An attempt is a task that this server has taken. It is running until its handler has returned, then ended, until
// a step has settled it. Its fields are the loop's, but for those of run.
type attempt struct {
	taskredis.Taken

	sender *sender // that has taken it, or heard that it has its lock

	ctx     context.Context //nolint:containedctx // the handler's
	cancel  context.CancelCauseFunc
	granted chan *Refusal // the answer to an attempt that has asked for its lock: nil if it has it; closed if it is over

	message *Message
	step    int64 // the number of the step that took it, or gave it the lock it asked for
	started time.Time
	endsBy  time.Time         // when the handler's context ends by itself; maybe before it starts
	over    time.Time         // when it is given up if it has not returned
	trusted time.Time         // until then nobody else can have the lock
	loss    *LostError        // what the handler said of the loss of its lock, if it did
	lost    bool              // the lock or the task is somebody else's: its outcome counts for nothing
	leftOff bool              // its task was put back while its handler goes on, whose fields are not to be read
	ended   time.Time         // when the handler returned; zero before
	outcome taskredis.Outcome // once it has ended, or asks for a lock
	failure error             // of the task's own, if the outcome is one
	task    *Task             // once its handler was called, and the error of that
	err     error
}

// Message is a task as asynq encodes it.
type Message = taskredis.Message

// AsynqTask returns a task as asynq's functions take it.
func AsynqTask(m *Message) *asynq.Task { return asynq.NewTaskWithHeaders(m.Type, m.Payload, m.Headers) }

// A report tells the loop what an attempt has come to.
type report struct {
	attempt *attempt
	outcome taskredis.Outcome
}

// Times of the loop.
const (
	pausedPause = time.Second // before a paused queue is asked again
	mostSleep   = time.Second // of an idle loop
)

// A caller makes the calls of the loop. A test may lose, delay and repeat them.
type caller interface {
	Step(ctx context.Context, s *taskredis.Step) (*taskredis.Answer, error)
	Renew(ctx context.Context, place string, attempts []taskredis.Name) ([]bool, error)
	Began(ctx context.Context, n taskredis.Name) (latest bool, err error)
	Notify(ctx context.Context, queues ...string) error
}

// The loop is the part of a server that talks to Redis about tasks. One goroutine runs it, and nothing else
// touches its state:
//
//	notified, timers ──> found ─┐
//	handlers ──────────> reports ┼─> loop ──> step: what has ended, how many slots are free
//	operators ────────> canceled ┘     └──< answer: which attempts start
//
// The loop itself never waits for Redis: a [sender] has a step under way, one at a time. What ends meanwhile goes with the
// next one, so under load a step has many tasks, and without load it has one and leaves at once. Each [place] has two
// senders, so that under load Redis works on the step of one while this process works on the answer of the other.
type loop struct {
	cfg    *Config
	calls  caller
	logger *slog.Logger

	reports  chan report
	answers  chan answered
	beats    chan beaten
	found    chan []string // queues that may have something to take
	notified chan []string // likewise, and no other server was told
	canceled chan string   // ids of tasks that an operator cancels
	requests chan func()   // run by the loop, for those who want to know or change its state

	atWork   atomic.Int64        // how many attempts run, but for those that wait for their locks; anybody may read it
	attempts map[string]*attempt // by name, until they are settled
	running  int                 // how many slots are taken
	queues   *queues
	places   map[string]*place
	troubles troubles

	beat     []*attempt // of the heartbeat that is under way; nil for none
	beatNext time.Time
	lookAt   time.Time // when expire has to look at the attempts

	armed    []chan []string // of the listeners, see there: one, and in a Cluster one for each queue
	stopping bool            // no more tasks are taken
	closing  bool            // likewise, as the server shuts down
	held     bool            // likewise, for now
	drained  chan struct{}
	over     chan struct{} // closed when run has returned
}

func newLoop(cfg *Config, calls caller) *loop {
	l := &loop{
		cfg: cfg, calls: calls, logger: cfg.Logger,
		reports:  make(chan report, 2*cfg.Concurrency+16),
		answers:  make(chan answered, 16),
		beats:    make(chan beaten, 4),
		found:    make(chan []string, 16),
		notified: make(chan []string),
		canceled: make(chan string, 16),
		requests: make(chan func()),
		attempts: make(map[string]*attempt),
		queues:   newQueues(cfg.Queues, cfg.Strict),
		places:   make(map[string]*place),
		troubles: troubles{logger: cfg.Logger},
		drained:  make(chan struct{}),
		over:     make(chan struct{}),
	}
	for queue := range cfg.Queues {
		if name := l.placeOf(queue); l.places[name] == nil {
			l.places[name] = newPlace(l, name)
			l.armed = append(l.armed, make(chan []string, 1))
		}
	}
	return l
}

// placeOf returns the place of a queue: what a step can reach in one call. On one Redis that is all, and in a Cluster each
// queue has its own slot.
func (l *loop) placeOf(queue string) string {
	if l.cfg.Cluster {
		return queue
	}
	return ""
}

// run runs until ctx ends. Then nobody watches over the locks of the attempts any more, so the contexts of their handlers
// end, and what they report goes nowhere.
func (l *loop) run(ctx context.Context) {
	defer l.abort()
	defer close(l.over)
	timer := time.NewTimer(0)
	defer timer.Stop()
	l.beatNext = time.Now().Add(l.cfg.RenewEvery)
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
		case a := <-l.answers:
			a.sender.answered(ctx, a)
		case b := <-l.beats:
			l.beaten(ctx, b)
		case queues := <-l.found:
			l.queues.found(queues, time.Now())
		case queues := <-l.notified:
			l.queues.found(queues, time.Now())
			if len(queues) > 0 && l.free() <= 0 {
				go func() { _ = l.calls.Notify(ctx, queues...) }() // another server may have a slot
			}
		case id := <-l.canceled:
			l.cancelTask(id)
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
	case <-l.over:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send sends a report to the loop, if that still runs.
func (l *loop) send(r report) {
	select {
	case l.reports <- r:
	case <-l.over:
	}
}

// report takes what an attempt has come to.
func (l *loop) report(r report) {
	a := r.attempt
	if l.attempts[a.Attempt] != a || !a.ended.IsZero() {
		if r.outcome.Kind == taskredis.Ask {
			close(a.granted)
		} else if a.ended.IsZero() { // it was given up, as it went on for too long
			a.lost = true
			l.settled(a)
		}
		return
	}
	a.outcome = r.outcome
	if r.outcome.Kind != taskredis.Ask {
		a.ended = time.Now()
		l.running--
	}
	if a.Lock != "" {
		l.queues.found([]string{a.Queue}, time.Now()) // the step that frees the lock takes who waits for it
	}
	l.waits(a)
}

// waits adds an attempt whose outcome goes with the next step of its place.
func (l *loop) waits(a *attempt) {
	p := l.places[l.placeOf(a.Queue)]
	p.waiting = append(p.waiting, a)
}

// sendSteps has each place send a step if there is something to say, or if it is to take tasks.
func (l *loop) sendSteps(ctx context.Context, now time.Time) {
	single := l.cfg.Cluster
	for _, p := range l.places {
		single = single || p.careful > 0
	}
	free := l.free()
	draws, slots := l.queues.draw(free, now, single, func(queue string) bool { return l.places[l.placeOf(queue)].mayTake(free) })
	for _, p := range l.places {
		p.send(ctx, now, draws, slots)
	}
}

// free returns how many slots a step may ask tasks for: those that are not taken, and not promised to a step that is
// under way.
func (l *loop) free() int {
	if l.stopping || l.held {
		return 0
	}
	n := l.cfg.Concurrency - l.running
	for _, p := range l.places {
		for _, s := range p.senders {
			if s.flight != nil {
				n -= len(s.flight.Slots)
			}
		}
	}
	return min(n, mostSlots)
}

// result takes what a step has made of an outcome.
func (l *loop) result(by *sender, a *attempt, result taskredis.Result, reply taskredis.Reply, step int64, sent time.Time) {
	switch result {
	case taskredis.Granted:
		a.Lock, a.Fence, a.sender, a.step, a.trusted = reply.Lock, reply.Fence, by, step, l.trust(sent)
		a.outcome = taskredis.Outcome{}
		l.lookBy(a.trusted)
		l.beatIfLate(a)
		if !time.Now().Before(a.trusted) { // the answer took too long
			l.lose(a)
		}
		a.granted <- nil
	case taskredis.Rejected, taskredis.Coalesced:
		a.outcome = taskredis.Outcome{}
		a.granted <- &Refusal{Holder: reply.Holder, Waiting: reply.Waiting, Coalesced: reply.Other}
	case taskredis.Settled:
		l.settled(a)
		if a.failure != nil && l.cfg.Failed != nil {
			tell(a.ctx, l.logger, "Failed", func() { l.cfg.Failed(a.ctx, l.taskOf(a), a.outcome.Kind, a.failure) })
		}
		l.forget(a)
	case taskredis.Parked:
		l.give(a)
	case taskredis.Lost:
		if a.outcome.Kind == taskredis.Ask || a.outcome.Kind == taskredis.Requeue || l.attempts[a.Attempt] != a {
			l.give(a)
			return
		}
		if a.message == nil || a.loss != nil || a.lost && a.outcome.Kind == taskredis.Again { // it has not run, or its outcome says so
			a.outcome.Lock = "" // then the step does not ask whether the attempt has it
			l.waits(a)
			return
		}
		a.lost = true
		l.running++ // until its new outcome is reported
		a.ended, a.over = time.Time{}, time.Now().Add(l.cfg.Overrun)
		l.lookBy(a.over)
		go func() {
			o := l.lostOutcome(a, a.loss)
			o.Lock = "" // as above
			l.send(report{a, o})
		}()
	case taskredis.Stale:
		if l.attempts[a.Attempt] == a {
			l.logger.Warn("a task is somebody else's by now, and its outcome does not count", "queue", a.Queue, "task_id", a.ID, "outcome", a.outcome.Kind)
			a.lost = true
			l.settled(a)
		}
		l.give(a)
	default:
		l.logger.Error("Redis could not settle a task; it runs again once its lease is over", "queue", a.Queue, "task_id", a.ID, "outcome", a.outcome.Kind, "error", string(result))
		l.give(a)
	}
}

// settled tells of an attempt that has ended.
func (l *loop) settled(a *attempt) {
	if l.cfg.Settled == nil || a.leftOff || a.task == nil {
		return
	}
	loss := (*LostError)(nil)
	lost := a.lost || errors.Is(context.Cause(a.ctx), store.ErrLost) || errors.As(a.err, &loss)
	tell(a.ctx, l.logger, "Settled", func() { l.cfg.Settled(a.task, a.err, lost) })
}

// give gives an attempt up. If Redis still has it, its task comes again once its lease is over. One that has asked for its lock
// does not begin.
func (l *loop) give(a *attempt) {
	if a.outcome.Kind == taskredis.Ask && l.attempts[a.Attempt] == a {
		l.running--
		close(a.granted)
	}
	l.forget(a)
}

func (l *loop) forget(a *attempt) {
	if l.attempts[a.Attempt] == a {
		delete(l.attempts, a.Attempt)
	}
	if a.cancel != nil && !a.ended.IsZero() {
		a.cancel(nil)
	}
}

// trust returns until when a lock is ours for sure that was ours after sent.
func (l *loop) trust(sent time.Time) time.Time { return sent.Add(l.cfg.TTL - l.cfg.SafetyMargin) }

// take begins an attempt that a sender has taken.
func (l *loop) take(ctx context.Context, by *sender, t *taskredis.Taken, step int64, sent, now time.Time) {
	a := &attempt{Taken: *t, sender: by, step: step, started: now}
	l.attempts[a.Attempt] = a
	m, err := taskredis.DecodeMessage(a.Encoded)
	switch {
	case l.stopping, a.Lock != "" && !now.Before(l.trust(sent)): // in the second case the answer took too long
		a.outcome = taskredis.Outcome{Name: a.Name, Kind: taskredis.Requeue}
	case err != nil:
		l.logger.ErrorContext(ctx, "a task cannot be read; it is archived as it is", "queue", a.Queue, "task_id", a.ID, "error", err)
		a.outcome = taskredis.Outcome{Name: a.Name, Kind: taskredis.Archive, Message: a.Encoded}
	}
	if a.outcome.Kind != "" {
		a.ended = now
		l.waits(a)
		return
	}
	a.message, a.endsBy, a.over = m, m.EndsBy(now), now.Add(l.cfg.Overrun)
	if a.Fence == taskredis.DeadlineOver {
		a.endsBy = now
	}
	if a.endsBy.After(now) {
		a.over = a.endsBy.Add(l.cfg.Overrun)
	}
	l.lookBy(a.over)
	if a.Lock != "" {
		a.trusted = l.trust(sent)
		l.lookBy(a.trusted)
	}
	l.running++
	l.beatIfLate(a)
	a.ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	a.granted = make(chan *Refusal, 1)
	l.atWork.Add(1)
	go l.runAttempt(a) //nolint:contextcheck // the attempt has a context of its own
}

// beatIfLate has a heartbeat come at once if the answer with an attempt's lock took long, as the lock may be about to expire.
func (l *loop) beatIfLate(a *attempt) {
	if now := time.Now(); a.Lock != "" && a.trusted.Before(now.Add(l.cfg.RenewEvery)) {
		l.beatNext = now
	}
}

// hasFound tells the loop that queues may have something to take. It does not wait: whoever looks finds it again.
func (l *loop) hasFound(queues ...string) {
	select {
	case l.found <- queues:
	default:
	}
}

// cancel has the loop end the context of a task. It does not wait for that.
func (l *loop) cancel(id string) {
	select {
	case l.canceled <- id:
	case <-l.over:
	}
}

// cancelTask ends the context of a task, as asynq's CancelProcessing asks for.
func (l *loop) cancelTask(id string) {
	for _, a := range l.attempts {
		if a.ID == id && a.cancel != nil {
			a.cancel(context.Canceled)
		}
	}
}

// expire ends what must not go on: a handler whose lock may be somebody else's, and the renewal of one that has not
// returned long after its context has ended.
func (l *loop) expire(now time.Time) {
	if now.Before(l.lookAt) {
		return
	}
	l.lookAt = now.Add(time.Hour)
	for _, a := range l.attempts {
		if !a.ended.IsZero() {
			continue
		}
		if a.Lock != "" && !a.lost {
			if !now.Before(a.trusted) {
				l.logger.Warn("the lock of a task could not be renewed in time, and counts as lost", "queue", a.Queue, "task_id", a.ID)
				l.lose(a)
			} else {
				l.lookBy(a.trusted)
			}
		}
		switch {
		case now.Before(a.over):
			l.lookBy(a.over)
		case a.outcome.Kind == taskredis.Ask: // no handler is at work, but an answer under way
			l.lookBy(now.Add(time.Second))
		default:
			l.logger.Error("a handler goes on after its time is over; its lock is not renewed any more, and its slot is free", "queue", a.Queue, "task_id", a.ID, "task_kind", a.message.Type)
			l.running--
			a.cancel(store.ErrLost)
			delete(l.attempts, a.Attempt)
		}
	}
}

// lookBy has expire look at the attempts at a time, or before.
func (l *loop) lookBy(at time.Time) {
	if at.Before(l.lookAt) {
		l.lookAt = at
	}
}

// lose ends the context of a handler whose lock or task is somebody else's.
func (l *loop) lose(a *attempt) {
	a.lost = true
	if a.cancel != nil {
		a.cancel(store.ErrLost)
	}
}

// nextTime returns when the loop has to look again if nothing happens.
func (l *loop) nextTime(now time.Time) time.Time {
	next := now.Add(mostSleep)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for _, p := range l.places {
		p.next(sooner)
	}
	if l.free() > 0 { // else nothing is drawn
		if at, ok := l.queues.next(); ok {
			sooner(at)
		}
	}
	if l.beat == nil && len(l.attempts) > 0 {
		sooner(l.beatNext)
	}
	if len(l.attempts) > 0 {
		sooner(l.lookAt)
	}
	return next
}

// listen has the listener wait for notifications if there are slots for what it would tell of, and nothing is known to
// be there.
func (l *loop) listen() {
	if l.free() <= 0 || !l.queues.idle() || l.sending() {
		return
	}
	for _, armed := range l.armed {
		if len(armed) == 0 {
			armed <- l.queues.served(time.Now()) // only the loop sends
		}
	}
}

// abort ends the contexts of all handlers.
func (l *loop) abort() {
	for _, a := range l.attempts {
		if a.cancel != nil {
			a.cancel(errShutdown)
		}
	}
}

// giveUp gives the tasks back whose handlers go on after abort, and does not wait for these. A task with a lock stays theirs,
// as nobody else may begin it before they return.
func (l *loop) giveUp() {
	for _, a := range l.attempts {
		if a.ended.IsZero() && a.Lock == "" && a.outcome.Kind != taskredis.Ask {
			l.logger.Warn("a handler goes on after the end of its server; its task is put back", "queue", a.Queue, "task_id", a.ID, "task_kind", a.message.Type)
			a.leftOff = true
			l.report(report{a, taskredis.Outcome{Name: a.Name, Kind: taskredis.Requeue}})
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

// sending reports whether an outcome or a step is on its way.
func (l *loop) sending() bool {
	for _, p := range l.places {
		if len(p.waiting) > 0 || p.underWay() > 0 {
			return true
		}
	}
	return false
}
