package locktest

import (
	"context"

	"github.com/sidingq/siding/internal/lease"
)

// WithFence returns a context that carries the fencing token of a resource, as the context of
// [lock.Lease.Context] does. Use it to test code that asks for [lock.Fence].
func WithFence(ctx context.Context, resource string, fence int64) context.Context {
	return lease.WithFence(ctx, resource, fence)
}
