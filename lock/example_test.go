package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// newClient stands for your own: here it is one of a Redis within the program.
func newClient() (client *redis.Client, closeAll func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	client = redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	return client, func() {
		_ = client.Close()
		server.Close()
	}
}

// newLocker stands for your own, see the example of Locker.Do.
func newLocker() (locker *lock.Locker, closeAll func()) {
	client, closeClient := newClient()
	locker, err := lock.New(lock.Redis(client), lock.Config{})
	if err != nil {
		panic(err)
	}
	return locker, func() {
		locker.Close()
		closeClient()
	}
}

// Do is all that most programs need.
func ExampleLocker_Do() {
	client, closeAll := newClient()
	defer closeAll()
	locker, err := lock.New(lock.Redis(client), lock.Config{})
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	err = locker.Do(ctx, "order:536365", nil, func(work context.Context) error {
		fmt.Println("alone, with a fencing token:", lock.Fence(work, "order:536365") > 0)
		another := locker.Do(ctx, "order:536365", nil, func(context.Context) error { return nil })
		fmt.Println("another finds it busy:", errors.Is(another, lock.ErrBusy))
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// alone, with a fencing token: true
	// another finds it busy: true
	// error: <nil>
}

// Acquire gives a lease to those who hold the lock for longer than one function. Its error names
// the present holder.
func ExampleLocker_Acquire() {
	locker, closeAll := newLocker()
	defer closeAll()

	ctx := context.Background()
	held, err := locker.Acquire(ctx, "order:536365", &lock.Options{Holder: "audit on web-3"})
	if err != nil {
		panic(err)
	}
	work := held.Context(ctx) // ends when the lock is lost
	fmt.Println("held:", work.Err() == nil)

	_, err = locker.Acquire(ctx, "order:536365", nil)
	if busy, ok := errors.AsType[*lock.BusyError](err); ok {
		fmt.Println("busy:", busy.Holder)
	}

	if err := held.Release(ctx); err != nil {
		panic(err)
	}
	// Output:
	// held: true
	// busy: audit on web-3
}

// A caller that waits is served in order of arrival, and is woken by the release. Wait bounds the
// waiting: with 5 * time.Second it would give up after that, with ErrBusy.
func ExampleForever() {
	locker, closeAll := newLocker()
	defer closeAll()

	ctx := context.Background()
	held, err := locker.Acquire(ctx, "order:536365", nil)
	if err != nil {
		panic(err)
	}
	released := make(chan error, 1)
	go func() { released <- held.Release(ctx) }()
	patient := &lock.Options{Holder: "allocation", Wait: lock.Forever, MaxHold: time.Minute}
	err = locker.Do(ctx, "order:536365", patient, func(context.Context) error {
		fmt.Println("served")
		return nil
	})
	fmt.Println("error:", err)
	fmt.Println("released:", <-released == nil)
	// Output:
	// served
	// error: <nil>
	// released: true
}

// A Retry says when to try again. They can be put together, and shared.
func ExampleRetry() {
	locker, closeAll := newLocker()
	defer closeAll()
	ctx := context.Background()
	held, err := locker.Acquire(ctx, "order:536365", nil)
	if err != nil {
		panic(err)
	}
	fewTries := &lock.Options{Wait: lock.Forever, Retry: lock.Exponential(time.Millisecond, time.Second), Tries: 3}
	_, err = locker.Acquire(ctx, "order:536365", fewTries)
	fmt.Println("busy after three tries:", errors.Is(err, lock.ErrBusy))
	if err := held.Release(ctx); err != nil {
		panic(err)
	}
	// Output:
	// busy after three tries: true
}

// The context of a lease is the holder's. With Reentrant it takes the lock again, which is
// released with the last of its leases.
func ExampleLease_Context() {
	locker, closeAll := newLocker()
	defer closeAll()
	audit := func(ctx context.Context) error { // also called by those who hold no lock yet
		again := &lock.Options{Reentrant: true}
		return locker.Do(ctx, "order:536365", again, func(ctx context.Context) error {
			fmt.Println("audited under fence", lock.Fence(ctx, "order:536365") > 0)
			return nil
		})
	}

	ctx := context.Background()
	held, err := locker.Acquire(ctx, "order:536365", nil)
	if err != nil {
		panic(err)
	}
	work := held.Context(ctx)
	fmt.Println("by the holder:", audit(work))
	_, err = locker.Acquire(work, "order:536365", nil)
	fmt.Println("without Reentrant:", errors.Is(err, lock.ErrReentry))
	fmt.Println("by another:", errors.Is(audit(ctx), lock.ErrBusy))
	if err := held.Release(ctx); err != nil {
		panic(err)
	}
	fmt.Println("by anybody, later:", audit(ctx))
	// Output:
	// audited under fence true
	// by the holder: <nil>
	// without Reentrant: true
	// by another: true
	// audited under fence true
	// by anybody, later: <nil>
}

// A lease is renewed by itself. Renew asks the store, for a holder who wants to be sure.
func ExampleLease_Renew() {
	locker, closeAll := newLocker()
	defer closeAll()
	ctx := context.Background()
	held, err := locker.Acquire(ctx, "order:536365", nil)
	if err != nil {
		panic(err)
	}
	for _, step := range []string{"count", "pick", "pack"} {
		if err := held.Renew(ctx); errors.Is(err, lock.ErrLost) {
			panic("somebody else may have the lock: stop, and undo")
		}
		fmt.Println(step)
	}
	fmt.Println(held.Release(ctx))
	// Output:
	// count
	// pick
	// pack
	// <nil>
}

// Whatever is written under a lock should carry its fence, and be refused where a
// later holder has written already. For tables see lock/sqlfence, for data in
// Redis lock/redisfence.
func ExampleFence() {
	locker, closeAll := newLocker()
	defer closeAll()
	var seen int64
	write := func(ctx context.Context, what string) {
		if fence := lock.Fence(ctx, "order:536365"); fence < seen {
			fmt.Println("refused:", what)
		} else {
			seen = fence
			fmt.Println("written:", what)
		}
	}

	ctx := context.Background()
	var paused int64
	for _, name := range []string{"first", "second"} {
		if err := locker.Do(ctx, "order:536365", nil, func(ctx context.Context) error {
			if paused == 0 {
				paused = lock.Fence(ctx, "order:536365") // it will sleep through the end of its lease
			}
			write(ctx, "by the "+name)
			return nil
		}); err != nil {
			panic(err)
		}
	}
	write(locktest.WithFence(ctx, "order:536365", paused), "by the first, late")
	// Output:
	// written: by the first
	// written: by the second
	// refused: by the first, late
}

// Several may hold a lock at once if it has a limit. Each has a lease and a fencing token of its own.
func ExampleOptions_limit() {
	locker, closeAll := newLocker()
	defer closeAll()
	ctx := context.Background()
	// At most two calls of the supplier's interface at once, and at most 100 in any second.
	opts := &lock.Options{Limit: 2, Rates: []lock.Rate{{Starts: 100, Period: time.Second}}}
	for range 2 {
		held, err := locker.Acquire(ctx, "supplier:acme", opts)
		if err != nil {
			panic(err)
		}
		defer func() { _ = held.Release(ctx) }()
	}
	_, err := locker.Acquire(ctx, "supplier:acme", opts)
	if busy, ok := errors.AsType[*lock.BusyError](err); ok {
		fmt.Println("busy:", busy.Holders, "holders")
	}
	// Output:
	// busy: 2 holders
}
