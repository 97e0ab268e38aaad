package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
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

// Hold is all that most programs need.
func ExampleLocker_Hold() {
	client, closeAll := newClient()
	defer closeAll()
	locker, err := lock.New(lock.Redis(client), lock.Config{})
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	err = locker.Hold(ctx, "order:536365", nil, func(work context.Context) error {
		fmt.Println("alone, with a fencing token:", lock.Fence(work, "order:536365") > 0)
		another := locker.Hold(ctx, "order:536365", nil, func(context.Context) error { return nil })
		fmt.Println("another is refused:", errors.Is(another, lock.ErrBusy))
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// alone, with a fencing token: true
	// another is refused: true
	// error: <nil>
}

// Acquire gives a lease to those who need to know who else holds the lock, or
// who hold it for longer than one function.
func ExampleLocker_Acquire() {
	client, closeAll := newClient()
	defer closeAll()
	locker, err := lock.New(lock.Redis(client), lock.Config{})
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	lease, err := locker.Acquire(ctx, "order:536365", &lock.Options{Holder: "audit on web-3"})
	if err != nil {
		panic(err)
	}
	work := lease.Keep(ctx) // ends when the lock is lost
	fmt.Println("held:", work.Err() == nil)

	_, err = locker.Acquire(ctx, "order:536365", nil)
	if busy, ok := errors.AsType[*lock.BusyError](err); ok {
		fmt.Println("busy:", busy.Holder)
	}

	if err := lease.Release(ctx); err != nil {
		panic(err)
	}
	// Output:
	// held: true
	// busy: audit on web-3
}

// InLine waits: it is served in order of arrival, and is woken by the release.
func ExampleInLine() {
	client, closeAll := newClient()
	defer closeAll()
	locker, err := lock.New(lock.Redis(client), lock.Config{})
	if err != nil {
		panic(err)
	}
	defer locker.Close() // ends the connection on which it is called

	ctx := context.Background()
	lease, err := locker.Acquire(ctx, "order:536365", nil)
	if err != nil {
		panic(err)
	}
	go func() {
		fmt.Println("released:", lease.Release(ctx) == nil)
	}()
	patient := &lock.Options{Holder: "allocation", Wait: lock.InLine(), MaxHold: time.Minute}
	err = locker.Hold(ctx, "order:536365", patient, func(context.Context) error {
		fmt.Println("its turn")
		return nil
	})
	fmt.Println("error:", err)
	// Unordered output:
	// released: true
	// its turn
	// error: <nil>
}

// A Retry says when to try again. They can be put together, and shared.
func ExampleRetry() {
	client, closeAll := newClient()
	defer closeAll()
	locker, err := lock.New(lock.Redis(client), lock.Config{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	lease, err := locker.Acquire(ctx, "order:536365", nil)
	if err != nil {
		panic(err)
	}
	fewTries := &lock.Options{Wait: lock.Limit(3, lock.Exponential(time.Millisecond, time.Second))}
	_, err = locker.Acquire(ctx, "order:536365", fewTries)
	fmt.Println("busy after three tries:", errors.Is(err, lock.ErrBusy))
	if err := lease.Release(ctx); err != nil {
		panic(err)
	}

	for n := 1; ; n++ {
		delay, again := lock.Limit(4, lock.Linear(10*time.Millisecond, 25*time.Millisecond))(n)
		if !again {
			break
		}
		fmt.Println("refused", n, "times: wait", delay)
	}
	// Output:
	// busy after three tries: true
	// refused 1 times: wait 10ms
	// refused 2 times: wait 20ms
	// refused 3 times: wait 25ms
}

// The context of Keep is the holder's. With Reentrant it takes the lock again, which is
// released with the last of its leases.
func ExampleLease_Keep() {
	client, closeAll := newClient()
	defer closeAll()
	locker, err := lock.New(lock.Redis(client), lock.Config{})
	if err != nil {
		panic(err)
	}
	audit := func(ctx context.Context) error { // also called by those who hold no lock yet
		again := &lock.Options{Reentrant: true}
		return locker.Hold(ctx, "order:536365", again, func(ctx context.Context) error {
			fmt.Println("audited under fence", lock.Fence(ctx, "order:536365") > 0)
			return nil
		})
	}

	ctx := context.Background()
	lease, err := locker.Acquire(ctx, "order:536365", nil)
	if err != nil {
		panic(err)
	}
	work := lease.Keep(ctx)
	fmt.Println("by the holder:", audit(work))
	_, err = locker.Acquire(work, "order:536365", nil)
	fmt.Println("without Reentrant:", errors.Is(err, lock.ErrReentry))
	fmt.Println("by another:", errors.Is(audit(ctx), lock.ErrBusy))
	if err := lease.Release(ctx); err != nil {
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

// A lease that is not kept can be renewed by hand.
func ExampleLease_Renew() {
	client, closeAll := newClient()
	defer closeAll()
	locker, err := lock.New(lock.Redis(client), lock.Config{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	lease, err := locker.Acquire(ctx, "order:536365", nil)
	if err != nil {
		panic(err)
	}
	for _, step := range []string{"count", "pick", "pack"} {
		if err := lease.Renew(ctx); errors.Is(err, lock.ErrLost) {
			panic("somebody else may have the lock: stop, and undo")
		}
		fmt.Println(step)
	}
	fmt.Println(lease.Release(ctx))
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
	client, closeAll := newClient()
	defer closeAll()
	locker, err := lock.New(lock.Redis(client), lock.Config{})
	if err != nil {
		panic(err)
	}
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
		if err := locker.Hold(ctx, "order:536365", nil, func(ctx context.Context) error {
			if paused == 0 {
				paused = lock.Fence(ctx, "order:536365") // it will sleep through the end of its lease
			}
			write(ctx, "by the "+name)
			return nil
		}); err != nil {
			panic(err)
		}
	}
	write(lock.WithFence(ctx, "order:536365", paused), "by the first, late")
	// Output:
	// written: by the first
	// written: by the second
	// refused: by the first, late
}

// A refused caller with a name stands in line, and is called by whoever hands
// off the lock. How waiters are called is up to the program.
func ExampleLease_HandOff() {
	client, closeAll := newClient()
	defer closeAll()
	locker, err := lock.New(lock.Redis(client), lock.Config{})
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	lease, err := locker.Acquire(ctx, "sku:85123A", nil)
	if err != nil {
		panic(err)
	}
	for _, waiter := range []string{"Ann", "Bob"} {
		_, err := locker.Acquire(ctx, "sku:85123A", &lock.Options{Waiter: waiter})
		if busy, ok := errors.AsType[*lock.BusyError](err); ok {
			fmt.Printf("%s waits, place %d\n", waiter, busy.Place)
		}
	}

	call := func(waiter string) (comes bool) { return !strings.HasPrefix(waiter, "A") }
	next, err := lease.HandOff(ctx)
	for err == nil && next != nil {
		if call(next.Waiter) {
			fmt.Println(next.Waiter, "comes")
			err = locker.Called(ctx, next)
			break
		}
		fmt.Println(next.Waiter, "cannot come")
		next, err = locker.PassOn(ctx, next)
	}
	if err != nil {
		panic(err)
	}
	// Output:
	// Ann waits, place 1
	// Bob waits, place 2
	// Ann cannot come
	// Bob comes
}
