package asynqredis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed dequeue.lua
	dequeueSource string
	//go:embed park.lua
	parkSource string

	dequeueScript = newScript(dequeueSource)
	parkScript    = newScript(parkSource)
)

// uniqueMargin is how much longer than a parked task's timer its uniqueness
// lasts at least, for the time it then spends in pending.
const uniqueMargin = time.Minute

// A Hook watches the Redis connection of asynq's servers; see the package
// comment. One hook may serve several clients.
type Hook struct {
	logger  *slog.Logger
	process string        // the first part of the names of this process's attempts
	count   atomic.Uint64 // the second part
	strange atomic.Bool   // a dequeue that we do not know has been seen
	running attempts
}

var _ redis.Hook = (*Hook)(nil)

// NewHook returns a hook; add it to a client with AddHook.
func NewHook(logger *slog.Logger) *Hook {
	return &Hook{logger: logger, process: uuid.NewString()}
}

// Attempt returns the attempt of a task that is under way in this process, nil
// when its dequeue was not seen.
func (h *Hook) Attempt(queue, id string) *Attempt { return h.running.get(queue, id) }

// DialHook passes through.
func (h *Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook passes through: asynq sends its scripts one by one.
func (h *Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook sends asynq's calls on, changed where the package comment says so.
func (h *Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c, likeDequeue := parse(cmd)
		switch c.op {
		case opDequeue:
			return h.dequeue(ctx, next, cmd, c)
		case opDone, opComplete, opRequeue, opRetry, opArchive:
			return h.acknowledge(ctx, next, cmd, c)
		case opNone:
			if likeDequeue && !h.strange.Swap(true) {
				h.logger.WarnContext(ctx, "asynq's scripts are not the ones known: waiting tasks come by their timers only")
			}
		}
		return next(ctx, cmd)
	}
}

func (h *Hook) dequeue(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call) error {
	name := h.process + ":" + strconv.FormatUint(h.count.Add(1), 36)
	got, err := run(ctx, next, dequeueScript, c.keys, c.argv[0], c.argv[1], name)
	if err == nil {
		msg, ok := got.(string)
		if !ok {
			err = fmt.Errorf("%w: %T", errMessage, got)
		} else if id, ferr := field([]byte(msg), fieldID); ferr == nil && id != "" {
			charged, _ := retried([]byte(msg)) // it was read once already
			lease, _ := c.argv[0].(int64)
			h.running.add(&Attempt{Queue: c.queue, ID: id, name: name, retried: charged, lease: lease})
		}
	}
	return answer(cmd, got, err)
}

func (h *Hook) acknowledge(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call) error {
	deadline, ok := ctx.Deadline()
	a := h.running.acknowledging(c.queue, c.arg(0), deadline, ok)
	if a == nil {
		return next(ctx, cmd)
	}
	park, cutOff := a.state()
	if park != nil && (c.op == opRetry || c.op == opArchive) {
		return h.park(ctx, next, cmd, c, a, park)
	}
	if cutOff {
		superseded, err := h.superseded(ctx, next, a)
		if err != nil {
			return answer(cmd, nil, err)
		}
		if superseded {
			h.running.remove(a)
			h.logger.WarnContext(ctx, "a superseded attempt was not acknowledged", "task_id", a.ID, "queue", a.Queue)
			return answer(cmd, "OK", nil)
		}
	}
	err := next(ctx, cmd)
	if err == nil {
		h.running.remove(a)
	}
	return err
}

// park answers asynq's retry or archive call with park.lua instead. Both calls
// carry the task with its last error as their second argument. asynq has charged it
// when it took the error for a failure: without the guard's configuration, or when
// the handler's time was over in the same moment. That is taken back.
func (h *Hook) park(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call, a *Attempt, p *Park) error {
	msg := withRetried(c.arg(1), a.retried)
	unique, err := field([]byte(msg), fieldUniqueKey)
	if err != nil {
		return answer(cmd, nil, err)
	}
	keys := []any{taskKey(a.Queue, a.ID), activeKey(a.Queue), leaseKey(a.Queue), retryKey(a.Queue), pendingKey(a.Queue)}
	if unique != "" {
		keys = append(keys, unique)
	}
	ticket := ""
	if p.Ticket != 0 {
		ticket = strconv.FormatInt(p.Ticket, 10)
	}
	now := time.Now()
	uniqueFor := p.At.Sub(now) + uniqueMargin
	got, err := run(ctx, next, parkScript, keys, a.ID, msg, p.At.Unix(), a.name, ticket, uniqueFor.Milliseconds(), now.UnixNano())
	if err != nil {
		return answer(cmd, nil, err)
	}
	h.running.remove(a)
	if reply, ok := got.([]any); ok && len(reply) == 2 {
		if parked, ok := reply[0].(int64); ok && parked > 0 && p.Done != nil {
			p.Done(int(parked))
		}
	}
	return answer(cmd, "OK", nil)
}

// superseded reports whether another attempt than a is the task's latest, or
// the task is not active any more.
func (h *Hook) superseded(ctx context.Context, next redis.ProcessHook, a *Attempt) (bool, error) {
	get := redis.NewSliceCmd(ctx, "hmget", taskKey(a.Queue, a.ID), "siding_attempt", "state")
	if err := next(ctx, get); err != nil {
		return false, err
	}
	v := get.Val()
	return len(v) != 2 || v[0] != a.name || v[1] != "active", nil
}

// A script is sent down the hooked connection itself, where redis.Script, which
// needs a client, would come through the hook again.
type script struct{ source, sha string }

func newScript(source string) script { return script{source, scriptSHA(source)} }

// run sends a script, by its text if Redis does not know it yet.
func run(ctx context.Context, next redis.ProcessHook, s script, keys []any, argv ...any) (any, error) {
	args := append([]any{"evalsha", s.sha, len(keys)}, keys...)
	args = append(args, argv...)
	cmd := redis.NewCmd(ctx, args...)
	err := next(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", s.source
		cmd = redis.NewCmd(ctx, args...)
		err = next(ctx, cmd)
	}
	return cmd.Val(), err
}

// answer makes cmd, which was never sent, look as if it had been.
func answer(cmd redis.Cmder, v any, err error) error {
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	c, ok := cmd.(*redis.Cmd)
	if !ok {
		err := errors.New("asynqredis: a script call of an unknown type")
		cmd.SetErr(err)
		return err
	}
	c.SetVal(v)
	return nil
}
