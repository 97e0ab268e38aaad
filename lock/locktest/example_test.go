package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// Lockers on one Memory are like processes on one Redis.
func ExampleMemory() {
	memory := locktest.NewMemory()
	newProcess := func() *lock.Locker {
		locker, err := lock.New(memory, lock.Config{})
		if err != nil {
			panic(err)
		}
		return locker
	}
	ctx := context.Background()
	err := newProcess().Do(ctx, "order:536365", nil, func(context.Context) error {
		another := newProcess().Do(ctx, "order:536365", nil, func(context.Context) error { return nil })
		fmt.Println("another finds it busy:", errors.Is(another, lock.ErrBusy))
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// another finds it busy: true
	// error: <nil>
}

// A program loses its lock: the network stops answering, and the context ends before anybody else
// can have the lock.
func ExampleFaulty() {
	store, network := locktest.Faulty(locktest.NewMemory())
	locker, err := lock.New(store, lock.Config{TTL: 150 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	err = locker.Do(context.Background(), "order:536365", nil, func(ctx context.Context) error {
		network.Set(locktest.BlackHole)
		<-ctx.Done()
		network.Set(locktest.Fine)
		fmt.Println("told in time:", errors.Is(context.Cause(ctx), lock.ErrLost))
		return nil
	})
	fmt.Println("no success, whatever was returned:", errors.Is(err, lock.ErrLost))
	// Output:
	// told in time: true
	// no success, whatever was returned: true
}
