package inspect_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A service shows who holds the lock of an order, and what its task waits for.
func Example() {
	redisServer, err := miniredis.Run() // stands in for Redis
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()
	rdb := queue.Redis(&redis.UniversalOptions{Addrs: []string{redisServer.Addr()}})
	defer func() { _ = rdb.Close() }()
	ctx := context.Background()

	locker, err := lock.New(lock.Redis(rdb), lock.Config{TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	lease, err := locker.Acquire(ctx, "order:536365", &lock.Options{Holder: "warehouse"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = lease.Release(ctx) }()
	client, err := queue.NewClient(rdb, queue.ClientConfig{})
	if err != nil {
		log.Fatal(err)
	}
	task, err := client.Enqueue(ctx, job{Res: "order:536365"}, nil)
	if err != nil {
		log.Fatal(err)
	}

	inspector, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		log.Fatal(err)
	}
	found, waiters, err := inspector.Show(ctx, "order:536365", 1, 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found.State, "by", found.Holder, "and", len(waiters), "wait")
	why, err := inspector.Why(ctx, "", task.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(why.State, why.Resource)
	fmt.Println(why.Verdict.Wrong)
	fmt.Println(why.Verdict.Clears)
	// Output:
	// held by warehouse and 0 wait
	// pending order:536365
	// Yes: no server serves the queue default.
	// Not before a server of that queue starts.
}
