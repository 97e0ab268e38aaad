package asynqredis

import (
	"fmt"
	"regexp"
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

// textsLua defines the texts in Lua.
var textsLua = fmt.Sprintf("local HOLDER, BUSY, SINCE, POSITION = '%s', '%s', '%s', '%s'\n", holderText, busyText, sinceText, positionText)

// Holder returns the name of a task as the holder of a lock.
func Holder(kind, id, host string) string { return fmt.Sprintf(holderText, kind, id, host) }

// busyRest is what follows the resource in a busyText.
var busyRest = regexp.MustCompile(`(?s)^; when parked, at [\d:.]{12}: held by (.*?)(?: since [\d:.]{12})?(?:, number \d+ in the wait queue)?(?:; last failure: .*)?$`)

// busyHolder reads the holder in what [BusyReason] returned for resource. It returns false for another
// text.
func busyHolder(reason, resource string) (holder string, ok bool) {
	rest, ok := strings.CutPrefix(reason, "waiting for "+resource)
	if !ok {
		return "", false
	}
	found := busyRest.FindStringSubmatch(rest)
	if found == nil {
		return "", false
	}
	return found[1], true
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
