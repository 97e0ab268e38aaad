package lease

import (
	"context"
	"time"
)

type waitedKey struct{}

// WithWaited says that whoever waits for a lock under the context has waited for so long already, which decides its place.
func WithWaited(ctx context.Context, waited time.Duration) context.Context {
	return context.WithValue(ctx, waitedKey{}, waited)
}

// Waited returns what [WithWaited] has said, 0 if nothing.
func Waited(ctx context.Context) time.Duration {
	waited, _ := ctx.Value(waitedKey{}).(time.Duration)
	return waited
}
