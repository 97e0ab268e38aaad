package asynqredis

import (
	"context"
	_ "embed"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/sleep"
)

var (
	//go:embed acknowledge.lua
	acknowledgeSource string
	//go:embed park.lua
	parkSource string
	//go:embed aside.lua
	asideSource string
	//go:embed requeue.lua
	requeueSource string

	parkScript = newScript(bellSource + encodedSource + asideSource + parkSource)
)

// uniqueMargin is how much longer than a parked task's timer its uniqueness
// lasts at least, for the time it then spends in pending.
const uniqueMargin = time.Minute

// An acknowledgement that Redis has refused for a while, such as where a slot moves, is sent again.
// asynq would do so after 5 s, and no more often than every 5 s, while the task looks as if its worker
// had died.
const (
	againFor                 = 10 * time.Second
	firstAgain, longestAgain = 10 * time.Millisecond, time.Second
)

// repeatTimeout bounds an acknowledgement that is sent again.
const repeatTimeout = time.Second

// acknowledge sends the call by which asynq ends an attempt. The call changes nothing unless the
// attempt is still the task's latest. It is not sent if a [Finish] has ended the attempt.
func (h *Hook) acknowledge(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call) error {
	queue, id := c.ended()
	deadline, ok := ctx.Deadline()
	a := h.running.acknowledging(queue, id, c.op, deadline, ok)
	if a == nil {
		return next(ctx, cmd)
	}
	a.ending.Lock()
	defer a.ending.Unlock()
	a.ended = true
	if a.finished.Load() {
		return h.finishedBefore(ctx, cmd, c, a)
	}
	if ctx.Err() != nil {
		return h.repeat(ctx, next, cmd, c, a)
	}
	start, err := time.Now(), h.end(ctx, next, cmd, c, a)
	for wait := firstAgain; redisreply.Transient(err) && time.Since(start) < againFor && sleep.For(ctx, wait) == nil; wait = min(2*wait, longestAgain) {
		cmd.SetErr(nil)
		err = h.end(ctx, next, cmd, c, a)
	}
	return err
}

// finishedBefore answers asynq's call for an attempt that a [Finish] has ended.
func (h *Hook) finishedBefore(ctx context.Context, cmd redis.Cmder, c call, a *Attempt) error {
	h.running.remove(a)
	if c.op == opRetry || c.op == opArchive {
		h.logger.WarnContext(ctx, "asynq takes a task for failed that is done: its time was over, or middleware around the guard's returned an error", "task_id", a.ID, "queue", a.Queue)
	}
	return answer(cmd, "OK", nil)
}

// passOn sends the call of an asynq that is not the known one as it is. An attempt that is to be parked
// is parked all the same: asynq would charge it, or archive it.
func (h *Hook) passOn(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call) error {
	if c.likeDequeue() {
		if h.gate.held(ctx) {
			return answer(cmd, "", redis.Nil)
		}
		if err := h.askFirst(ctx, next); err != nil {
			return answer(cmd, nil, err)
		}
		h.begun()
	}
	if _, id := c.ended(); id == "" {
		return next(ctx, cmd)
	}
	return h.acknowledge(ctx, next, cmd, c)
}

// repeat sends an acknowledgement again. asynq tries that every few seconds while
// the lease lasts, and once at its shutdown, but with a context that it has
// cancelled itself. It does so one by one: where Redis does not answer to the first,
// the others are not tried.
func (h *Hook) repeat(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call, a *Attempt) error {
	if time.Now().UnixNano() < h.noRepeatBefore.Load() {
		return answer(cmd, nil, ctx.Err())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), repeatTimeout)
	defer cancel()
	err := h.end(ctx, next, cmd, c, a)
	if err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		h.noRepeatBefore.Store(time.Now().Add(repeatTimeout).UnixNano())
	}
	return err
}

// end parks the attempt, or sends asynq's word on it with the condition in front.
func (h *Hook) end(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call, a *Attempt) error {
	if grant, ok := a.Grant(); ok {
		h.ahead.Unused(grant) // its handler was not called, or did not want it
	}
	if park := a.parking(); park != nil && c.op != opRequeue {
		return h.park(ctx, next, cmd, a, park)
	}
	if !a.Seen() || c.op == opNone {
		err := next(ctx, cmd)
		if err == nil {
			h.running.remove(a)
		}
		return err
	}
	keys, argv, change := c.keys, a.wording(c), conditional
	if c.op == opRequeue {
		keys = ringKeys(keys, a.Queue)
		change = func(source string) string { return withRing(acknowledgeSource + requeueSource + source) }
		argv = append(argv, ticketOf(a.Came))
	}
	script, known := h.acks.script(c, change)
	if !known {
		return answer(cmd, nil, noScriptError{})
	}
	got, err := run(ctx, next, script, keys, append(argv, a.name, c.op.taskKey())...)
	if err != nil {
		return answer(cmd, nil, err)
	}
	h.running.remove(a)
	switch {
	case got == over:
		h.ignored(ctx, a)
		got = "OK"
	case c.op == opRequeue:
		a.requeue()
	case c.op == opDone || c.op == opComplete:
		h.first.ended(a)
	}
	return answer(cmd, got, nil)
}

// conditional puts the condition in front of one of asynq's scripts.
func conditional(source string) string { return acknowledgeSource + source }

// over is what acknowledge.lua and finish.lua answer if an attempt is over already.
const over = "over"

// ignored reports an acknowledgement that changed nothing. For asynq it is as good
// as any other: there is nothing left to be done about the attempt.
func (h *Hook) ignored(ctx context.Context, a *Attempt) {
	h.logger.WarnContext(ctx, "the end of an attempt was ignored, as Redis has it already or the task was given to another worker meanwhile; there is nothing to do", "task_id", a.ID, "queue", a.Queue)
}

// ticketOf is a ticket as scripts have it, "" for none.
func ticketOf(ticket int64) string {
	if ticket == 0 {
		return ""
	}
	return strconv.FormatInt(ticket, 10)
}

// wording returns the arguments of an acknowledgement, with the task's own last failure where
// asynq would keep for what it has waited.
func (a *Attempt) wording(c call) []any {
	const archived, completed = 1, 3 // where the encoded task is
	argv := slices.Clone(c.argv)
	switch {
	case c.op == opArchive && a.overdue != "" && len(argv) > archived:
		argv[archived] = a.overdue
	case c.op == opComplete && a.waited && len(argv) > completed:
		if msg, err := withFailure(c.arg(completed), a.failure); err == nil {
			argv[completed] = msg
		}
	}
	return argv
}

// park answers asynq's call with park.lua instead: also where asynq takes the task for done, as
// middleware around the guard's may have kept the error to itself.
func (h *Hook) park(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, a *Attempt, p *Park) error {
	keys := []any{taskKey(a.Queue, a.ID), activeKey(a.Queue), leaseKey(a.Queue), retryKey(a.Queue), pendingKey(a.Queue), bellKey(a.Queue), contendedKey(a.Queue)}
	got, err := run(ctx, next, parkScript, keys, a.ID, p.Reason, p.At.Unix(), a.name, ticketOf(p.Ticket), uniqueMargin.Milliseconds(), p.Key, p.Resource)
	if err != nil {
		return answer(cmd, nil, err)
	}
	h.running.remove(a)
	parked := int64(-1)
	if reply, ok := got.([]any); ok && len(reply) == 2 {
		parked, _ = reply[0].(int64)
	}
	switch {
	case parked < 0 && !a.Seen():
		return next(ctx, cmd) // it is not kept as the known asynq keeps it
	case parked < 0:
		h.ignored(ctx, a)
	case p.Done != nil:
		p.Done(int(parked))
	}
	return answer(cmd, "OK", nil)
}
