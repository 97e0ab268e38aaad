package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/sidingq/siding/inspect"
)

// clock is a time with its zone, and how long ago it is, or how soon it comes; "" for the zero time.
func (a *app) clock(t time.Time) string {
	switch d := a.now().Sub(t); {
	case t.IsZero():
		return ""
	case d < 0:
		return fmt.Sprintf("%s (in %s)", a.moment(t), inspect.Duration(-d))
	default:
		return fmt.Sprintf("%s (%s)", a.moment(t), a.ago(t))
	}
}

// ago is how long ago a time is.
func (a *app) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return inspect.Duration(a.now().Sub(t)).String() + " ago"
}

// moment is a time with its zone.
func (a *app) moment(t time.Time) string {
	return t.In(a.zone).Format("2006-01-02 15:04:05 MST")
}

// count is a number with its noun, whose plural has an s.
func count(n int, noun string) string { return countOf(n, noun, noun+"s") }

// countOf is a number with its noun.
func countOf(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// holderOf says who has a lock.
func holderOf(l inspect.Lock) string {
	switch l.State {
	case inspect.Reserved:
		if len(l.Permits) > 1 {
			return "reserved for " + l.Holder
		}
		return "reserved for a goroutine"
	case inspect.Free:
		return "nobody"
	case inspect.Held, inspect.Revoked, inspect.Foreign:
	}
	if l.Worker != nil { // it has a column of its own
		return strings.TrimSuffix(l.Holder, " on "+l.Worker.Label())
	}
	return l.Holder
}

// workerOf names the process that holds a lock.
func workerOf(l inspect.Lock) string {
	switch {
	case l.Worker == nil && l.Gone: // that of one of several holders
		return "gone"
	case l.Worker == nil:
		return "-"
	case l.Gone:
		return l.Worker.Label() + ", gone"
	}
	return l.Worker.Label()
}

// taskText names a task.
func taskText(t *inspect.Task) string {
	return strings.TrimSpace(t.Kind + " " + t.ID)
}

// leftOf is how long a lock lives if nobody renews it.
func leftOf(l inspect.Lock) string {
	switch {
	case l.Endless:
		return "no end"
	case l.State == inspect.Free:
		return "-"
	}
	return l.Left.String()
}

// waitOf is how long the first has waited, if anybody waits.
func waitOf(l inspect.Lock) string {
	if l.Waiting == 0 {
		return "-"
	}
	return l.OldestWait.String()
}
