package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sidingq/siding/lock"
)

// An unchargedError sends a task back without using up a retry and without
// counting as a failure: it was not the task's own doing.
type unchargedError struct {
	reason string        // shown as the task's last error
	after  time.Duration // when the task tries again by itself
	ticket int64         // its ticket in the line, 0 when it stands in none
	// refusals is how often in a row it has been refused a lock that has no line, with this.
	refusals int
	cause    error
}

func (e *unchargedError) Error() string { return e.reason }
func (e *unchargedError) Unwrap() error { return e.cause }

func uncharged(err error) (*unchargedError, bool) {
	var u *unchargedError
	ok := errors.As(err, &u)
	return u, ok
}

// busyReason is what the dashboard shows of a waiting task.
func busyReason(b *lock.BusyError) string {
	since := ""
	if !b.Since.IsZero() {
		since = " since " + b.Since.UTC().Format("15:04:05.000")
	}
	place := ""
	if b.Place > 0 {
		place = ", " + ordinal(b.Place) + " in line"
	}
	return fmt.Sprintf("waiting for %s, held by %s%s%s", b.Resource, b.Holder, since, place)
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// Timers of waiting tasks. They are the safety net under the call, so they may be long,
// but for the first in line, who takes over from a holder that died.
const (
	// spacing spreads the timers of those behind: each place adds this much.
	spacing = 500 * time.Millisecond
	// longestTimer bounds the spread; who has fallen out of the line comes after that.
	longestTimer = 5 * time.Minute
	// A holder on the plain protocol calls nobody back, so its waiters look
	// themselves: place by place, less often the longer they have waited.
	foreignStep    = time.Second
	foreignLongest = 30 * time.Second
	// unlinedDelay is for tasks that stand in no line.
	unlinedDelay = time.Second
	// Where there is no line, the tasks look themselves: soon at first, as most locks are
	// held for long enough to meet and no longer, and then less often, as each look takes a
	// worker and a call to every node of the locks. A thousand that wait for one resource
	// are some fifty looks a second. The longest is 30 s with its jitter, see spread.
	firstLook   = time.Second
	longestLook = 20 * time.Second
)

// lookAfter returns when a task that has been refused so often in a row is to look
// again, if there is no line, without the jitter that [spread] adds.
func lookAfter(refusals int) time.Duration {
	d := firstLook
	for ; refusals > 1 && d < longestLook; refusals-- {
		d *= 2
	}
	return min(d, longestLook)
}

// spread takes off or adds up to a half, at random: those who were refused together are to
// come one by one. asynq keeps whole seconds, so those of one second still do.
func spread(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// waitFor returns when a refused task is to try again by itself, without the
// jitter that [timerOf] adds.
func waitFor(b *lock.BusyError) time.Duration {
	switch {
	case b.Place == 0:
		return unlinedDelay
	case b.Foreign:
		return min(max(time.Duration(b.Place)*foreignStep, b.Waited/4), foreignLongest)
	}
	// asynq keeps whole seconds and rounds down: one more, so that the timer
	// does not fire before the lock has run out.
	wait := b.Remaining + time.Second
	if b.Place > 1 {
		// Less often the longer it has waited: behind locks that are held for long, lines
		// would else keep Redis busy with timers.
		wait += min(max(time.Duration(b.Place-1)*spacing, b.Waited/4), longestTimer)
	}
	return wait
}

// timerOf returns when a refused task is to try again by itself. The head of a
// line gets no jitter: when a holder has died it is to run within two seconds of
// the lock's end, one for asynq's whole seconds and one for the interval at which
// a server looks at its timers.
func timerOf(b *lock.BusyError) time.Duration {
	if b.Place == 1 && !b.Foreign {
		return waitFor(b)
	}
	return jitter(waitFor(b))
}

// jitter adds up to half a second or, if that is more, a twentieth, at random,
// so that a long line does not come all at once.
func jitter(d time.Duration) time.Duration {
	return d + rand.N(max(d/20, 500*time.Millisecond))
}
