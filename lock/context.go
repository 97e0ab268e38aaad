package lock

import "context"

type fenceKey struct{}

// holding is the key under which the context of a lease's work carries its tenure.
type holding struct {
	core *core
	key  string
}

// WithFence returns a context that carries a fencing token. [Lease.Keep] does
// it for a lease's work; call it yourself only in tests, or to hand on a token
// that another kind of lock gave out.
func WithFence(ctx context.Context, fence int64) context.Context {
	return context.WithValue(ctx, fenceKey{}, fence)
}

// Fence returns the fencing token of the lock under which ctx runs: a number
// above zero that is higher for each later holder of the same resource. It is
// 0 when ctx runs under no lock, or under one of a [Store] that has no fencing
// tokens, such as lock/redlock. Send it along with every write and have the
// written-to system refuse a lower one than it has seen.
func Fence(ctx context.Context) int64 {
	f, _ := ctx.Value(fenceKey{}).(int64)
	return f
}
