package hook

import (
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/sleep"
)

var (
	//go:embed acknowledge.lua
	acknowledgeSource string
	//go:embed keep_ticket.lua
	keepTicketSource string
)

// An acknowledgement that Redis rejects for a while, such as while a slot moves, is sent again.
// asynq would send the call again only every 5 s. Meanwhile the task looks as if its worker had
// died.
const (
	againFor                 = 10 * time.Second
	firstAgain, longestAgain = 10 * time.Millisecond, time.Second
)

// repeatTimeout bounds an acknowledgement that is sent again.
const repeatTimeout = time.Second

// acknowledge sends the call by which asynq ends an attempt. The call changes nothing unless the
// attempt is still the task's latest. If a [Finish] has ended the attempt, acknowledge answers the call
// itself.
func (h *Hook) acknowledge(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call) error {
	deadline, ok := ctx.Deadline()
	a := h.running.acknowledging(c.ended(), c.op, deadline, ok)
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

// sendUnknown sends the call of an asynq that is not the known one as it is. An attempt that waits
// to be parked is still parked. Otherwise asynq would use up a retry, or archive the task.
func (h *Hook) sendUnknown(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call) error {
	if c.likeDequeue() {
		if h.gate.held(ctx) {
			return answer(cmd, "", redis.Nil)
		}
		if err := h.askFirst(ctx, next); err != nil {
			return answer(cmd, nil, err)
		}
		h.started()
	}
	return h.acknowledge(ctx, next, cmd, c)
}

// repeat sends an acknowledgement again. asynq asks for that every few seconds while the lease
// lasts, and once at its shutdown. But asynq has by then cancelled the context of the call. asynq
// repeats one call after the other. If Redis does not answer the first, repeat does not send the
// others for a while.
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

// end parks the attempt, or sends asynq's call with the condition before it.
func (h *Hook) end(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call, a *Attempt) error {
	if grant, ok := a.Grant(); ok {
		h.locking.Unused(grant) // the handler was not called, or did not use the lock
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
	keys, argv, change := c.keys, a.wording(c), func(source string) string { return acknowledgeSource + source }
	if c.op == opRequeue {
		keys = notifyKeys(keys, a.Queue)
		change = func(source string) string { return withNotify(acknowledgeSource + keepTicketSource + source) }
		argv = append(argv, a.Ticket())
	}
	script, known := h.scripts.script(c, "", change)
	if !known {
		return answer(cmd, nil, noScriptError{})
	}
	got, err := script.Run(ctx, next, keys, append(argv, a.Name, slices.Index(c.keys, any(a.key))+1)...)
	if err != nil {
		return answer(cmd, nil, err)
	}
	h.running.remove(a)
	switch {
	case got == over:
		h.ignored(ctx, a)
		got = "OK"
	case c.op == opRequeue:
		a.requeued.Store(true)
	case c.op == opDone || c.op == opComplete:
		h.ended(ctx, a)
	}
	return answer(cmd, got, nil)
}

// over is what acknowledge.lua and finish.lua answer if an attempt is over already.
const over = "over"

// ignored logs an acknowledgement that changed nothing. asynq is told that its call succeeded, as
// nothing is left to do about the attempt.
func (h *Hook) ignored(ctx context.Context, a *Attempt) {
	h.logger.WarnContext(ctx, "the end of an attempt was ignored, as Redis has it already or the task was given to another worker meanwhile; there is nothing to do", "task_id", a.ID, "queue", a.Queue)
}

// wording returns the arguments of an acknowledgement. They contain the task's own last failure.
// asynq would store the reason for which the task has waited instead.
func (a *Attempt) wording(c call) []any {
	const archived, completed = 1, 3 // where the encoded task is
	argv := slices.Clone(c.argv)
	switch {
	case c.op == opArchive && a.overdue != "" && len(argv) > archived:
		argv[archived] = a.overdue
	case c.op == opComplete && a.message.Waited && len(argv) > completed:
		if msg, err := asynqredis.WithFailure(c.arg(completed), a.message.Failure); err == nil {
			argv[completed] = msg
		}
	}
	return argv
}

// park sends park.lua instead of asynq's call. That call may even say that the task is done, as
// middleware around the guard's may have dropped the error.
func (h *Hook) park(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, a *Attempt, p *asynqredis.Park) error {
	parked, err := p.Park(ctx, next, a.Attempt)
	if err != nil {
		return answer(cmd, nil, err)
	}
	h.running.remove(a)
	switch {
	case parked < 0 && !a.Seen():
		return next(ctx, cmd) // this asynq keeps the task in another way than the known one
	case parked < 0:
		h.ignored(ctx, a)
	case p.Done != nil:
		p.Done(parked)
	}
	return answer(cmd, "OK", nil)
}
