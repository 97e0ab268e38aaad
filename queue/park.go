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
	ticket int64         // its ticket, 0 for none
	inLine bool          // it stands in line under its ticket
	cause  error
}

func (e *unchargedError) Error() string { return e.reason }
func (e *unchargedError) Unwrap() error { return e.cause }

func uncharged(err error) (*unchargedError, bool) {
	var u *unchargedError
	ok := errors.As(err, &u)
	return u, ok
}

// busyReason is what the dashboard shows of a waiting task: how things were when it was parked.
func busyReason(b *lock.BusyError, now time.Time) string {
	const clock = "15:04:05.000"
	since := ""
	if !b.Since.IsZero() {
		since = " since " + b.Since.UTC().Format(clock)
	}
	place := ""
	if b.Place > 0 {
		place = ", " + ordinal(b.Place) + " in line"
	}
	return fmt.Sprintf("waiting for %s; when parked, at %s: held by %s%s%s", b.Resource, now.UTC().Format(clock), b.Holder, since, place)
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

const (
	// A task in line is called, and the sweeper makes up for a call that is lost. Should both
	// fail, it comes by itself after fallback, and fallbackSpread more at the latest: of a
	// million tasks that wait, 280 a second.
	fallback       = time.Hour
	fallbackSpread = time.Hour
	// unlinedDelay is for tasks that stand in no line.
	unlinedDelay = time.Second
	// unwiredDelay is for tasks of a server that was not made as it has to be.
	unwiredDelay = 5 * time.Minute
)

// timerOf returns when a refused task comes by itself.
func timerOf(b *lock.BusyError) time.Duration {
	if b.Place == 0 {
		return jitter(unlinedDelay)
	}
	return fallback + rand.N(fallbackSpread)
}

// lossDelay returns when a task that has lost its lock for the n-th time comes by itself.
func lossDelay(n int) time.Duration {
	const longest = time.Minute
	return min(unlinedDelay<<min(n-1, 10), longest)
}

// jitter adds up to half a second or, if that is more, a twentieth, at random,
// so that a long line does not come all at once.
func jitter(d time.Duration) time.Duration {
	return d + rand.N(max(d/20, 500*time.Millisecond))
}
