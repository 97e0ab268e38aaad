package e2e

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/queue/queuetest"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/ledger"
	"github.com/sidingq/siding/tasks/oracle"
	"github.com/sidingq/siding/tasks/orders"
	"github.com/sidingq/siding/tasks/orders/ordertest"
)

// The same tasks run with locks and without. The oracle must tell the two apart, or it proves nothing.
func TestTheLedgerIsWrongWithoutLocks(t *testing.T) {
	t.Parallel()
	for name, file := range ordertest.Files(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part := contended(t, file(t))
			t.Run("guarded", func(t *testing.T) {
				t.Parallel()
				if report, lines := runPart(t, part, startGuarded); !report.OK() || lines != report.Lines {
					t.Errorf("want a ledger with %d lines that agrees, have %d: %s", report.Lines, lines, report)
				}
			})
			t.Run("unguarded", func(t *testing.T) {
				t.Parallel()
				if report, lines := runPart(t, part, startUnguarded); report.OK() || lines >= report.Lines {
					t.Errorf("want lost updates, have %d lines of %d: %s", lines, report.Lines, report)
				}
			})
		})
	}
}

// contended writes an order file whose tasks contend, and returns its path. The lines are those of
// another file: one long order, and many short ones of the same customer.
func contended(t *testing.T, file string) string {
	t.Helper()
	const long, short = 200, 50
	rows := [][]string{ordertest.Header}
	for len(rows) <= long+short {
		before := len(rows)
		for line := range fileLines(t, file) {
			number := 1
			if len(rows) > long {
				number = len(rows)
			}
			rows = append(rows, []string{
				strconv.Itoa(number), line.SKU, "", strconv.FormatInt(line.Quantity, 10), "2026-03-02T08:00:00", tasks.Money(line.Price).String(), "20001", "",
			})
			if len(rows) > long+short {
				break
			}
		}
		if len(rows) == before {
			t.Fatalf("%s: want a line that can be used", file)
		}
	}
	path := filepath.Join(t.TempDir(), "contended.csv")
	f := expect.Value(os.Create(path))(t)
	expect.OK(t, errors.Join(csv.NewWriter(f).WriteAll(rows), f.Close()))
	return path
}

// runPart enqueues the tasks of an order file, and runs them on the server that start starts. The
// results are the oracle's report, and the number of lines of the orders in the ledger.
func runPart(t *testing.T, file string, start func(*testing.T, string, *ledger.Ledger)) (report oracle.Report, lines int) {
	t.Helper()
	f := expect.Value(os.Open(file))(t)
	defer func() { _ = f.Close() }()
	r := expect.Value(orders.NewReader(f))(t)
	var jobs []queue.Job
	for job, err := range orders.NewPlan(orders.PlanConfig{Content: "part"}).Jobs(r) {
		expect.OK(t, err)
		jobs = append(jobs, job.Job)
	}
	s, l := runJobs(t, jobs, start)
	report = s.checkLedger(t, file)
	expect.OK(t, l.DB().QueryRowContext(t.Context(), "SELECT SUM(lines) FROM orders").Scan(&lines))
	t.Log(report)
	return report, lines
}

// runJobs enqueues jobs, and runs them on the server that start starts.
func runJobs(t *testing.T, jobs []queue.Job, start func(*testing.T, string, *ledger.Ledger)) (*testbed, *ledger.Ledger) {
	t.Helper()
	s := &testbed{redis: redistest.Start(t), ledger: filepath.Join(t.TempDir(), "ledger.db")}
	l := expect.Value(ledger.Open(t.Context(), s.ledger))(t)
	t.Cleanup(func() { _ = l.Close() })
	client := newClient(t, s.redis.Client(t))
	for _, job := range jobs {
		expect.Value(client.Enqueue(t.Context(), job.Task, job.Options))(t)
	}
	start(t, s.redis.Addr, l)
	s.awaitProcessed(t, len(jobs), 2*time.Minute)
	return s, l
}

// The same of tasks that need several resources each. Without locks money appears or gets lost.
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
	for name, start := range map[string]func(*testing.T, string, *ledger.Ledger){"guarded": startGuarded, "unguarded": startUnguarded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, l := runJobs(t, jobs, start)
			report := expect.Value(oracle.Check(t.Context(), l.DB(), in))(t)
			var sum, declined, short int64
			row := l.DB().QueryRowContext(t.Context(), "SELECT SUM(balance), SUM(declined), (SELECT COUNT(*) FROM orders WHERE fulfilment = 'short') FROM accounts")
			expect.OK(t, row.Scan(&sum, &declined, &short))
			guarded := name == "guarded"
			if report.OK() != guarded || (sum == credit*accounts) != guarded {
				t.Errorf("want a ledger that agrees, with %d on all accounts: %t, have %d: %s", credit*accounts, guarded, sum, report)
			}
			if guarded && (declined < 1 || declined == each || short < 1 || short == each/2) {
				t.Errorf("want tasks of both outcomes, have %d transfers declined and %d orders short", declined, short)
			}
			t.Logf("%d on all accounts, %d transfers declined, %d orders short", sum, declined, short)
		})
	}
}

// work is how long a task takes: long enough for others to come between.
const work = time.Millisecond

func startGuarded(t *testing.T, addr string, l *ledger.Ledger) {
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

// startUnguarded runs the tasks on a plain asynq server. All have the same fencing token, as there
// is no lock.
func startUnguarded(t *testing.T, addr string, l *ledger.Ledger) {
	t.Helper()
	book := tasks.NewBook(l, work)
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: addr}, asynq.Config{
		Concurrency: 20, TaskCheckInterval: 20 * time.Millisecond, LogLevel: asynq.FatalLevel,
	})
	expect.OK(t, server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		task, err := tasks.Decode(t.Type(), t.Payload())
		if err != nil {
			return err
		}
		id, _ := asynq.GetTaskID(ctx)
		for _, resource := range store.Names(task.Resource()) {
			ctx = locktest.WithFence(ctx, resource, 1) //nolint:fatcontext // a few
		}
		return book.Run(queuetest.WithInfo(ctx, queue.Info{ID: id}), task)
	})))
	t.Cleanup(server.Shutdown)
}
