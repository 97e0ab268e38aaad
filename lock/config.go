package lock

import (
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
)

// NoPrefix is a [Config.Prefix] for locks whose keys are the resources themselves, to exclude programs
// that lock such keys by the plain protocol, such as those with redislock or redsync. The keys that
// Siding keeps beside such a lock have "siding:" in their names, as there may be other data, too. A
// resource must not begin as other keys of Siding and asynq do. Servers of package queue refuse
// NoPrefix: the resources of tasks come with their data, and one could name any key.
const NoPrefix = store.NoPrefix

// Config configures a [Locker]. The zero value works. All times are 1 ms to 24 h.
type Config struct {
	// Prefix is put before the resource to make the lock's key. Only programs with the same prefix
	// exclude one another. Defaults to "lock:", and [NoPrefix] is none.
	Prefix string
	// TTL is how long a lock lives without renewal, at least 100 ms. If a holder dies, others wait
	// for so long. Defaults to 15 s.
	TTL time.Duration
	// RenewEvery is how often a lease is renewed. Defaults to TTL / 3.
	RenewEvery time.Duration
	// SafetyMargin is how long before its lock can expire a holder stops. That covers the
	// difference in speed of the two clocks, and the time that cancelled work needs to notice.
	// Defaults to TTL / 15.
	SafetyMargin time.Duration
	// HandoffTimeout is how long a released lock stays reserved for the next in the wait queue. In a Cluster nobody
	// knows that a waiter's process has gone: then the lock stands idle for so long. Defaults to 1 s.
	HandoffTimeout time.Duration
	// FenceRetention is how long the last fencing token of an idle resource is remembered. The
	// store's clock may step back by so much. Each idle resource costs about 130 bytes for so long.
	// Defaults to 1 min.
	FenceRetention time.Duration
}

// Validate returns an error that names the first field whose value would break a guarantee. Zero
// fields stand for their defaults.
func (c Config) Validate() error { return lease.Config(c).Validate() }
