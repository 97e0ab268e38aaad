package lock

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
)

// Forever is an [Options.Wait] that ends with the caller's context only.
const Forever time.Duration = math.MaxInt64

// Options say how one call takes a lock. The zero value, like nil, tries once, and sets no limit to
// the work.
type Options struct {
	// Wait is how long to wait for a lock that is busy. 0 tries once, and [Forever] waits until the
	// context ends. Wait bounds the waiting, never the work. The caller waits in the wait queue of
	// the resource, which serves all processes in order of arrival. The release wakes the first.
	//
	// A caller whose context holds another lock waits for less, by a random part of up to a quarter. So of
	// two that hold a lock each, and wait for the other's, one gives up first and the other goes on.
	// With Forever neither does. [Locker.DoAll] takes several locks without that.
	Wait time.Duration
	// Retry, if set, tries again after delays instead of queueing, such as [Fixed] or
	// [Exponential]. A Retry needs a Wait. A caller that polls may be overtaken. It also takes a
	// free lock whoever is queued; in etcd only once nobody is queued.
	Retry Retry
	// Tries is how often a caller with a Retry asks before it gives up, with the error of the last
	// try. 0 sets no limit.
	Tries int
	// TTL replaces Config.TTL for this lock, at least 100 ms. 0 leaves it.
	TTL time.Duration
	// MaxHold ends a lease that is still held after so long. The lease is then not renewed any
	// more, and its contexts end with [ErrLost]. So MaxHold limits work whose context never ends. 0
	// sets no limit.
	MaxHold time.Duration
	// NoRenew leaves the lease as it is: it ends when its TTL is over, unless [Lease.Renew] prolongs it.
	// Its contexts end before anybody else can have the lock, with [ErrLost], and [Locker.Do] returns
	// that if its function took longer. [Lease.Release] after that end is no error. Use it for a lock that
	// should outlast the work, such as for at most one mail a minute.
	NoRenew bool
	// Holder is a note for others, such as the holder's name or some JSON, of at most 200 bytes. Those who
	// find the lock busy read it in [BusyError], and operators see it. It defaults to the host and process
	// id. Do not put secrets there.
	Holder string
	// Limit is how many may hold the lock at once, 1 to 1000. 0 means 1. Each holder has a fencing
	// token and a lease of its own. All callers that take the lock need the same Limit and Rates: each
	// keeps to its own. A caller without a Limit, and a program on the plain protocol, get the lock only
	// while nobody else has it, and then keep all others out. Only [Redis] is a [Store] that knows limits.
	//
	// Do not fence what several holders write: a store that refuses lower tokens refuses the older of
	// two holders, although both have the lock.
	Limit int
	// Rates say how often the lock may be taken, all of them at once. The caller waits for its time
	// in the wait queue. At most 8.
	Rates []Rate
	// Reentrant takes a lock again that the context, one of [Lease.Context] or [Locker.Do], holds
	// already. The caller gets another lease of the same fencing token at once, without a call to
	// the store. The other options then have no effect. The release of the last lease releases the
	// lock. Goroutines that share the context are one holder: they do not exclude one another.
	Reentrant bool
}

func (o Options) check() error {
	switch {
	case o.Wait < 0:
		return fmt.Errorf("lock: wait: want 0 or more, have %v", o.Wait)
	case o.Retry != nil && o.Wait == 0:
		return errors.New("lock: wait: want more than 0 with a retry, such as lock.Forever, have 0s")
	case o.Tries < 0 || o.Tries > 0 && o.Retry == nil:
		return fmt.Errorf("lock: tries: want 0, or more with a retry, have %d", o.Tries)
	case o.TTL != 0 && (o.TTL < 100*time.Millisecond || o.TTL > 24*time.Hour):
		return fmt.Errorf("lock: ttl: want 0, or 100ms to 24h, have %v", o.TTL)
	case len(o.Holder) > lease.MaxHolder:
		return fmt.Errorf("lock: holder: want at most %d bytes, have %d", lease.MaxHolder, len(o.Holder))
	case o.MaxHold < 0:
		return fmt.Errorf("lock: max hold: want 0 or more, have %v", o.MaxHold)
	case o.Limit < 0 || o.Limit > store.MaxLimit:
		return fmt.Errorf("lock: limit: want 0 to %d, have %d", store.MaxLimit, o.Limit)
	}
	if err := o.rule().Check(); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

// rule returns the rule of Limit and Rates.
func (o Options) rule() *store.Rule {
	rule := &store.Rule{Limit: max(o.Limit, 1)}
	for _, r := range o.Rates {
		rule.Rates = append(rule.Rates, store.Rate(r))
	}
	return rule
}

// A Rate is how often a lock may be taken: at most Starts times in any Period, by the clock of the
// store. Starts is 1 to 10000, and Period 1 ms to 31 days. So many may come at once. For an even
// spread add a Rate of a single start, such as {1, 10 * time.Millisecond}.
type Rate struct {
	Starts int
	Period time.Duration
}
