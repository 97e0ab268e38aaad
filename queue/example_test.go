package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
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
	opts := redis.UniversalOptions{Addrs: []string{redisServer.Addr()}}

	rdb := queue.Redis(&opts)
	defer func() { _ = rdb.Close() }()
	client, err := queue.NewClient(rdb, queue.ClientConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Enqueue(context.Background(), AuditOrder{Order: "536365"}, nil); err != nil {
		log.Fatal(err)
	}

	server, err := queue.NewServer(queue.RedisOpt(opts), queue.ServerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // as a rule by signal.NotifyContext
	queue.Handle(server, func(ctx context.Context, t AuditOrder) error {
		defer stop()
		fmt.Println("auditing", t.Order, "fenced:", lock.Fence(ctx, t.Resource()) > 0)
		return nil
	})
	fmt.Println("drained:", server.Run(ctx))
	// Output:
	// auditing 536365 fenced: true
	// drained: <nil>
}

// connect is what the other examples begin with: a Redis that stands in for yours, and a client. The function closes both.
func connect(cfg queue.ClientConfig) (opts redis.UniversalOptions, client *queue.Client, closeBoth func()) {
	redisServer := must(miniredis.Run())
	opts = redis.UniversalOptions{Addrs: []string{redisServer.Addr()}}
	rdb := queue.Redis(&opts)
	return opts, must(queue.NewClient(rdb, cfg)), func() {
		_ = rdb.Close()
		redisServer.Close()
	}
}

// must is for calls that do not fail in an example.
func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

// A program on asynq changes in the lines that make and run its server. Before:
//
//	server := asynq.NewServer(redisOpt, asynq.Config{Concurrency: 20, LogLevel: asynq.WarnLevel})
//	err := server.Run(mux)
//
// The program's handlers, mux and clients stay as they are.
func ExampleNewServer() {
	redisServer, err := miniredis.Run() // stands in for Redis
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()
	redisOpt := asynq.RedisClientOpt{Addr: redisServer.Addr()}
	client := asynq.NewClient(redisOpt)
	defer func() { _ = client.Close() }()
	if _, err := client.Enqueue(asynq.NewTask("order:audit", []byte(`{"order":"536365"}`))); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // as a rule by signal.NotifyContext
	mux := asynq.NewServeMux()
	mux.HandleFunc("order:audit", func(ctx context.Context, t *asynq.Task) error {
		defer stop()
		fmt.Printf("auditing %s under the lock of %s\n", t.Payload(), queue.InfoFrom(ctx).Resource)
		return nil
	})
	orderOf := func(payload []byte) (string, error) {
		var p struct{ Order string }
		err := json.Unmarshal(payload, &p)
		return "order:" + p.Order, err
	}

	// After:
	server, err := queue.NewServer(redisOpt, queue.ServerConfig{
		Asynq: asynq.Config{Concurrency: 20, LogLevel: asynq.WarnLevel}, Handler: mux,
		Resources: map[string]queue.ResourceFunc{"order:audit": orderOf},
	})
	if err != nil {
		log.Fatal(err)
	}
	err = server.Run(ctx)
	fmt.Println("drained:", err)
	// Output:
	// auditing {"order":"536365"} under the lock of order:536365
	// drained: <nil>
}

// A batch takes one round trip. A task that is refused does not stop the others.
func ExampleClient_EnqueueBatch() {
	_, client, closeBoth := connect(queue.ClientConfig{})
	defer closeBoth()
	once := &queue.Options{TaskID: "audit-536365"}
	results := must(client.EnqueueBatch(context.Background(), []queue.Job{
		{Task: AuditOrder{Order: "536365"}, Options: once},
		{Task: AuditOrder{Order: "536366"}},
		{Task: AuditOrder{Order: "536365"}, Options: once},
	}))
	for _, r := range results {
		fmt.Println(r.Err)
	}
	// Output:
	// <nil>
	// <nil>
	// order:audit: queue: a task of this id exists already: "audit-536365" in the queue "default"
}

// asynq's own scheduler enqueues a guarded task, of which idle servers learn at once.
func ExampleClient_NewTask() {
	opts, client, closeBoth := connect(queue.ClientConfig{})
	defer closeBoth()
	task := must(client.NewTask(AuditOrder{Order: "536365"}, &queue.Options{Retention: time.Hour}))
	scheduler := asynq.NewScheduler(queue.RedisOpt(opts), &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	must(scheduler.Register("@every 1s", task))
	if err := scheduler.Start(); err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()

	server := must(queue.NewServer(queue.RedisOpt(opts), queue.ServerConfig{}))
	ctx, stop := context.WithCancel(context.Background())
	queue.Handle(server, func(ctx context.Context, t AuditOrder) error {
		defer stop()
		fmt.Println("auditing", t.Order)
		_, err := queue.AsynqTask(ctx).ResultWriter().Write([]byte("2 faults")) // kept for an hour
		return err
	})
	fmt.Println("drained:", server.Run(ctx))
	// Output:
	// auditing 536365
	// drained: <nil>
}
