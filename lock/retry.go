package lock

import (
	"math/rand/v2"
	"time"
)

// A Wait is how a refused caller waits: [InLine] or a [Retry].
type Wait interface{ wait() }

// InLine waits in the line of the resource, in order of arrival, and is told
// when its turn has come: no time is lost in between, and nothing is polled. It
// needs a [Store] that tells waiters of their turn; on another it waits as
// Exponential(25 ms, 1 s) does. For a holder on the plain protocol, who tells
// nobody of its release, it polls: the first in line at least every second, those
// further back less often, up to 30 s. The Locker then listens on a connection of
// its own, until [Locker.Close].
func InLine() Wait { return inLine{} }

type inLine struct{}

func (inLine) wait() {}

// A Retry says what to do after the nth refusal of a caller, 1 for the first:
// try again after a delay, which is at least 1 ms, or give up. It must be safe for
// concurrent use; those of this package keep no state and may be shared.
type Retry func(n int) (delay time.Duration, again bool)

func (Retry) wait() {}

// Fixed tries again every d.
func Fixed(d time.Duration) Retry {
	return func(int) (time.Duration, bool) { return d, true }
}

// Linear tries again after step, then after 2*step, and so on up to longest.
func Linear(step, longest time.Duration) Retry {
	return func(n int) (time.Duration, bool) {
		if step > 0 && int64(n) > int64(longest/step) {
			return longest, true
		}
		return time.Duration(n) * step, true
	}
}

// Exponential tries again after first, and then after twice as long each time,
// up to longest. A random part of each delay, up to its half, is left out, so that
// those who were refused together do not come back together.
func Exponential(first, longest time.Duration) Retry {
	return func(n int) (time.Duration, bool) {
		d := max(0, min(first, longest))
		for i := 1; i < n && 0 < d && d < longest; i++ {
			d += min(d, longest-d)
		}
		return d - rand.N(d/2+1), true
	}
}

// Limit gives up after the nth refusal, and before that does what r says. To wait
// behind others of the same process counts as no refusal: bound that by the context.
func Limit(n int, r Retry) Retry {
	return func(refusal int) (time.Duration, bool) {
		if refusal >= n {
			return 0, false
		}
		return r(refusal)
	}
}
