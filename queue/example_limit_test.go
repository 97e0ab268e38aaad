package queue_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// CallSupplier is a task that calls the interface of a supplier.
type CallSupplier struct {
	Supplier string `json:"supplier"`
}

func (CallSupplier) Kind() string       { return "supplier:call" }
func (t CallSupplier) Resource() string { return "supplier:" + t.Supplier }

// Two tasks of each supplier may run at once, and 100 may start in any second.
func ExampleLimit() {
	redisServer, err := miniredis.Run() // stands in for Redis
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()
	opts := redis.UniversalOptions{Addrs: []string{redisServer.Addr()}}
	rdb := queue.Redis(&opts)
	defer func() { _ = rdb.Close() }()
	client, err := queue.NewClient(rdb, queue.ClientConfig{})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if _, err := client.Enqueue(context.Background(), CallSupplier{Supplier: "acme"}, nil); err != nil {
			log.Fatal(err)
		}
	}

	server, err := queue.NewServer(queue.RedisOpt(opts), queue.ServerConfig{
		Limits: map[string]queue.Limit{
			"supplier:*": {Holders: 2, Rates: []lock.Rate{{Starts: 100, Period: time.Second}}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // as a rule by signal.NotifyContext
	var both, done sync.WaitGroup
	both.Add(2)
	done.Add(2)
	queue.Handle(server, func(context.Context, CallSupplier) error {
		defer done.Done()
		both.Done()
		both.Wait() // until the other one runs, too
		fmt.Println("calling")
		return nil
	})
	go func() {
		done.Wait()
		stop()
	}()
	fmt.Println("drained:", server.Run(ctx))
	// Output:
	// calling
	// calling
	// drained: <nil>
}

// An operator pauses a supplier while its interface is down. Tasks wait until UnsetLimit.
func ExampleSetLimit() {
	redisServer, err := miniredis.Run() // stands in for Redis
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()
	rdb := queue.Redis(&redis.UniversalOptions{Addrs: []string{redisServer.Addr()}})
	defer func() { _ = rdb.Close() }()

	ctx := context.Background()
	err = queue.SetLimit(ctx, rdb, queue.LimitOverride{Pattern: "supplier:acme", Holders: 0, By: "ann", Reason: "their interface is down"})
	if err != nil {
		log.Fatal(err)
	}
	all, err := queue.Limits(ctx, rdb, "")
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range all {
		fmt.Printf("%s: %d holders, as %s says: %s\n", l.Pattern, l.Holders, l.By, l.Reason)
	}
	was, err := queue.UnsetLimit(ctx, rdb, "", "supplier:acme")
	fmt.Println("unset:", was, err)
	// Output:
	// supplier:acme: 0 holders, as ann says: their interface is down
	// unset: true <nil>
}
