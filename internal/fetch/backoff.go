package fetch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
)

// firstPause and longestPause bound how long a call is held back after an error, as asynq repeats a
// failed dequeue at once. A shutdown may take longestPause more.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

// A Backoff counts how often in a row Redis has not answered.
type Backoff struct{ failures atomic.Int32 }

// First reports whether the last call was answered, or there was none.
func (b *Backoff) First() bool { return b.failures.Load() == 0 }

// After waits if err is not nil, for longer each time, and for a random part of it less.
func (b *Backoff) After(ctx context.Context, err error) {
	if err == nil || errors.Is(err, redis.Nil) {
		b.failures.Store(0)
		return
	}
	longest := firstPause << min(b.failures.Add(1)-1, 10)
	pause := min(longest, longestPause)
	_ = sleep.For(ctx, pause/2+rand.N(pause/2))
}
