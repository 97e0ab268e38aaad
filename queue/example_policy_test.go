package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A yard has a client and a server of the examples below. The task with the id "first" holds its
// resource until leave is called. The one with the id "shaky" fails once.
type yard struct {
	rdb    redis.UniversalClient
	client *queue.Client
	events chan queue.Event
	leave  func()
	close  func()
}

// newYard starts them on a Redis that stands in for yours, after what is to come before.
func newYard(cfg queue.ServerConfig, before ...func(redis.UniversalClient) error) *yard {
	opts, client, closeBoth := connect(queue.ClientConfig{})
	y := &yard{rdb: queue.Redis(&opts), client: client, events: make(chan queue.Event, 100)}
	for _, f := range before {
		if err := f(y.rdb); err != nil {
			panic(err)
		}
	}
	cfg.Asynq.DelayedTaskCheckInterval = 50 * time.Millisecond
	cfg.Observe = func(e queue.Event) { y.events <- e }
	server := must(queue.NewServer(queue.RedisOpt(opts), cfg))
	first, leave := context.WithCancel(context.Background())
	queue.Handle(server, func(ctx context.Context, _ AuditOrder) error {
		info := queue.InfoFrom(ctx)
		id := info.ID
		fmt.Println(id, "runs")
		if id == "first" {
			<-first.Done()
		}
		if id == "shaky" && info.Retried == 0 {
			return errors.New("the warehouse does not answer")
		}
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- server.Run(ctx) }()
	y.leave = leave
	y.close = func() {
		stop()
		if err := <-ended; err != nil {
			panic(err)
		}
		_ = y.rdb.Close()
		closeBoth()
	}
	return y
}

// enqueue enqueues an audit of an order, and waits until one of these has happened to it.
func (y *yard) enqueue(id string, o queue.Options, until ...queue.EventKind) queue.Event {
	o.TaskID = id
	must(y.client.Enqueue(context.Background(), AuditOrder{Order: "536365"}, &o))
	return y.await(id, until...)
}

func (y *yard) await(id string, until ...queue.EventKind) queue.Event {
	if len(until) == 0 {
		return queue.Event{}
	}
	for e := range y.events {
		for _, kind := range until {
			if e.TaskID == id && e.Kind == kind {
				return e
			}
		}
	}
	panic("not reached")
}

// A task that is of no use later is rejected if its resource is busy.
func ExamplePolicy_reject() {
	y := newYard(queue.ServerConfig{Policies: map[string]queue.Policy{"order:audit": {OnBusy: queue.OnBusyReject}}})
	defer y.close()
	y.enqueue("first", queue.Options{}, queue.EventAcquired)
	e := y.enqueue("second", queue.Options{}, queue.EventRejected)
	fmt.Println(e.TaskID, e.Kind, errors.Is(e.Err, queue.ErrRejected))
	y.leave()
	y.await("first", queue.EventReleased)
	// Unordered output:
	// first runs
	// second rejected true
}

// Of the tasks that wait, only the latest runs.
func ExamplePolicy_replace() {
	y := newYard(queue.ServerConfig{Policies: map[string]queue.Policy{"order:audit": {OnBusy: queue.OnBusyReplace}}})
	defer y.close()
	y.enqueue("first", queue.Options{}, queue.EventAcquired)
	y.enqueue("second", queue.Options{}, queue.EventParked)
	y.enqueue("third", queue.Options{})
	e := y.await("second", queue.EventReplaced)
	fmt.Println(e.TaskID, "is replaced by", e.Other)
	y.await("third", queue.EventParked)
	y.leave()
	y.await("third", queue.EventReleased)
	// Output:
	// first runs
	// second is replaced by third
	// third runs
}

// A task that would come too late does not run at all. OnMaxWait says what becomes of it.
func ExamplePolicy_maxWait() {
	y := newYard(queue.ServerConfig{
		Policies: map[string]queue.Policy{"order:audit": {MaxWait: time.Second}},
		OnMaxWait: func(ctx context.Context, _ *asynq.Task) error {
			fmt.Println(queue.InfoFrom(ctx).ID, "has waited for too long")
			return nil // it is done; without OnMaxWait it is archived
		},
	})
	defer y.close()
	y.enqueue("first", queue.Options{}, queue.EventAcquired)
	y.enqueue("second", queue.Options{}, queue.EventWaitedTooLong)
	y.leave()
	y.await("first", queue.EventReleased)
	// Output:
	// first runs
	// second has waited for too long
}

// No more than one task waits for an order. A further one is rejected.
func ExamplePolicy_maxWaiting() {
	y := newYard(queue.ServerConfig{Policies: map[string]queue.Policy{"order:audit": {MaxWaiting: 1}}})
	defer y.close()
	y.enqueue("first", queue.Options{}, queue.EventAcquired)
	y.enqueue("second", queue.Options{}, queue.EventParked)
	fmt.Println(y.enqueue("third", queue.Options{}, queue.EventRejected).Err)
	y.leave()
	y.await("second", queue.EventReleased)
	// Output:
	// first runs
	// rejected: 1 wait for order:536365 already
	// second runs
}

// A task that has failed keeps its place: those behind it wait until it has succeeded, or is archived.
func ExamplePolicy_onFailure() {
	y := newYard(queue.ServerConfig{
		Policies: map[string]queue.Policy{"order:audit": {OnFailure: queue.OnFailureHold}},
		Asynq:    asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 200 * time.Millisecond }},
	})
	defer y.close()
	y.enqueue("first", queue.Options{}, queue.EventAcquired)
	y.enqueue("shaky", queue.Options{}, queue.EventParked)
	y.enqueue("third", queue.Options{}, queue.EventParked)
	y.leave()
	y.await("third", queue.EventReleased)
	// Output:
	// first runs
	// shaky runs
	// shaky runs
	// third runs
}

// A task of a higher priority comes before those that wait already.
func ExampleOptions_priority() {
	y := newYard(queue.ServerConfig{})
	defer y.close()
	y.enqueue("first", queue.Options{}, queue.EventAcquired)
	y.enqueue("second", queue.Options{}, queue.EventParked)
	y.enqueue("urgent", queue.Options{Priority: 5}, queue.EventParked)
	y.leave()
	y.await("second", queue.EventReleased)
	// Output:
	// first runs
	// urgent runs
	// second runs
}

// Two audits of an order may start in a second, and 100 in a day.
func ExampleLimit_rates() {
	y := newYard(queue.ServerConfig{Limits: map[string]queue.Limit{
		"order:*": {Rates: []lock.Rate{{Starts: 2, Period: time.Second}, {Starts: 100, Period: 24 * time.Hour}}},
	}})
	defer y.close()
	began := time.Now()
	y.enqueue("one", queue.Options{}, queue.EventReleased)
	y.enqueue("two", queue.Options{}, queue.EventReleased)
	y.enqueue("three", queue.Options{}, queue.EventReleased)
	fmt.Println("the third waited:", time.Since(began) >= time.Second)
	// Output:
	// one runs
	// two runs
	// three runs
	// the third waited: true
}

// A task of a resource that an operator has paused waits until the end of the pause.
func ExampleSetLimit_pause() {
	ctx := context.Background()
	pause := queue.LimitOverride{Pattern: "order:536365", Holders: 0, By: "ann", Reason: "the customer called"}
	y := newYard(queue.ServerConfig{}, func(rdb redis.UniversalClient) error { return queue.SetLimit(ctx, rdb, pause) })
	defer y.close()
	e := y.enqueue("second", queue.Options{}, queue.EventParked)
	fmt.Println("it says why:", strings.Contains(e.Err.Error(), "ann paused it: the customer called"))
	must(queue.UnsetLimit(ctx, y.rdb, "", pause.Pattern))
	y.await("second", queue.EventReleased)
	// Output:
	// it says why: true
	// second runs
}
