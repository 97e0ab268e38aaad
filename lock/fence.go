package lock

import (
	"context"

	"github.com/sidingq/siding/internal/lease"
)

// Fence returns the fencing token of the lock of resource under which ctx runs. [Locker.Do] or
// [Lease.Context] made ctx, or a context from which it comes. The token is a number above zero that
// is higher for each later holder of the resource. Send it along with every write to what the
// resource guards. Have the written-to system refuse a lower token than it has seen; lock/sqlfence
// and lock/redisfence do.
//
// Tokens of several resources do not compare. A lock that is taken under another one changes
// nothing for the other. Fence is 0 if ctx runs under no lock of resource. It is also 0 on a
// [Store] without fencing tokens, such as lock/redlock.
func Fence(ctx context.Context, resource string) int64 { return lease.Fence(ctx, resource) }
