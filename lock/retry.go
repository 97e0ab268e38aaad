package lock

import (
	"math/rand/v2"
	"time"
)

// A Retry says when to try again for a lock that is busy, see [Options.Retry]. After the nth busy
// answer to a caller, 1 for the first, a Retry returns the delay before the next try. It returns
// false to give up. A delay of less than 1 ms counts as 1 ms. A Retry must be safe for concurrent
// use. Those of this package keep no state, may be shared, and never give up: [Options.Tries] and
// [Options.Wait] say when.
type Retry func(n int) (delay time.Duration, again bool)

// Fixed tries again every d.
func Fixed(d time.Duration) Retry {
	return func(int) (time.Duration, bool) { return d, true }
}

// Exponential tries again after first, and then after twice as long each time, up to longest. Each
// delay is shorter by a random part, up to a half. So callers that found the lock busy together do
// not come back together.
func Exponential(first, longest time.Duration) Retry {
	return func(n int) (time.Duration, bool) {
		d := max(0, min(first, longest))
		for i := 1; i < n && 0 < d && d < longest; i++ {
			d += min(d, longest-d)
		}
		return d - rand.N(d/2+1), true
	}
}
