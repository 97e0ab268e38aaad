package engine

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
)

const (
	// cancelChannel is where asynq's Inspector publishes the ids of tasks that are to be cancelled.
	cancelChannel = "asynq:cancel"
	// cancelSilence is how long a connection may be silent before it is asked for a sign of life, and then until
	// it counts as dead.
	cancelSilence = 5 * time.Second
	// A connection that is lost is made anew after a pause between the two.
	cancelPauseFirst = 100 * time.Millisecond
	cancelPauseMost  = 5 * time.Second
)

// A cancellation hears from Redis which tasks are to be cancelled. Redis delivers a message at most once, so
// what is published while there is no connection is not heard, as in asynq.
type cancellation struct {
	redis  redis.UniversalClient
	cancel func(taskID string) // returns soon; most ids are those of other servers' tasks
	logger *slog.Logger
}

// run listens until ctx ends. It closes what it has opened, and nothing else.
func (c *cancellation) run(ctx context.Context) {
	link := &outage{
		logger: c.logger,
		fails:  "cancellations of tasks are not heard, as the connection to redis is lost",
		works:  "cancellations of tasks are heard again",
	}
	for pause := cancelPauseFirst; ; pause = min(2*pause, cancelPauseMost) {
		began := time.Now()
		link.saw(ctx, c.listen(ctx, link))
		if time.Since(began) > cancelPauseMost {
			pause = cancelPauseFirst // it was a good connection
		}
		if sleep.For(ctx, pause/2+rand.N(pause/2)) != nil { // servers that were cut off together come back apart
			return
		}
	}
}

// listen makes one connection and calls cancel for each message, until the connection is lost.
func (c *cancellation) listen(ctx context.Context, link *outage) error {
	messages := c.redis.Subscribe(ctx, cancelChannel)
	defer messages.Close()
	stop := context.AfterFunc(ctx, func() { _ = messages.Close() })
	defer stop()
	for asked := false; ; {
		message, err := messages.ReceiveTimeout(ctx, cancelSilence)
		silent, isNet := errors.AsType[net.Error](err)
		switch {
		case err != nil && isNet && silent.Timeout() && !asked:
			asked = true
			err = messages.Ping(ctx)
		case err == nil:
			asked = false
		}
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			link.saw(ctx, nil)
		case *redis.Message:
			c.cancel(m.Payload)
		}
	}
}
