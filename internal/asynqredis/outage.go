package asynqredis

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
)

// How long a dequeue that failed is held back: asynq asks again at once. The longest
// is also what it may add to a shutdown.
const (
	firstRest   = 20 * time.Millisecond
	longestRest = time.Second
)

// An outage is how often in a row Redis has not answered dequeues.
type outage struct{ failures atomic.Int32 }

// rest waits, after an error, for longer each time, and for a random part of it less.
func (o *outage) rest(ctx context.Context, err error) {
	if err == nil || errors.Is(err, redis.Nil) {
		o.failures.Store(0)
		return
	}
	longest := firstRest << min(o.failures.Add(1)-1, 10)
	wait := min(longest, longestRest)
	_ = sleep.For(ctx, wait/2+rand.N(wait/2))
}
