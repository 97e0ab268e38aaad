package inspect

import (
	"context"
	"fmt"
	"slices"

	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
)

// A want is a lock that somebody waits for.
type want struct {
	resource  string
	elsewhere bool // tasks wait there for a lock in an external store
	lock      redisstore.Looked
	waiter    string // its name in the wait queue, "" if it is not queued
	queue     string // asynq's, of a task that waits; "" for other work
}

// want returns the lock that the task waits for, or the one that it holds while its handler waits for
// others; nil for none.
func (x *exam) want() *want {
	inside := x.state == StateRunning && x.holds() && !x.gone && len(x.lock.Waits) > 0
	if !x.waits() && !inside {
		return nil
	}
	return &want{resource: x.resource, elsewhere: x.elsewhere, lock: x.lock, waiter: x.waiter(), queue: x.Queue}
}

// reserved reports whether the lock is reserved for the one who wants it.
func (t *want) reserved() bool {
	_, permit := permitOf(t.lock, "", "", t.waiter)
	return permit || t.lock.State == redisstore.LookReserved && t.lock.Holder == t.waiter
}

// A noted is a wait of a holder's work, and what is known of the lock, unless that is elsewhere.
type noted struct {
	Wait

	want want
	key  string
}

// waits returns for what the work of the holder of a lock waits, by the holder's note: the oldest first.
// It leaves out waits that are over. It takes one round trip, and none if the holder has noted nothing.
func (i *Inspector) waits(ctx context.Context, l redisstore.Looked) ([]noted, error) {
	var at []redisstore.LookAt
	var found []noted
	for _, w := range l.Waits {
		resource, elsewhere, ok := i.resourceOfKey(w.Key)
		if !ok {
			resource = w.Key // of another prefix, which the user of Redis may not read
		}
		n := noted{Wait: Wait{Resource: resource, Until: utc(w.Until), Elsewhere: w.Elsewhere || elsewhere || !ok}, key: w.Key}
		if n.want = (want{resource: resource, waiter: w.Waiter}); !n.Elsewhere {
			at = append(at, redisstore.LookAt{Key: w.Key, Waiter: w.Waiter})
		}
		found = append(found, n)
	}
	if len(at) == 0 {
		return found, nil
	}
	looked, err := redisstore.Look(ctx, i.rdb, at)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	next := 0
	for n := range found {
		if !found[n].Elsewhere {
			found[n].want.lock, found[n].Position = looked[next], looked[next].Position
			next++
		}
	}
	return slices.DeleteFunc(found, noted.over), nil
}

// over reports whether the wait is over. A holder that has just died, or cannot reach Redis, may leave an
// old note.
func (n noted) over() bool {
	switch {
	case n.Elsewhere:
		return false // the lock is not known here
	case n.want.waiter != "":
		return n.Position == 0
	default:
		return n.want.lock.State == redisstore.LookFree
	}
}

// behind returns for what the holder of at waits itself, nil for nothing that is known, and says so in
// link. The holder is a task that is parked, or its work waits. behind also returns the waits of the work.
// The one that closes a cycle counts, or else the one that has lasted longest.
func (w *inquiry) behind(ctx context.Context, at *want, holder *exam, link *Link, seen []string) (*want, []Wait, error) {
	switch {
	case holder != nil && holder.waits():
		link.Resource, link.Position = holder.resource, holder.lock.Position
		return holder.want(), nil, nil
	case link.Gone, at.lock.Revoking, holder != nil && holder.State != "active":
		return nil, nil, nil // its work ends, or has ended
	}
	all, err := w.waits(ctx, at.lock)
	if err != nil || len(all) == 0 {
		return nil, nil, err
	}
	one := all[max(0, slices.IndexFunc(all, func(n noted) bool { return n.closes(seen) }))]
	link.Resource, link.Position, link.Until, link.Elsewhere = one.Resource, one.Position, one.Until, one.Elsewhere
	if one.Elsewhere {
		return nil, told(all), nil
	}
	return &one.want, told(all), nil
}

// closes reports whether the wait closes a cycle with locks that were seen, as far as the lock itself and
// the note of its holder show.
func (n noted) closes(seen []string) bool {
	return !n.Elsewhere && (slices.Contains(seen, n.key) ||
		slices.ContainsFunc(n.want.lock.Waits, func(w store.Wait) bool { return slices.Contains(seen, w.Key) }))
}

// told returns what is told of waits.
func told(all []noted) []Wait {
	var waits []Wait
	for _, n := range all {
		waits = append(waits, n.Wait)
	}
	return waits
}
