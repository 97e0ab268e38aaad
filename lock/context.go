package lock

import "context"

// fenceOf is the key under which a context carries the fencing token of a resource.
type fenceOf string

// holding is the key under which the context of a lease's work carries its tenure.
type holding struct {
	locker *Locker
	key    string
}

// WithFence returns a context that carries the fencing token of a resource. [Lease.Keep] does
// it for a lease's work. Call it yourself only in tests, or to hand on a token
// that another kind of lock gave out.
func WithFence(ctx context.Context, resource string, fence int64) context.Context {
	return context.WithValue(ctx, fenceOf(resource), fence)
}

// Fence returns the fencing token of the lock of resource under which ctx runs: a number
// above zero that is higher for each later holder of that resource. Tokens of several
// resources do not compare, so a lock that is taken under another changes nothing for the
// other one. It is 0 when ctx runs under no lock of resource, or under one of a [Store] that
// has no fencing tokens, such as lock/redlock. Send it along with every write of what the
// resource guards, and have the written-to system refuse a lower one than it has seen.
func Fence(ctx context.Context, resource string) int64 {
	f, _ := ctx.Value(fenceOf(resource)).(int64)
	return f
}
