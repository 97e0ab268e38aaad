package etcdlock_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sidingq/siding/lock/etcdlock"
	"github.com/sidingq/siding/queue"
)

// Sell is a task: it takes a quantity of an item from the stock.
type Sell struct {
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
}

// Kind is what the queue calls it.
func (Sell) Kind() string { return "stock:sell" }

// Resource is what two sales must not share.
func (s Sell) Resource() string { return "stock:" + s.Item }

// A worker keeps its locks and its stock in etcd. What a sale has read is true as long as it holds the lock, and what it
// writes is written on that condition. A sale that is run again, as nobody knows how it ended, sells nothing more.
func ExampleStore_Commit() {
	_ = func(ctx context.Context, client *clientv3.Client) error {
		locks := etcdlock.New(client)
		server, err := queue.NewServer(queue.RedisOpt(redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}}), queue.ServerConfig{Store: locks})
		if err != nil {
			return err
		}
		queue.Handle(server, func(ctx context.Context, s Sell) error {
			resp, err := client.Get(ctx, "stock/"+s.Item)
			if err != nil {
				return err
			}
			if len(resp.Kvs) == 0 {
				return fmt.Errorf("there is no %s: %w", s.Item, asynq.SkipRetry)
			}
			var left int
			if err := json.Unmarshal(resp.Kvs[0].Value, &left); err != nil {
				return err
			}
			sold := "sold/" + queue.InfoFrom(ctx).ID
			_, err = locks.Commit(ctx, s.Resource(), clientv3.OpTxn(
				[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(sold), "=", 0)},
				[]clientv3.Op{clientv3.OpPut("stock/"+s.Item, fmt.Sprint(left-s.Quantity)), clientv3.OpPut(sold, "")},
				nil,
			))
			return err // with lock.ErrLost nothing is sold, and the task runs again
		})
		return server.Run(ctx)
	}
}
