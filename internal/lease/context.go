package lease

import "context"

// A frame is one lock under which a context runs. The frames of nested locks form a chain.
type frame struct {
	outer    *frame
	resource string
	fence    int64
	holding  *holding // nil for a fence alone
}

type frameKey struct{}

func frameOf(ctx context.Context) *frame {
	f, _ := ctx.Value(frameKey{}).(*frame)
	return f
}

// with returns a context that runs under the lock of f, too.
func with(ctx context.Context, f frame) context.Context {
	f.outer = frameOf(ctx)
	return context.WithValue(ctx, frameKey{}, &f)
}

// WithFence returns a context that carries the fencing token of a resource.
func WithFence(ctx context.Context, resource string, fence int64) context.Context {
	return with(ctx, frame{resource: resource, fence: fence})
}

// Fence returns the fencing token of the innermost lock of resource under which ctx runs; 0 for
// none.
func Fence(ctx context.Context, resource string) int64 {
	for f := frameOf(ctx); f != nil; f = f.outer {
		if f.resource == resource {
			return f.fence
		}
	}
	return 0
}

// Nested reports whether ctx runs under a lock that its holder has not released.
func Nested(ctx context.Context) bool {
	for f := frameOf(ctx); f != nil; f = f.outer {
		if h := f.holding; h != nil {
			h.mu.Lock()
			released := h.released
			h.mu.Unlock()
			if !released {
				return true
			}
		}
	}
	return false
}
