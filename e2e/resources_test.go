package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/ledger"
	"github.com/sidingq/siding/tasks/oracle"
)

// runJobs enqueues jobs, and runs them on a server.
func runJobs(t *testing.T, jobs []queue.Job) *ledger.Ledger {
	t.Helper()
	s := &testbed{redis: redistest.Start(t), ledger: filepath.Join(t.TempDir(), "ledger.db")}
	l := expect.Value(ledger.Open(t.Context(), s.ledger))(t)
	t.Cleanup(func() { _ = l.Close() })
	client := newClient(t, s.redis.Client(t))
	for _, job := range jobs {
		expect.Value(client.Enqueue(t.Context(), job.Task, job.Options))(t)
	}
	startServer(t, s.redis.Addr, l)
	s.awaitProcessed(t, len(jobs), 2*time.Minute)
	return l
}

// Tasks that need several resources each run on a server. Without locks money would appear or get lost, as
// tasks.TestWithoutLock shows.
func TestTheLedgerOfSeveralResources(t *testing.T) {
	t.Parallel()
	const accounts, skus, each, credit = 4, 5, 150, 50_000
	in := oracle.Input{OpeningStock: tasks.OpeningStock}
	var lines []oracle.Line
	var jobs []queue.Job
	add := func(task queue.Task) { jobs = append(jobs, queue.Job{Task: task}) }
	for a := range accounts { // without a credit no transfer could be made
		order, customer := fmt.Sprint("C", a), strconv.Itoa(a)
		lines = append(lines, oracle.Line{Number: a, Order: order, SKU: "M", Quantity: -1, Price: credit, Customer: customer})
		add(tasks.AllocateLine{Order: order, Line: a, SKU: "M", Quantity: -1, Price: credit})
		add(tasks.AuditOrder{Order: order})
		add(tasks.DebitBalance{Customer: customer, Order: order, Amount: -credit})
	}
	in.Lines = slices.Values(lines)
	for i := range each {
		transfer := tasks.TransferBalance{From: strconv.Itoa(i % accounts), To: strconv.Itoa((i + 1 + i%3) % accounts), Cents: int64(1 + i*37%400)}
		in.Transfers = append(in.Transfers, oracle.Transfer{From: transfer.From, To: transfer.To, Amount: transfer.Cents * 100})
		fulfil, units := tasks.FulfilOrder{Order: strconv.Itoa(i / 2)}, map[string]int64{} // two for each order
		for n := i; n < i+2+i%3; n++ {
			pick := tasks.Pick{SKU: fmt.Sprint("sku-", n%skus), Quantity: int64(20 + n%30)}
			fulfil.Items, units[pick.SKU] = append(fulfil.Items, pick), pick.Quantity
		}
		in.Fulfilments = append(in.Fulfilments, oracle.Fulfilment{Order: fulfil.Order, Units: units})
		add(transfer)
		add(fulfil)
	}
	l := runJobs(t, jobs)
	report := expect.Value(oracle.Check(t.Context(), l.DB(), in))(t)
	var sum, declined, short int64
	row := l.DB().QueryRowContext(t.Context(), "SELECT SUM(balance), SUM(declined), (SELECT COUNT(*) FROM orders WHERE fulfilment = 'short') FROM accounts")
	expect.OK(t, row.Scan(&sum, &declined, &short))
	if !report.OK() || sum != credit*accounts {
		t.Errorf("want a ledger that agrees, with %d on all accounts, have %d: %s", credit*accounts, sum, report)
	}
	expect.That(t, declined >= 1 && declined != each && short >= 1 && short != each/2, "want tasks of both outcomes, have %d transfers declined and %d orders short", declined, short)
}

// work is how long a task takes: long enough for others to come between.
const work = time.Millisecond

func startServer(t *testing.T, addr string, l *ledger.Ledger) {
	t.Helper()
	server := expect.Value(queue.NewServer(queue.RedisOpt{Addrs: []string{addr}}, queue.ServerConfig{}))(t)
	tasks.Register(server, l, work)
	expect.OK(t, server.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
}
