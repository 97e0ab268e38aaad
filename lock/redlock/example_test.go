package redlock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/redlock"
)

// Five masters, of which two may be away.
func Example() {
	ctx := context.Background()
	var nodes []*redis.Client
	for _, addr := range []string{"lock-1:6379", "lock-2:6379", "lock-3:6379", "lock-4:6379", "lock-5:6379"} {
		client := redis.NewClient(&redis.Options{
			Addr:                  addr,
			ContextTimeoutEnabled: true,
			DialerRetries:         1,  // with this
			MaxRetries:            -1, // and this a server that is down costs no time
		})
		defer func() { _ = client.Close() }()
		nodes = append(nodes, client)
	}
	store, err := redlock.New(ctx, nodes, redlock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	locker, err := lock.New(store, lock.Config{TTL: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	err = locker.Do(ctx, "report:2026-11", nil, func(ctx context.Context) error {
		fmt.Println("at work, alone") // while ctx lives
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
}
