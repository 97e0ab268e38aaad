package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/etcdlock"
)

// opening is what there is of each item.
const opening = 1000

// A ledger keeps a stock in etcd. A sale writes what it computes from the stock that it has read.
// So only the lock keeps two sales of an item from losing one of them; and it is written on
// condition that the lock, by its revision, is still held, so that no sale is written late.
type ledger struct {
	client *clientv3.Client
	locks  *etcdlock.Store
}

// A stock is what is kept of an item.
type stock struct {
	OnHand   int   `json:"on_hand"`
	Revision int64 `json:"revision"` // the fencing token of the last sale
}

func stockKey(item string) string { return "stock/" + item }

// open begins the stock of an item, and forgets its earlier sales.
func (l *ledger) open(ctx context.Context, item string) error {
	value, err := json.Marshal(stock{OnHand: opening})
	if err != nil {
		return err
	}
	_, err = l.client.Txn(ctx).Then(
		clientv3.OpPut(stockKey(item), string(value)),
		clientv3.OpDelete("sold/"+item+"/", clientv3.WithPrefix()),
	).Commit()
	return err
}

func (l *ledger) read(ctx context.Context, item string) (stock, error) {
	resp, err := l.client.Get(ctx, stockKey(item))
	if err != nil {
		return stock{}, err
	}
	if len(resp.Kvs) == 0 {
		return stock{}, fmt.Errorf("there is no %s", item)
	}
	var s stock
	return s, json.Unmarshal(resp.Kvs[0].Value, &s)
}

// sell sells under the lock that ctx carries, and reports whether it was this call that
// did. A task that runs again, as nobody knows whether it was done, sells nothing more.
func (l *ledger) sell(ctx context.Context, id string, s Sell) (first bool, _ error) {
	const thinking = 20 * time.Millisecond
	left, err := l.read(ctx, s.Item)
	if err != nil {
		return false, err
	}
	timer := time.NewTimer(thinking)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	value, err := json.Marshal(stock{OnHand: left.OnHand - s.Quantity, Revision: lock.Fence(ctx, s.Resource())})
	if err != nil {
		return false, err
	}
	sold := "sold/" + s.Item + "/" + id
	resp, err := l.locks.Commit(ctx, s.Resource(), clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(sold), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(stockKey(s.Item), string(value)), clientv3.OpPut(sold, "")},
		nil,
	))
	if err != nil {
		return false, err
	}
	return resp.Responses[0].GetResponseTxn().Succeeded, nil
}
