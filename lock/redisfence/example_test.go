package redisfence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/lock/redisfence"
)

// A holder that was paused for too long tries to write after its successor.
func ExampleScript_Run() {
	server, err := miniredis.Run() // stands for your own
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	sell := redisfence.NewScript(`return redis.call('DECRBY', KEYS[1], ARGV[1])`)
	write := func(ctx context.Context, pieces int) (left int, err error) {
		return sell.Run(ctx, rdb, "sku:85123A", "{sku:85123A}:fence", []string{"{sku:85123A}:stock"}, pieces).Int()
	}
	rdb.Set(context.Background(), "{sku:85123A}:stock", 10, 0)

	// Under a lock the context carries the fence; here we hand it out.
	paused := locktest.WithFence(context.Background(), "sku:85123A", 33)
	successor := locktest.WithFence(context.Background(), "sku:85123A", 34)
	fmt.Println(write(successor, 3))
	_, err = write(paused, 1)
	fmt.Println(err)
	fmt.Println(errors.Is(err, lock.ErrStale))
	// Output:
	// 7 <nil>
	// lock: "{sku:85123A}:fence" has seen fence 34, refused the older 33
	// true
}
