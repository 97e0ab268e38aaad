package lock

import (
	"context"
	"errors"
)

// Hold takes the lock of resource as [Locker.Acquire] does, runs fn while it is kept, and
// releases it, also when fn panics. fn's context is that of [Lease.Keep]: it carries the fencing
// token, and is cancelled with the cause when the lock is lost. When the
// lock cannot be had, fn does not run and the error is that of Acquire. A
// lock that was lost before fn returned makes the error match [ErrLost], whatever
// fn returned: somebody else may have held it meanwhile. The error then tells of the loss first,
// of a release that failed as well, and of fn's own error. Without a loss, a release that failed
// is no error: it is sent again in the background, and the TTL frees the lock. Of a release
// whose answer was lost see [Lease.Release].
func (l *Locker) Hold(ctx context.Context, resource string, opts *Options, fn func(context.Context) error) (err error) {
	lease, err := l.Acquire(ctx, resource, opts)
	if err != nil {
		return err
	}
	defer func() {
		// A release that failed is not an error of the work: the TTL frees the lock.
		if rerr := lease.Release(ctx); errors.Is(rerr, ErrLost) {
			err = errors.Join(rerr, err)
		}
	}()
	return fn(lease.Keep(ctx))
}
