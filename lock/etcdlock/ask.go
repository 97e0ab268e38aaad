package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// longestCall and leastCall bound the requests of one call, whatever the TTL.
const (
	longestCall = 3 * time.Second
	leastCall   = time.Second
)

// bounded returns a context for the requests of one call: a quarter of the TTL, so that
// time is left for another one.
func bounded(ctx context.Context, ttl time.Duration) (context.Context, context.CancelFunc) {
	limit := max(leastCall, min(ttl/4, longestCall))
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("etcd did not answer within %v", limit))
}

// cleanup returns a context for what has to be done although ctx may have ended.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return bounded(context.WithoutCancel(ctx), 4*longestCall)
}

// failed is the error of a request, with the reason why it was given up, if it was.
func failed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// ask sends a request that may be applied twice. Where a member of the cluster does not
// answer, it is sent again, to another one: the client takes them in turn, and by itself
// would need 10 s to notice. Each try is given longer than the one before, for a cluster
// that is slow.
func ask[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	const first = 12 // part of the time
	deadline, _ := ctx.Deadline()
	for limit := time.Until(deadline) / first; ; limit *= 2 {
		try, cancel := context.WithTimeout(ctx, limit)
		answer, err := request(try)
		silent := try.Err() != nil
		cancel()
		if err == nil || !silent || ctx.Err() != nil {
			return answer, err
		}
	}
}
