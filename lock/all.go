package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/lease"
)

// mostAtOnce is how many locks one call of DoAll takes.
const mostAtOnce = 16

// DoAll takes the locks of all of these resources, 1 to 16, or none. It runs fn under all of them, and
// releases them, as [Locker.Do] does for one. The context of fn carries the fencing token of each, and
// ends with [ErrLost] when one of them is lost. opts hold for each lock. A name that comes twice counts once.
//
// Without an [Options.Wait] DoAll asks for all at once, and gives back what it got if one is busy: the
// error matches [ErrBusy], also if another call of DoAll had that lock for a moment only. With a Wait,
// which is that for all together, DoAll takes one after the other in the order of their names, and holds
// those that it has while it waits for the next. So calls of DoAll never wait for each other in a circle,
// wherever they run, and each waits in the order of arrival for each of its locks. If a lock is lost
// while it waits for the next, the error matches ErrLost, and fn does not run.
//
// A holder that takes more locks, by Do or DoAll, can meet another one in a circle. See
// [Options.Wait]. After a crash each lock is free when its TTL is over.
func (l *Locker) DoAll(ctx context.Context, resources []string, opts *Options, fn func(context.Context) error) (err error) {
	if fn == nil {
		return errors.New("lock: do all: fn: want a function, have nil")
	}
	all := slices.Compact(slices.Sorted(slices.Values(resources)))
	if len(all) == 0 || len(all) > mostAtOnce {
		return fmt.Errorf("lock: do all: resources: want 1 to %d, have %d", mostAtOnce, len(all))
	}
	if opts == nil {
		opts = &Options{}
	}
	if err := errors.Join(checkContext(ctx), opts.check()); err != nil {
		return err
	}
	var held []*lease.Lease
	if opts.Wait == 0 {
		held, err = l.tryAll(ctx, all, opts)
	} else {
		held, err = l.waitForAll(ctx, all, opts)
	}
	if err != nil {
		if lost := releaseAll(ctx, held); lost != nil && opts.Wait != 0 {
			return lost // it has ended the wait, and err is no news of the lock that was waited for
		}
		return err
	}
	defer func() {
		if lost := releaseAll(ctx, held); lost != nil {
			err = errors.Join(lost, err)
		}
	}()
	for _, h := range held {
		ctx = h.Protect(ctx) //nolint:fatcontext // it runs under each of them
	}
	return fn(ctx)
}

// tryAll asks for all locks at the same time. It returns those that it got, and an error if that is not all of them.
func (l *Locker) tryAll(ctx context.Context, resources []string, opts *Options) (held []*lease.Lease, err error) {
	leases, errs := make([]*lease.Lease, len(resources)), make([]error, len(resources))
	var all sync.WaitGroup
	for i, resource := range resources {
		all.Go(func() { leases[i], errs[i] = l.acquire(ctx, resource, opts, time.Time{}) })
	}
	all.Wait()
	for i, e := range errs {
		switch {
		case e == nil:
			held = append(held, leases[i])
		case err == nil, errors.Is(err, ErrBusy) && !errors.Is(e, ErrBusy): // that one is busy may be of no use to know
			err = e
		}
	}
	return held, err
}

// waitForAll takes one lock after the other, and waits for each under those that it has. It returns those that it got, and an
// error if that is not all of them.
func (l *Locker) waitForAll(ctx context.Context, resources []string, opts *Options) (held []*lease.Lease, err error) {
	over := overAt(ctx, opts.Wait)
	for _, resource := range resources {
		h, err := l.acquire(ctx, resource, opts, over)
		if err != nil {
			return held, err
		}
		held = append(held, h)
		ctx = h.Protect(ctx) //nolint:fatcontext // the wait for the next ends if this one is lost
	}
	return held, nil
}

// releaseAll releases leases at the same time. Its error tells of those that were lost before.
func releaseAll(ctx context.Context, held []*lease.Lease) error {
	errs := make([]error, len(held))
	var all sync.WaitGroup
	for i, h := range held {
		all.Go(func() {
			if err := h.Release(ctx); errors.Is(err, ErrLost) {
				errs[i] = err
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
