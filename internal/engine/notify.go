package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/taskredis"
)

// A listener waits for notifications while the loop has free slots and knows of no work. Whoever puts something into
// a queue puts an element into the list of the queue, which wakes one of the servers that wait.
type listener struct {
	redis  redis.Cmdable
	idle   func(ctx context.Context, queues ...string) error // says so; nil where no queue's line is beside that of another
	queues []string
	tell   func(ctx context.Context, queues ...string)
	armed  chan []string // has an element while the loop wants to be told: the queues that it serves
	wake   string        // a list in the same slot, of this server alone, by which it ends its own call
	logger *slog.Logger
}

// listenFor is for how long one call waits. The loop looks for itself as often.
const listenFor = time.Second

func (l *listener) run(ctx context.Context) {
	keys := make([]string, len(l.queues), len(l.queues)+1)
	for i, queue := range l.queues {
		keys[i] = taskredis.NotifyKey(queue)
	}
	keys = append(keys, l.wake)
	listening := outage{logger: l.logger, fails: "cannot wait for notifications of new tasks; looking for them once a second"}
	said := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case served := <-l.armed:
			if l.idle != nil && time.Since(said) > listenFor/2 {
				said = time.Now()
				_ = l.idle(ctx, served...) // the next call finds out what is wrong
			}
		}
		popped, err := l.redis.BLPop(ctx, listenFor, keys...).Result()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			listening.saw(ctx, nil)
			if i := slices.Index(keys, popped[0]); i < len(l.queues) {
				l.tell(ctx, l.queues[i])
			}
		case errors.Is(err, redis.Nil):
			listening.saw(ctx, nil)
			l.tell(ctx) // so that the loop arms it again if it is still idle
		default:
			listening.saw(ctx, errors.New(strings.TrimSpace(err.Error())))
			_ = sleep.For(ctx, listenFor)
			l.tell(ctx, l.queues...)
		}
	}
}

// stop ends a call that waits, once the context of run has ended. It would end by itself within a second.
func (l *listener) stop(ctx context.Context) {
	_ = taskredis.Wake(ctx, l.redis, l.wake)
}
