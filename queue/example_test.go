package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// AuditOrder is a task: a plain struct that knows its kind and what it must not
// share.
type AuditOrder struct {
	Order string `json:"order"`
}

func (AuditOrder) Kind() string       { return "order:audit" }
func (t AuditOrder) Resource() string { return "order:" + t.Order }

// A service enqueues tasks, a worker runs them. The lock of the task's resource
// is held, renewed and released around the handler.
func Example() {
	redisServer, err := miniredis.Run() // stands in for Redis
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()
	opts := &redis.UniversalOptions{Addrs: []string{redisServer.Addr()}}

	server, err := queue.NewServer(opts, queue.ServerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	var done sync.WaitGroup
	done.Add(1)
	queue.Handle(server, func(ctx context.Context, t AuditOrder) error {
		defer done.Done()
		fmt.Println("auditing", t.Order, "fenced:", lock.Fence(ctx, t.Resource()) > 0)
		return nil
	})
	if err := server.Start(context.Background()); err != nil {
		log.Fatal(err)
	}

	rdb := queue.Redis(opts)
	defer func() { _ = rdb.Close() }()
	client, err := queue.NewClient(rdb, queue.ClientConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Enqueue(context.Background(), AuditOrder{Order: "536365"}, nil); err != nil {
		log.Fatal(err)
	}
	done.Wait()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println("shutdown:", server.Shutdown(ctx))
	// Output:
	// auditing 536365 fenced: true
	// shutdown: <nil>
}

// An ownConn has asynq make clients by queue.Redis.
type ownConn struct{ opts *redis.UniversalOptions }

func (c ownConn) MakeRedisClient() any { return queue.Redis(c.opts) }

// On a Redis Cluster, asynq's servers and clients need such clients as the guard does.
func ExampleRedis() {
	redisServer, err := miniredis.Run() // stands in for a node of the Cluster
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()
	opts := &redis.UniversalOptions{Addrs: []string{redisServer.Addr()}, IsClusterMode: true}

	rdb := queue.Redis(opts)
	defer func() { _ = rdb.Close() }()
	guard, err := queue.NewGuard(rdb, queue.GuardConfig{})
	if err != nil {
		log.Fatal(err)
	}
	server := asynq.NewServer(guard.Conn(ownConn{opts}), guard.Wrap(asynq.Config{LogLevel: asynq.FatalLevel}))
	done := make(chan struct{})
	if err := server.Start(guard.Middleware(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		close(done)
		return nil
	}))); err != nil {
		log.Fatal(err)
	}

	client := asynq.NewClient(queue.Ringing(ownConn{opts}))
	if _, err := client.Enqueue(asynq.NewTask("order:audit", nil)); err != nil {
		log.Fatal(err)
	}
	<-done
	_ = client.Close()

	server.Shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println("all locks released:", guard.Wait(ctx) == nil)
	// Output: all locks released: true
}

// A team that has its own asynq program adds the guard to it in four places:
// the guard itself, the connection, the configuration and the mux.
func ExampleGuard() {
	redisServer, err := miniredis.Run() // stands in for Redis
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()
	redisOpt := asynq.RedisClientOpt{Addr: redisServer.Addr()}

	// Which resource a task must not share, by its type.
	orderOf := func(payload []byte) (string, error) {
		var p struct{ Order string }
		err := json.Unmarshal(payload, &p)
		return "order:" + p.Order, err
	}
	locks := redis.NewClient(&redis.Options{Addr: redisServer.Addr(), ContextTimeoutEnabled: true})
	defer func() { _ = locks.Close() }()
	guard, err := queue.NewGuard(locks, queue.GuardConfig{ // 1
		Resources: map[string]queue.ResourceFunc{"order:audit": orderOf},
	})
	if err != nil {
		log.Fatal(err)
	}

	server := asynq.NewServer(guard.Conn(redisOpt), guard.Wrap(asynq.Config{ // 2, 3
		Concurrency:       20,
		TaskCheckInterval: 20 * time.Millisecond,
		LogLevel:          asynq.FatalLevel,
	}))
	done := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Use(guard.Middleware) // 4
	mux.HandleFunc("order:audit", func(ctx context.Context, t *asynq.Task) error {
		fmt.Printf("auditing %s under the lock of %s\n", t.Payload(), queue.InfoFrom(ctx).Resource)
		close(done)
		return nil
	})
	if err := server.Start(mux); err != nil {
		log.Fatal(err)
	}

	// Tasks may come from any asynq client.
	client := asynq.NewClient(redisOpt)
	if _, err := client.Enqueue(asynq.NewTask("order:audit", []byte(`{"order":"536365"}`))); err != nil {
		log.Fatal(err)
	}
	<-done
	_ = client.Close()

	server.Shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println("all locks released:", guard.Wait(ctx) == nil) // asynq itself does not wait for them
	// Output:
	// auditing {"order":"536365"} under the lock of order:536365
	// all locks released: true
}
