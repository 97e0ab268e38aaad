// Command example is a worker whose tasks are guarded by locks in etcd. The worker sells items of a
// stock that is kept in etcd, too. Each sale is written on condition that the task still holds its
// item's lock. With an etcd at hand:
//
//	go run ./example -etcd 127.0.0.1:2379
//
// The queue is on a Redis in memory, or on the one that -redis names. Sales of one item
// exclude each other: the task of a busy item is parked in that Redis, and started in order.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sidingq/siding/lock/etcdlock"
	"github.com/sidingq/siding/queue"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		slog.Error("the example has failed", "error", err)
		os.Exit(1)
	}
}

// Sell is a task: it takes a quantity of an item from the stock.
type Sell struct {
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
}

// Kind is what the queue calls it.
func (Sell) Kind() string { return "stock:sell" }

// Resource is what two sales must not share.
func (s Sell) Resource() string { return "stock:" + s.Item }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	flags.SetOutput(out)
	etcd := flags.String("etcd", "127.0.0.1:2379", "members of the etcd cluster, `host:port` with commas in between")
	redisAddr := flags.String("redis", "", "the queue's Redis, `host:port`; one in memory if empty")
	sales := flags.Int("sales", 30, "how many sales there are, 1 or more")
	items := flags.Int("items", 3, "of how many items, 1 or more")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *sales < 1 || *items < 1 {
		return fmt.Errorf("want -sales and -items of 1 or more, have %d and %d", *sales, *items)
	}
	if *redisAddr == "" {
		server, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer server.Close()
		*redisAddr = server.Addr()
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            strings.Split(*etcd, ","),
		DialKeepAliveTime:    10 * time.Second, // so that it leaves a member that hangs
		DialKeepAliveTimeout: 3 * time.Second,
		Logger:               zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer client.Close()
	if err := reach(ctx, client); err != nil {
		return err
	}
	// The locks are in etcd, whatever the queue is on.
	return sell(ctx, &ledger{client: client, locks: etcdlock.New(client)}, *redisAddr, *sales, *items, out)
}

// reach returns an error if etcd does not answer.
func reach(ctx context.Context, client *clientv3.Client) error {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := client.Get(ctx, "reachable"); err != nil {
		return fmt.Errorf("-etcd: no etcd answers at %s: %w", strings.Join(client.Endpoints(), ","), err)
	}
	return nil
}

// sell enqueues sales and waits until a worker has done them all.
func sell(ctx context.Context, ledger *ledger, redisAddr string, sales, items int, out io.Writer) (err error) {
	name := func(n int) string { return fmt.Sprintf("item-%d", n%items) }
	for n := range items {
		if err := ledger.open(ctx, name(n)); err != nil {
			return err
		}
	}
	var parked, sold atomic.Int64
	done := make(chan struct{})
	opts := &redis.UniversalOptions{Addrs: []string{redisAddr}}
	server, err := queue.NewServer(queue.RedisOpt(*opts), queue.ServerConfig{
		Store: ledger.locks,
		Observe: func(e queue.Event) {
			if e.Kind == queue.EventParked {
				parked.Add(1)
			}
		},
	})
	if err != nil {
		return err
	}
	queue.Handle(server, func(ctx context.Context, s Sell) error {
		first, err := ledger.sell(ctx, queue.InfoFrom(ctx).ID, s)
		if first && sold.Add(1) == int64(sales) {
			close(done)
		}
		return err
	})
	start := time.Now()
	if err := server.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Shutdown(context.WithoutCancel(ctx))) }()
	rdb := queue.Redis(opts)
	defer rdb.Close()
	tasks, err := queue.NewClient(rdb, queue.ClientConfig{})
	if err != nil {
		return err
	}
	want := make(map[string]int)
	for n := range sales {
		s := Sell{Item: name(n), Quantity: 1 + n%5}
		if _, err := tasks.Enqueue(ctx, s, nil); err != nil {
			return err
		}
		want[s.Item] += s.Quantity
	}
	select {
	case <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	took := time.Since(start).Round(100 * time.Millisecond)
	for item, quantity := range want {
		left, err := ledger.read(ctx, item)
		if err != nil {
			return err
		}
		if left.OnHand != opening-quantity {
			return fmt.Errorf("%s: want %d left, have %d", item, opening-quantity, left.OnHand)
		}
	}
	_, err = fmt.Fprintf(out, "%d sales of %d items in %v; %d times a sale was parked, as its item was being sold; every stock is right\n",
		sales, items, took, parked.Load())
	return err
}
