package asynqredis

import (
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

//go:embed dequeue.lua
var dequeueSource string

var dequeueScript = newScript(dequeueSource)

// A Hook watches the Redis connection of asynq's servers; see the package
// comment. One hook may serve several clients.
type Hook struct {
	logger  *slog.Logger
	begun   func()
	process string        // the first part of the names of this process's attempts
	count   atomic.Uint64 // the second part
	strange atomic.Bool   // a dequeue that we do not know has been seen
	running attempts
	acks    acks
	outage  outage
	// noRepeatBefore, in Unix nanoseconds: Redis has just not answered.
	noRepeatBefore atomic.Int64
}

var _ redis.Hook = (*Hook)(nil)

// NewHook returns a hook; add it to a client with AddHook. begun is called once, when
// the first dequeue is seen.
func NewHook(logger *slog.Logger, begun func()) *Hook {
	return &Hook{logger: logger, begun: sync.OnceFunc(begun), process: uuid.NewString()}
}

// Attempt returns the attempt of a task that is under way in this process, nil
// when its dequeue was not seen.
func (h *Hook) Attempt(queue, id string) *Attempt { return h.running.get(queue, id) }

// Overlaps reports whether an earlier attempt of a's task is still at work in this
// process. Of two at once asynq keeps one lease, and it may be the wrong one.
func (h *Hook) Overlaps(a *Attempt) bool { return h.running.overlaps(a) }

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
			if a, result := h.resultOf(cmd); a != nil {
				return h.writeResult(ctx, next, cmd, a, result)
			}
			if likeDequeue && !h.strange.Swap(true) {
				h.logger.WarnContext(ctx, "asynq's scripts are not the ones known: waiting tasks come by their timers only")
			}
		}
		return next(ctx, cmd)
	}
}

func (h *Hook) dequeue(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call) error {
	h.begun()
	name := h.process + ":" + strconv.FormatUint(h.count.Add(1), 36)
	got, err := run(ctx, next, dequeueScript, c.keys, c.argv[0], c.argv[1], name)
	h.outage.rest(ctx, err)
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
