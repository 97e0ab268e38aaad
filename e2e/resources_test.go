package e2e

import (
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/ledger"
)

// A worker runs tasks that need several resources each, to both of their outcomes.
func TestTasksOfSeveralResources(t *testing.T) {
	t.Parallel()
	s := newTestbed(t)
	client := newClient(t, s.redis.Client(t))
	for _, task := range []queue.Task{
		tasks.DebitBalance{Customer: "1", Order: "C1", Amount: -50_000},
		tasks.TransferBalance{From: "1", To: "2", Cents: 200},
		tasks.TransferBalance{From: "3", To: "4", Cents: 1},
		tasks.FulfilOrder{Order: "1", Items: []tasks.Pick{{SKU: "22086", Quantity: 600}, {SKU: "85123A", Quantity: 1}}},
	} {
		expect.Value(client.Enqueue(t.Context(), task, nil))(t)
	}
	s.startWorker(t)
	s.awaitEmpty(t, limit(4))
	// Of two that come at once the later one may ask first.
	short := tasks.FulfilOrder{Order: "2", Items: []tasks.Pick{{SKU: "22086", Quantity: 600}, {SKU: "71053", Quantity: 1}}}
	expect.Value(client.Enqueue(t.Context(), short, nil))(t)
	s.awaitEmpty(t, limit(1))
	l := expect.Value(ledger.Open(s.ledger))(t)
	defer func() { _ = l.Close() }()
	var accounts, orders string
	expect.OK(t, l.DB().QueryRowContext(t.Context(), `SELECT
		(SELECT group_concat(customer || ' ' || balance || ' ' || declined) FROM (SELECT * FROM accounts ORDER BY customer)),
		(SELECT group_concat(order_no || ' ' || fulfilment) FROM (SELECT * FROM orders WHERE fulfilment <> '' ORDER BY order_no))`).Scan(&accounts, &orders))
	expect.Equal(t, "accounts", accounts, "1 30000 0,2 20000 0,3 0 1,4 0 0")
	expect.Equal(t, "orders", orders, "1 fulfilled,2 short")
}
