package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sidingq/siding/internal/sleep"
)

// longestCall and leastCall bound the requests of one call, whatever the TTL.
const (
	longestCall = 3 * time.Second
	leastCall   = time.Second
)

// callTime is how long the requests of one call may take: a quarter of the TTL. So time is left for
// another call.
func callTime(ttl time.Duration) time.Duration { return max(leastCall, min(ttl/4, longestCall)) }

// bounded returns a context for the requests of one call.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, silenceError(limit))
}

// cleanup returns a context for what has to be done although ctx may have ended.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return bounded(context.WithoutCancel(ctx), longestCall)
}

// A silenceError is that etcd took longer than this.
type silenceError time.Duration

func (e silenceError) Error() string {
	return fmt.Sprintf("etcd did not answer within %v", time.Duration(e))
}

// failed is the error of a request. If the request was given up, the error says so, too. It does
// not say why the caller's own context ended. That may be the loss of a lock, which the fate of a
// request does not show.
func failed(ctx context.Context, err error) error {
	if silence, ok := errors.AsType[silenceError](context.Cause(ctx)); ok {
		err = fmt.Errorf("%w: %w", silence, err)
	}
	return requestError{err}
}

// A requestError is an error of etcd. Its method Passing tells the Locker whether the error may
// pass.
type requestError struct{ error }

func (e requestError) Unwrap() error { return e.error }

// Passing reports whether the error may pass.
func (e requestError) Passing() bool {
	switch codeOf(e.error) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.Unimplemented:
		return false
	default:
		return true
	}
}

// codeOf is what gRPC says of an error.
func codeOf(err error) codes.Code {
	if err, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return err.Code()
	}
	return status.Code(err)
}

// undecided reports whether err is that of a member which cannot tell what became of the request.
// The member has no connection, or is not in the state to serve it, as a learner is not. Or it has
// itself waited in vain, as for a leader. etcd has no code of its own for that wait.
func undecided(err error) bool {
	switch codeOf(err) {
	case codes.Unavailable, codes.FailedPrecondition:
		return true
	default:
		s, ok := status.FromError(err)
		return ok && s.Code() == codes.Unknown
	}
}

// ask sends a request that may be applied twice. If a member of the cluster does not answer, has
// gone, or is undecided, ask sends the request to another one. The client takes the members in
// turn. By itself the client would need 10 s at least to notice one that hangs. Each try is given
// longer than the one before, for a cluster that is slow.
func ask[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	const (
		first = 12 // part of the time
		pause = 25 * time.Millisecond
	)
	deadline, _ := ctx.Deadline()
	for limit := time.Until(deadline) / first; ; {
		try, cancel := context.WithTimeout(ctx, limit)
		answer, err := request(try)
		silent := try.Err() != nil
		cancel()
		if err == nil || !silent && !undecided(err) || ctx.Err() != nil {
			return answer, err
		}
		if silent {
			limit *= 2
		} else {
			_ = sleep.For(ctx, pause)
		}
	}
}
