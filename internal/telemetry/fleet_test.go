package telemetry_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/telemetry"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// A reader has queues alone.
type reader []inspect.Queue

func (reader) Held(context.Context) (inspect.List, error)        { return inspect.List{}, nil }
func (r reader) Queues(context.Context) ([]inspect.Queue, error) { return r, nil }
func (reader) Servers(context.Context) ([]inspect.Server, error) { return nil, nil }
func (r reader) state(t *testing.T) map[string]telemetry.QueueState {
	t.Helper()
	return expect.Value(telemetry.NewFleet(r).Read(t.Context()))(t).Queues
}

// shards returns so many shards of a queue, all alike.
func shards(name string, n int, like inspect.Queue) (queues reader) {
	for i := range n {
		like.Name = fmt.Sprintf("%s.%03d-ab", name, i)
		queues = append(queues, like)
	}
	return queues
}

// Of more shards than there are words, those without one count with their queue: that one of two queues is served does not hide that
// the other is not.
func TestFleetOfManyShards(t *testing.T) {
	t.Parallel()
	const n = 2 * telemetry.Limit
	have := append(shards("orders", n, inspect.Queue{Pending: 1}), shards("mails", n, inspect.Queue{Active: 1})...).state(t)
	orders, mails := have["orders"].Tasks, have["mails"].Tasks
	expect.That(t, orders["pending"] >= n/2 && orders["active"] == 0 && mails["active"] >= n/2 && mails["pending"] == 0, "want a sum of each queue, have %v and %v", orders, mails)
	if other, ok := have[telemetry.Other]; ok {
		t.Errorf("want nothing of other queues, have %v", other)
	}
}

// While there are words enough each shard has its own: one that nobody serves does not hide behind the others.
func TestFleetOfFewShards(t *testing.T) {
	t.Parallel()
	have := append(shards("orders", 3, inspect.Queue{Active: 1}), inspect.Queue{Name: "orders.003-ab", Pending: 5}).state(t)
	if one := have["orders.003-ab"].Tasks; len(have) != 4 || one["pending"] != 5 || one["active"] != 0 {
		t.Errorf("want the shards one by one, have %v", have)
	}
}

// A sum is paused if all are of which it is made.
func TestFleetOfPausedQueues(t *testing.T) {
	t.Parallel()
	for _, paused := range []int{0, 1, 2} {
		queues := shards("orders", telemetry.Limit-1, inspect.Queue{}) // which have all the words but that of orders
		for i := range 2 {
			queues = append(queues, inspect.Queue{Name: fmt.Sprintf("orders.9%02d-ab", i), Paused: i < paused})
		}
		if have := queues.state(t)["orders"].Paused; have == 1 != (paused == 2) {
			t.Errorf("%d of 2 paused: have %d", paused, have)
		}
	}
}
