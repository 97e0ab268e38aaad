package e2e

import (
	"context"
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

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
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(csv.NewWriter(f).WriteAll(rows), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// runPart enqueues the tasks of an order file, and runs them on the server that start starts. The
// results are the oracle's report, and the number of lines of the orders in the ledger.
func runPart(t *testing.T, file string, start func(*testing.T, string, *ledger.Ledger)) (report oracle.Report, lines int) {
	t.Helper()
	s := &testbed{redis: redistest.Start(t), ledger: filepath.Join(t.TempDir(), "ledger.db")}
	l, err := ledger.Open(t.Context(), s.ledger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	client := newClient(t, s.redis.Client(t))
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r, err := orders.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for job, err := range orders.NewPlan(orders.PlanConfig{Content: "part"}).Jobs(r) {
		if err == nil {
			_, err = client.Enqueue(t.Context(), job.Task, job.Options)
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	start(t, s.redis.Addr, l)
	s.awaitProcessed(t, n, 2*time.Minute)
	report = s.checkLedger(t, file)
	if err := l.DB().QueryRowContext(t.Context(), "SELECT SUM(lines) FROM orders").Scan(&lines); err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	return report, lines
}

// work is how long a task takes: long enough for others to come between.
const work = time.Millisecond

func startGuarded(t *testing.T, addr string, l *ledger.Ledger) {
	t.Helper()
	server, err := queue.NewServer(queue.RedisOpt{Addrs: []string{addr}}, queue.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	tasks.Register(server, l, work)
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
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
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		task, err := tasks.Decode(t.Type(), t.Payload())
		if err != nil {
			return err
		}
		id, _ := asynq.GetTaskID(ctx)
		ctx = locktest.WithFence(ctx, task.Resource(), 1)
		return book.Run(queuetest.WithInfo(ctx, queue.Info{ID: id}), task)
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
}
