package inspect

import (
	"context"
	"fmt"
	"slices"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
)

// A want is a lock that somebody waits for.
type want struct {
	sight

	waiter string // the name of a goroutine in the wait queue, or ""
}

// want returns the lock that the task waits for, or the one that it holds while its handler waits for
// others; nil for none.
func (x *exam) want() *want {
	inside := x.state == StateRunning && x.holds() && !x.gone && len(x.lock.Waits) > 0
	if !x.waits() && !inside {
		return nil
	}
	return &want{sight: x.lock}
}

// reserved reports whether the lock is reserved for the one who wants it.
func (t *want) reserved() bool {
	if t.waiter == "" {
		return false
	}
	return t.State == lockredis.LookReserved && t.Holder == t.waiter ||
		slices.ContainsFunc(t.Permits, func(p lockredis.Permit) bool { return p.Reserved && p.Name == t.waiter })
}

// A noted is a wait of a holder's work, and what is known of the lock, unless that is elsewhere.
type noted struct {
	Wait

	want want
	key  string
}

// waits returns for what the work of the holder of a lock waits, by the holder's note: the oldest first.
// It leaves out waits that are over. It takes one round trip, and none if the holder has noted nothing.
func (i *Inspector) waits(ctx context.Context, l lockredis.Looked) ([]noted, error) {
	var at []lockredis.LookAt
	var found []noted
	for _, w := range l.Waits {
		s, _, ok := i.spotOf(w.Key)
		if !ok {
			s.resource = w.Key // of another prefix, which the user of Redis may not read
		}
		n := noted{Wait: Wait{Resource: s.resource, Until: utc(w.Until), Elsewhere: w.Elsewhere || s.elsewhere || !ok}, key: w.Key}
		if n.want = (want{sight: sight{spot: spot{resource: s.resource}}, waiter: w.Waiter}); !n.Elsewhere {
			at = append(at, lockredis.LookAt{Key: w.Key, Waiter: w.Waiter})
		}
		found = append(found, n)
	}
	if len(at) == 0 {
		return found, nil
	}
	looked, err := lockredis.Look(ctx, i.rdb, at)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	next := 0
	for n := range found {
		if !found[n].Elsewhere {
			found[n].want.Looked, found[n].Position = looked[next], looked[next].Position
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
		return n.want.State == lockredis.LookFree
	}
}

// behind returns for what the holder of at waits itself, nil for nothing that is known, and says so in
// link. The holder is a task that waits, or its work does. behind also returns the waits of the work.
// The one that closes a cycle counts, or else the one that has lasted longest.
func (w *inquiry) behind(ctx context.Context, at *want, holder *exam, link *Link, seen []string) (*want, []Wait, error) {
	switch {
	case holder != nil && holder.waits():
		link.Resource, link.Position = holder.resource, holder.lock.Position
		return holder.want(), nil, nil
	case link.Gone, at.Revoking, holder != nil && holder.State != "active":
		return nil, nil, nil // its work ends, or has ended
	}
	all, err := w.waits(ctx, at.Looked)
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
		slices.ContainsFunc(n.want.Waits, func(w store.Wait) bool { return slices.Contains(seen, w.Key) }))
}

// told returns what is told of waits.
func told(all []noted) []Wait {
	var waits []Wait
	for _, n := range all {
		waits = append(waits, n.Wait)
	}
	return waits
}
