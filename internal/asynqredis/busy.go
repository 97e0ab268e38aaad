package asynqredis

import (
	"fmt"
	"strings"
	"time"
)

// These texts name a busy task and its holder. Go and Lua format them alike.
const (
	holderText   = "%s %s on %s"                                        // kind, id, host
	busyText     = "waiting for %s; when parked, at %s: held by %s%s%s" // resource, time, holder, since, position
	sinceText    = " since %s"
	positionText = ", number %d in the wait queue"
)

// Advance is how much earlier a task comes in a wait queue for each level of its priority.
const Advance = time.Minute

// textsLua defines the texts, and Advance in us, in Lua.
var textsLua = fmt.Sprintf("local HOLDER, BUSY, SINCE, POSITION, ADVANCE = '%s', '%s', '%s', '%s', %d\n",
	holderText, busyText, sinceText, positionText, Advance.Microseconds())

// Holder returns the name of a task as the holder of a lock.
func Holder(kind, id, host string) string { return fmt.Sprintf(holderText, kind, id, host) }

// busyHolder reads the holder in what [BusyReason] returned for resource. It returns false for another
// text.
func busyHolder(reason, resource string) (holder string, ok bool) {
	const clock = len("15:04:05.000")
	rest, ok := strings.CutPrefix(reason, "waiting for ")
	if ok {
		rest, ok = strings.CutPrefix(rest, resource)
	}
	if ok {
		rest, ok = strings.CutPrefix(rest, "; when parked, at ")
	}
	if !ok || len(rest) < clock {
		return "", false
	}
	if holder, ok = strings.CutPrefix(rest[clock:], ": held by "); !ok {
		return "", false
	}
	holder, _, _ = strings.Cut(holder, "; last failure: ")
	if at := strings.LastIndex(holder, ", number "); at >= 0 && strings.HasSuffix(holder, " in the wait queue") {
		holder = holder[:at]
	}
	if at := len(holder) - len(" since ") - clock; at >= 0 && strings.HasPrefix(holder[at:], " since ") {
		holder = holder[:at]
	}
	return holder, true
}

// shownInPart is the least length of a holder that a lock may show in part. A lock keeps 200 bytes
// of whole characters.
const shownInPart = 197

// IsHolder reports whether holder, as a lock shows it, is that task on any host.
func IsHolder(kind, id, holder string) bool {
	name := Holder(kind, id, "")
	return strings.HasPrefix(holder, name) || len(holder) >= shownInPart && strings.HasPrefix(name, holder)
}

// BusyReason returns what the dashboard shows of a waiting task: who held its lock when it was
// parked. since is zero if it is not known. position is 0 for a task in no wait queue.
func BusyReason(resource, holder string, since time.Time, position int, now time.Time) string {
	const clock = "15:04:05.000"
	granted, queued := "", ""
	if !since.IsZero() {
		granted = fmt.Sprintf(sinceText, since.UTC().Format(clock))
	}
	if position > 0 {
		queued = fmt.Sprintf(positionText, position)
	}
	return fmt.Sprintf(busyText, resource, now.UTC().Format(clock), holder, granted, queued)
}
