package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A task that is unique for an hour is stored once, also if a service asks again.
func ExampleClient_Enqueue() {
	_, client, closeBoth := connect(queue.ClientConfig{})
	defer closeBoth()

	opts := &queue.Options{Queue: "audits", Delay: time.Minute, UniqueFor: time.Hour}
	receipt, err := client.Enqueue(context.Background(), AuditOrder{Order: "536365"}, opts)
	fmt.Println(receipt.Queue, err)
	_, err = client.Enqueue(context.Background(), AuditOrder{Order: "536365"}, opts)
	fmt.Println("stored before:", errors.Is(err, queue.ErrDuplicate))
	// Output:
	// audits <nil>
	// stored before: true
}

// Each change of an order asks for an audit. Of a burst of them one audit runs, 10 s after the last change, or
// a minute after the first if the changes do not end.
func ExampleOptions_debounce() {
	redisOpts, client, closeBoth := connect(queue.ClientConfig{})
	defer closeBoth()

	opts := &queue.Options{Debounce: "changes", Delay: 10 * time.Second, MaxDelay: time.Minute}
	var last queue.Receipt
	for change := range 3 {
		receipt := must(client.Enqueue(context.Background(), AuditOrder{Order: "536365"}, opts))
		fmt.Printf("change %d: an audit was replaced: %t\n", change+1, receipt.Replaced != "")
		last = receipt
	}
	inspector := asynq.NewInspector(queue.RedisOpt(redisOpts))
	for _, task := range must(inspector.ListScheduledTasks("default")) {
		fmt.Println("the last audit waits:", task.ID == last.ID)
	}
	// Output:
	// change 1: an audit was replaced: false
	// change 2: an audit was replaced: true
	// change 3: an audit was replaced: true
	// the last audit waits: true
}

// ShipOrder is a task whose order may be one that nobody can ship.
type ShipOrder struct {
	Order string `json:"order"`
}

func (ShipOrder) Kind() string       { return "order:ship" }
func (t ShipOrder) Resource() string { return "order:" + t.Order }

// A task that no retry can mend is archived at once.
func ExamplePermanent() {
	opts, client, closeBoth := connect(queue.ClientConfig{})
	defer closeBoth()
	must(client.Enqueue(context.Background(), ShipOrder{Order: "C536379"}, nil))

	ctx, stop := context.WithCancel(context.Background()) // as a rule by signal.NotifyContext
	server := must(queue.NewServer(queue.RedisOpt(opts), queue.ServerConfig{
		Observe: func(e queue.Event) {
			if e.Kind == queue.EventReleased {
				fmt.Println(e.TaskKind, "ended:", e.Err)
				stop()
			}
		},
	}))
	queue.Handle(server, func(_ context.Context, t ShipOrder) error {
		if t.Order[0] == 'C' {
			return queue.Permanent(errors.New(t.Order + " was cancelled"))
		}
		return nil
	})
	fmt.Println("drained:", server.Run(ctx))
	// Output:
	// order:ship ended: C536379 was cancelled: skip retry for the task
	// drained: <nil>
}

// A handler takes a second lock before it writes anything. If somebody else has that lock, the task
// comes again after about a second, and uses no retry.
func ExampleServer_Locker() {
	opts, client, closeBoth := connect(queue.ClientConfig{})
	defer closeBoth()
	must(client.Enqueue(context.Background(), ShipOrder{Order: "536365"}, nil))

	server := must(queue.NewServer(queue.RedisOpt(opts), queue.ServerConfig{}))
	ctx, stop := context.WithCancel(context.Background()) // as a rule by signal.NotifyContext
	queue.Handle(server, func(ctx context.Context, t ShipOrder) error {
		const stock = "stock:85123A"
		return server.Locker().Do(ctx, stock, nil, func(ctx context.Context) error {
			defer stop()
			fmt.Println("shipping", t.Order, "fenced twice:", lock.Fence(ctx, t.Resource()) > 0 && lock.Fence(ctx, stock) > 0)
			return nil
		})
	})
	fmt.Println("drained:", server.Run(ctx))
	// Output:
	// shipping 536365 fenced twice: true
	// drained: <nil>
}

// A program that starts logs what may cost it tasks on its Redis.
func ExampleCheckRedis() {
	rdb := queue.Redis(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}) // where none is
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	findings, err := queue.CheckRedis(ctx, rdb)
	for _, f := range findings {
		log.Println(f.Trait, f.Have, f.Advice)
	}
	fmt.Println("answered:", err == nil)
	// Output:
	// answered: false
}

// Shards keep the tasks of one order from delaying those of others. Those of one order share a shard.
func ExampleServerConfig_shards() {
	shards := map[string]int{"default": 128} // the same for clients and servers
	opts, client, closeBoth := connect(queue.ClientConfig{Shards: shards})
	defer closeBoth()
	orders := []string{"536365", "536365", "536366"}
	for _, order := range orders {
		receipt := must(client.Enqueue(context.Background(), AuditOrder{Order: order}, nil))
		fmt.Println(order, "is in", receipt.Queue)
	}

	server := must(queue.NewServer(queue.RedisOpt(opts), queue.ServerConfig{Shards: shards}))
	ctx, stop := context.WithCancel(context.Background()) // as a rule by signal.NotifyContext
	var done sync.WaitGroup
	done.Add(len(orders))
	queue.Handle(server, func(context.Context, AuditOrder) error {
		done.Done()
		return nil
	})
	go func() {
		done.Wait()
		stop()
	}()
	fmt.Println("drained:", server.Run(ctx))
	// Output:
	// 536365 is in default.127-iv
	// 536365 is in default.127-iv
	// 536366 is in default.073-ug
	// drained: <nil>
}

// Transfer moves an amount between two accounts, and needs both.
type Transfer struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Cents int    `json:"cents"`
}

func (Transfer) Kind() string       { return "balance:transfer" }
func (t Transfer) Resource() string { return queue.AllOf("account:"+t.From, "account:"+t.To) }

// Two transfers that name the same accounts in opposite order run one after the other, without a deadlock. Each account
// has a fence of its own.
func ExampleAllOf() {
	opts, client, closeBoth := connect(queue.ClientConfig{})
	defer closeBoth()
	for _, t := range []Transfer{{"ann", "bob", 500}, {"bob", "ann", 200}} {
		must(client.Enqueue(context.Background(), t, nil))
	}

	server := must(queue.NewServer(queue.RedisOpt(opts), queue.ServerConfig{}))
	ctx, stop := context.WithCancel(context.Background()) // as a rule by signal.NotifyContext
	// Without a mutex: whoever has both locks is alone with them.
	balances, done := map[string]int{"ann": 1000, "bob": 1000}, 0
	queue.Handle(server, func(ctx context.Context, t Transfer) error {
		balances[t.From] -= t.Cents
		balances[t.To] += t.Cents
		fmt.Println(t.From, "to", t.To, "fenced twice:", lock.Fence(ctx, "account:"+t.From) > 0 && lock.Fence(ctx, "account:"+t.To) > 0)
		if done++; done == 2 {
			stop()
		}
		return nil
	})
	fmt.Println("drained:", server.Run(ctx))
	fmt.Println(balances["ann"], balances["bob"])
	// Unordered output:
	// ann to bob fenced twice: true
	// bob to ann fenced twice: true
	// drained: <nil>
	// 700 1300
}

// Credit adds an amount to an account.
type Credit struct {
	Account string `json:"account"`
	Cents   int    `json:"cents"`
}

func (Credit) Kind() string       { return "balance:credit" }
func (c Credit) Resource() string { return "account:" + c.Account }

// What waits for an account is booked together. One that cannot be booked has an outcome of its own.
func ExampleHandleBatch() {
	opts, client, closeBoth := connect(queue.ClientConfig{})
	defer closeBoth()
	for _, cents := range []int{100, 20, -3, 4} {
		must(client.Enqueue(context.Background(), Credit{"ann", cents}, nil))
	}

	server := must(queue.NewServer(queue.RedisOpt(opts), queue.ServerConfig{}))
	ctx, stop := context.WithCancel(context.Background()) // as a rule by signal.NotifyContext
	balance := 0
	queue.HandleBatch(server, 100, func(_ context.Context, batch []*queue.BatchTask[Credit]) error {
		for _, credit := range batch {
			if credit.Task.Cents < 0 {
				credit.End(queue.Permanent(errors.New("want an amount above 0")))
				continue
			}
			if balance += credit.Task.Cents; credit.Task.Cents == 4 {
				stop()
			}
		}
		return nil
	})
	fmt.Println("drained:", server.Run(ctx))
	fmt.Println(balance)
	// Output:
	// drained: <nil>
	// 124
}
