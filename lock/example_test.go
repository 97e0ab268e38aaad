package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	err = locker.Hold(ctx, "order:536365", func(work context.Context) error {
		fmt.Println("alone, with a fencing token:", lock.Fence(work) > 0)
		another := locker.Hold(ctx, "order:536365", func(context.Context) error { return nil })
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
	lease, err := locker.With(lock.Options{Holder: "audit on web-3"}).Acquire(ctx, "order:536365")
	if err != nil {
		panic(err)
	}
	work := lease.Keep(ctx) // ends when the lock is lost
	fmt.Println("held:", work.Err() == nil)

	_, err = locker.Acquire(ctx, "order:536365")
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
	lease, err := locker.Acquire(ctx, "sku:85123A")
	if err != nil {
		panic(err)
	}
	for _, waiter := range []string{"Ann", "Bob"} {
		_, err := locker.With(lock.Options{Waiter: waiter}).Acquire(ctx, "sku:85123A")
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
