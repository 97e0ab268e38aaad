package lock

import (
	"fmt"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// Options say how, and on whose behalf, one call takes a lock. The zero value, like nil,
// tries once, and holds for as long as the work takes.
type Options struct {
	// Holder is what others are shown while this one holds the lock; at most
	// 200 bytes of it. Defaults to the host and process id. It is not secret.
	Holder string
	// Wait is how a refused caller waits: [InLine], or a [Retry] such as
	// [Exponential]. It waits until it has the lock, its context ends, or the Retry
	// gives up. Nil does not wait.
	Wait Wait
	// MaxHold ends a lease that is still held after so long: renewal stops, and
	// the context of the work is cancelled with [ErrMaxHold]. 0 sets no limit.
	MaxHold time.Duration
	// Waiter makes a refused caller join the line of the resource under this
	// name, which must be the same each time it comes, and return. It is called
	// when its turn comes, by whoever hands off the lock, see [Lease.HandOff].
	// It is for those who do not wait in a goroutine. A caller that neither has
	// a name nor waits [InLine] takes a free lock, whoever waits;
	// in etcd only once nobody is in line.
	Waiter string
	// Came is when the waiter came, by the clock of Redis in microseconds, if
	// that is known and was before the call: its place in line goes by it. 0 is now.
	Came int64
	// Reentrant lets a caller take a lock again that its context, one of [Lease.Keep],
	// holds already. At once, and without a call to the store, it gets another lease of
	// the same token and fence; the other options have no effect on that. The lock is
	// released with the last of its leases. Goroutines that share the context are then
	// one holder: they do not exclude one another.
	Reentrant bool
}

func (o Options) check() error {
	switch {
	case o.MaxHold < 0:
		return fmt.Errorf("lock: max hold: want 0 or more, have %v", o.MaxHold)
	case o.Came < 0 || o.Came > 0 && o.Waiter == "":
		return fmt.Errorf("lock: came: want 0, or the time at which a waiter came, have %d", o.Came)
	case o.Waiter != "" && o.Wait != nil:
		return fmt.Errorf("lock: waiter: one that waits for its own turn has no name, have %q", o.Waiter)
	case strings.HasPrefix(o.Waiter, store.CallPrefix):
		return fmt.Errorf("lock: waiter: %q is kept for those who wait in line, have %q", store.CallPrefix, o.Waiter)
	}
	return nil
}
