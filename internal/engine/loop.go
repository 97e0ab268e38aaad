package engine

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// An attempt is a task that this server has taken. It is running until its handler has returned, then ended, until
// a step has settled it. Its fields are the loop's, but for those of run.
type attempt struct {
	taskredis.Taken

	ctx     context.Context //nolint:containedctx // the handler's
	cancel  context.CancelCauseFunc
	granted chan int64 // the fence of the lock that the attempt has asked for; closed if it does not get it

	message *Message
	step    int64 // the number of the step that took it, or gave it the lock it asked for
	started time.Time
	endsBy  time.Time         // when the handler's context ends by itself
	trusted time.Time         // until then nobody else can have the lock
	lost    bool              // the lock or the task is somebody else's: its outcome counts for nothing
	ended   time.Time         // when the handler returned; zero before
	outcome taskredis.Outcome // once it has ended, or asks for a lock
}

// Message is a task as asynq encodes it.
type Message = taskredis.Message

// A report tells the loop what an attempt has come to.
type report struct {
	attempt *attempt
	outcome taskredis.Outcome
}

// An answered is what came of one sending of a step, or of a heartbeat.
type answered[T any] struct {
	number int64
	sent   time.Time
	answer T
	err    error
}

// Times of the loop.
const (
	firstSilence = 250 * time.Millisecond // after which a step is sent again; the time doubles
	mostSilence  = 4 * time.Second
	mostTries    = 4                // of a step at once
	refusedPause = time.Second      // before a step that Redis has refused is sent again
	pausedPause  = time.Second      // before a paused queue is asked again
	mostSleep    = time.Second      // of an idle loop
	remember     = 10 * time.Second // outcomes, for a Redis that forgets them in a failover
)

// Bounds of a step.
const (
	mostOutcomes     = 200
	mostOutcomeBytes = 1 << 20
	mostSlots        = 100
)

// A caller makes the calls of the loop. A test may lose, delay and repeat them.
type caller interface {
	Step(ctx context.Context, s *taskredis.Step) (*taskredis.Answer, error)
	Renew(ctx context.Context, attempts []taskredis.Name) ([]bool, error)
}

// The loop is the part of a server that talks to Redis about tasks. One goroutine runs it, and nothing else
// touches its state:
//
//	notified, timers ──> found ─┐
//	handlers ──────────> reports ┼─> loop ──> step: what has ended, how many slots are free
//	operators ────────> canceled ┘     └──< answer: which attempts start
//
// It has one step under way at a time. What ends meanwhile goes with the next one, so under load a step has
// many tasks, and without load it has one and leaves at once. The loop itself never waits for Redis.
type loop struct {
	cfg    *Config
	calls  caller
	logger *slog.Logger

	reports  chan report
	answers  chan answered[*taskredis.Answer]
	beats    chan answered[[]bool]
	found    chan []string // queues that may have something to take
	canceled chan string   // ids of tasks that an operator cancels
	requests chan func()   // run by the loop, for those who want to know or change its state

	attempts map[string]*attempt // by name, until they are settled
	waiting  []*attempt          // whose outcomes wait for a step
	running  int                 // how many slots are taken
	queues   *queues
	clock    clock

	number   int64 // of the last step
	recorded int64 // of the last step that Redis has recorded, and when
	at       time.Time
	step     *flight
	after    time.Time // no step leaves before
	careful  bool      // a step was refused: they have one outcome or one queue each
	recent   []sentOutcomes

	beat     *beat
	beatNext time.Time
	watched  time.Time // when expire has to look at the attempts

	armed    chan struct{} // see listener
	stopping bool          // no more tasks are taken
	drained  chan struct{}
}

// A flight is the step that is under way.
type flight struct {
	*taskredis.Step

	attempts []*attempt // of the outcomes; nil for those that are sent again after a failover
	tries    int        // that have no answer yet
	silence  time.Duration
	again    time.Time
}

type sentOutcomes struct {
	number   int64
	at       time.Time
	outcomes []taskredis.Outcome
}

func newLoop(cfg *Config, calls caller) *loop {
	return &loop{
		cfg: cfg, calls: calls, logger: cfg.Logger,
		reports:  make(chan report, 2*cfg.Concurrency+16),
		answers:  make(chan answered[*taskredis.Answer], 16),
		beats:    make(chan answered[[]bool], 4),
		found:    make(chan []string, 16),
		canceled: make(chan string, 16),
		requests: make(chan func()),
		attempts: make(map[string]*attempt),
		queues:   newQueues(cfg.Queues, cfg.Strict),
		armed:    make(chan struct{}, 1),
		drained:  make(chan struct{}),
	}
}

// run runs until ctx ends.
func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	l.beatNext = time.Now().Add(l.cfg.RenewEvery)
	for {
		now := time.Now()
		l.expire(now)
		l.sendStep(ctx, now)
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
			l.answered(ctx, a)
		case b := <-l.beats:
			l.beaten(b)
		case found := <-l.found:
			l.queues.found(found)
		case id := <-l.canceled:
			l.cancelTask(id)
		case f := <-l.requests:
			f()
		}
	}
}

// do has the loop run f, and returns when it has; or when ctx ends.
func (l *loop) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case l.requests <- func() { f(); close(done) }:
		<-done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// report takes what an attempt has come to.
func (l *loop) report(r report) {
	a := r.attempt
	if l.attempts[a.Attempt] != a {
		return // it was given up, as it went on for too long
	}
	a.outcome = r.outcome
	if r.outcome.Kind != taskredis.Ask {
		a.ended = time.Now()
		l.running--
	}
	l.waiting = append(l.waiting, a)
}

// sendStep sends a step if there is something to say or to take, and the last one again if its answer is late.
func (l *loop) sendStep(ctx context.Context, now time.Time) {
	if l.step != nil {
		if !now.Before(l.step.again) && l.step.tries < mostTries {
			l.try(ctx, l.step)
		}
		return
	}
	if now.Before(l.after) {
		return
	}
	f := &flight{Step: &taskredis.Step{}, silence: firstSilence}
	l.addOutcomes(f)
	if !l.careful || len(f.Outcomes) == 0 {
		free := 0
		if !l.stopping {
			free = min(l.cfg.Concurrency-l.running, mostSlots)
		}
		most := mostSlots
		if l.careful {
			most = 1
		}
		f.Draws, f.Slots = l.queues.draw(free, most, now)
	}
	if len(f.Outcomes) == 0 && len(f.Slots) == 0 {
		l.careful = false
		return
	}
	l.number++
	f.Number, f.Sent = l.number, l.clock.at(now)
	l.step = f
	l.try(ctx, f)
}

// addOutcomes moves the outcomes that wait into a step, as many as it may have.
func (l *loop) addOutcomes(f *flight) {
	most, bytes := mostOutcomes, 0
	if l.careful {
		most = 1
	}
	n := 0
	for n < len(l.waiting) && n < most && bytes < mostOutcomeBytes {
		a := l.waiting[n]
		f.attempts = append(f.attempts, a)
		f.Outcomes = append(f.Outcomes, a.outcome)
		bytes += len(a.outcome.Message)
		n++
	}
	l.waiting = append(l.waiting[:0], l.waiting[n:]...)
}

// try sends a step once more. The answers to its tries are the same, and the first that comes counts.
func (l *loop) try(ctx context.Context, f *flight) {
	now := time.Now()
	f.tries++
	f.again = now.Add(f.silence)
	f.silence = min(2*f.silence, mostSilence)
	step := f.Step
	go func() {
		answer, err := l.calls.Step(ctx, step)
		select {
		case l.answers <- answered[*taskredis.Answer]{step.Number, now, answer, err}:
		case <-ctx.Done():
		}
	}()
}

// answered takes the answer of a step.
func (l *loop) answered(ctx context.Context, a answered[*taskredis.Answer]) {
	f := l.step
	if f == nil || f.Number != a.number {
		return // another try was answered before
	}
	f.tries--
	now := time.Now()
	switch {
	case a.err == nil:
		l.step = nil
		l.apply(ctx, f, a.answer, a.sent, now)
	case !redisreply.Answered(a.err):
		l.complain(a.err) // nothing is known: the step is sent again
	case passes(a.err):
		// Redis has changed nothing by this try, but maybe by an earlier one. So the step stays the same.
		l.complain(a.err)
		f.again = now.Add(refusedPause)
	default:
		l.step = nil
		l.refused(f, a.err, now)
	}
}

// passes reports whether Redis refused a call for a reason that ends by itself.
func passes(err error) bool {
	var answer interface{ RedisError() }
	if errors.As(err, &answer) && strings.HasPrefix(answer.(error).Error(), "OOM") { //nolint:errorlint,forcetypeassert // it is one
		return true
	}
	return redisreply.Transient(err)
}

// refused is called with a step that Redis will always refuse. What it names is sent one by one from now on, so the one
// thing that is wrong holds up nothing else.
func (l *loop) refused(f *flight, err error, now time.Time) {
	one := len(f.Outcomes)+len(f.Draws) == 1
	switch {
	case one && len(f.Outcomes) == 1:
		o := f.Outcomes[0]
		l.logger.Error("Redis refuses the outcome of a task; it runs again once its lease is over", "queue", o.Queue, "id", o.ID, "outcome", o.Kind, "err", err)
		if a := f.attempts[0]; a != nil {
			l.forget(a)
		}
	case one:
		l.logger.Error("Redis gives no tasks of a queue", "queue", f.Draws[0].Queue, "err", err)
		l.queues.rest(f.Draws[0].Queue, now.Add(refusedPause))
	default:
		l.waiting = append(f.attempts, l.waiting...)
		l.careful = true
		for _, d := range f.Draws {
			l.queues.found([]string{d.Queue})
		}
	}
}

// apply does what the answer of a step says. sent is when the try left that was answered, so what the answer says was so
// after that.
func (l *loop) apply(ctx context.Context, f *flight, a *taskredis.Answer, sent, now time.Time) {
	l.clock.set(a.Now, now)
	if a.Known < l.recorded && now.Sub(l.at) < taskredis.Recorded {
		l.forgotten(a.Known, now)
	}
	if len(f.Outcomes) > 0 || len(a.Taken) > 0 {
		l.recorded, l.at = f.Number, now
	}
	if len(f.Outcomes) > 0 {
		l.recent = append(l.recent, sentOutcomes{f.Number, now, f.Outcomes})
	}
	for len(l.recent) > 0 && now.Sub(l.recent[0].at) > remember {
		l.recent = l.recent[1:]
	}
	for i, result := range a.Results {
		if at := f.attempts[i]; at != nil {
			l.result(at, result, a.Grants[i], f.Number, sent)
		}
	}
	for i, d := range a.Drawn {
		l.queues.drawn(f.Draws[i].Queue, d, now)
	}
	if len(a.Drawn) == 0 { // answered from the record, which knows nothing of the queues
		for _, d := range f.Draws {
			l.queues.found([]string{d.Queue})
		}
	}
	for i := range a.Taken {
		l.take(ctx, &a.Taken[i], f.Number, sent, now)
	}
	for _, text := range a.Troubles {
		l.logger.Warn("a key in Redis is not what it should be", "what", text)
	}
	if l.cfg.Parked != nil && len(a.Parked) > 0 {
		l.cfg.Parked(a.Parked)
	}
	if l.cfg.Recovered != nil {
		for _, name := range a.Recovered {
			l.cfg.Recovered(name)
		}
	}
}

// forgotten is called when Redis has lost the steps after a number, in a failover. The outcomes of the last seconds are
// sent again: a task that is at work again, for Redis, holds a lock that nobody will free. What was taken by a lost step
// is not ours any more.
func (l *loop) forgotten(known int64, now time.Time) {
	l.logger.Warn("Redis has lost the last writes; sending outcomes again", "step", l.recorded, "known", known)
	for _, sent := range l.recent {
		if sent.number <= known || now.Sub(sent.at) > remember {
			continue
		}
		for _, o := range sent.outcomes {
			if o.Kind != taskredis.Ask {
				l.waiting = append(l.waiting, &attempt{outcome: o, Taken: taskredis.Taken{Name: o.Name}})
			}
		}
	}
	l.recent = nil
	for _, a := range l.attempts {
		if a.step > known && a.ended.IsZero() {
			l.lose(a)
		}
	}
	l.beatNext = now // which of the others does Redis still know?
}

// result takes what a step has made of an outcome.
func (l *loop) result(a *attempt, result taskredis.Result, grant taskredis.Grant, step int64, sent time.Time) {
	switch result {
	case taskredis.Granted:
		a.Lock, a.Fence, a.step, a.trusted = grant.Lock, grant.Fence, step, l.trust(sent)
		l.watch(a.trusted)
		a.granted <- grant.Fence
	case taskredis.Settled:
		l.forget(a)
	case taskredis.Parked:
		l.running--
		l.forget(a)
		close(a.granted)
	case taskredis.Lost:
		if a.outcome.Kind == taskredis.Ask || a.outcome.Kind == taskredis.Requeue || l.attempts[a.Attempt] != a {
			l.give(a)
			return
		}
		a.lost = true
		l.running++ // until its new outcome is reported
		a.ended = time.Time{}
		go func() {
			o := l.lostOutcome(a)
			o.Lock = "" // there is none to free
			l.reports <- report{a, o}
		}()
	case taskredis.Stale:
		if l.attempts[a.Attempt] == a {
			l.logger.Warn("a task is somebody else's by now, and its outcome does not count", "queue", a.Queue, "id", a.ID, "outcome", a.outcome.Kind)
		}
		l.give(a)
	default:
		l.logger.Error("Redis could not settle a task; it runs again once its lease is over", "queue", a.Queue, "id", a.ID, "outcome", a.outcome.Kind, "err", string(result))
		l.give(a)
	}
}

// give gives an attempt up that Redis knows no more. One that has asked for its lock does not begin.
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

// take begins an attempt.
func (l *loop) take(ctx context.Context, t *taskredis.Taken, step int64, sent, now time.Time) {
	a := &attempt{Taken: *t, step: step, started: now}
	l.attempts[a.Attempt] = a
	m, err := taskredis.DecodeMessage(a.Encoded)
	switch {
	case l.stopping:
		a.outcome = taskredis.Outcome{Name: a.Name, Kind: taskredis.Requeue}
	case err != nil:
		l.logger.Error("a task cannot be read; it is archived as it is", "queue", a.Queue, "id", a.ID, "err", err)
		a.outcome = taskredis.Outcome{Name: a.Name, Kind: taskredis.Archive, Message: a.Encoded}
	}
	if a.outcome.Kind != "" {
		a.ended = now
		l.waiting = append(l.waiting, a)
		return
	}
	a.message, a.endsBy = m, m.EndsBy(now)
	l.watch(a.endsBy.Add(l.cfg.Overrun))
	if a.Lock != "" {
		a.trusted = l.trust(sent)
		l.watch(a.trusted)
	}
	l.running++
	if a.Lock != "" && a.trusted.Before(now.Add(l.cfg.RenewEvery)) {
		l.beatNext = now // the answer took long: the lock may be about to expire
	}
	a.ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	a.granted = make(chan int64, 1)
	go l.runAttempt(a)
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
	if now.Before(l.watched) {
		return
	}
	l.watched = now.Add(time.Hour)
	for _, a := range l.attempts {
		if !a.ended.IsZero() {
			continue
		}
		if a.Lock != "" && !a.lost {
			if !now.Before(a.trusted) {
				l.logger.Warn("a task has lost its lock, as Redis did not answer in time", "queue", a.Queue, "id", a.ID)
				l.lose(a)
			} else {
				l.watch(a.trusted)
			}
		}
		if over := a.endsBy.Add(l.cfg.Overrun); now.Before(over) {
			l.watch(over)
		} else {
			l.logger.Error("a handler goes on after its time is over; its lock is not renewed any more, and its slot is free", "queue", a.Queue, "id", a.ID, "kind", a.message.Type)
			l.running--
			a.cancel(store.ErrLost)
			delete(l.attempts, a.Attempt)
		}
	}
}

// watch has expire look at the attempts at a time, or before.
func (l *loop) watch(at time.Time) {
	if at.Before(l.watched) {
		l.watched = at
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
	if l.step != nil {
		if l.step.tries < mostTries {
			sooner(l.step.again)
		}
	} else {
		if now.Before(l.after) {
			sooner(l.after)
		}
		if !l.stopping && l.running < l.cfg.Concurrency {
			if at, ok := l.queues.next(); ok {
				sooner(at)
			}
		}
	}
	if l.beat == nil && len(l.attempts) > 0 {
		sooner(l.beatNext)
	}
	if len(l.attempts) > 0 {
		sooner(l.watched)
	}
	return next
}

// complain logs that Redis does not answer, or refuses, once in a while.
func (l *loop) complain(err error) {
	if l.logger.Enabled(context.Background(), slog.LevelWarn) && l.clock.mayComplain() {
		l.logger.Warn("Redis does not take the last step; it is sent again", "err", err)
	}
}

// listen has the listener wait for notifications if there are slots for what it would tell of, and nothing is known to
// be there.
func (l *loop) listen() {
	if l.stopping || l.step != nil || l.running >= l.cfg.Concurrency || !l.queues.idle() {
		return
	}
	select {
	case l.armed <- struct{}{}:
	default:
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

// checkDrained says once that all is over.
func (l *loop) checkDrained() {
	if l.stopping && l.running == 0 && l.step == nil && len(l.waiting) == 0 {
		select {
		case <-l.drained:
		default:
			close(l.drained)
		}
	}
}

// A clock tells Redis' time by the answers of Redis.
type clock struct {
	redis      int64
	local      time.Time
	complained time.Time
}

func (c *clock) set(redis int64, local time.Time) { c.redis, c.local = redis, local }

func (c *clock) at(local time.Time) int64 { return c.redis + local.Sub(c.local).Microseconds() }

func (c *clock) mayComplain() bool {
	now := time.Now()
	if now.Sub(c.complained) < 5*time.Second {
		return false
	}
	c.complained = now
	return true
}
