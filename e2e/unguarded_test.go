package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/oracle"
	"github.com/sidingq/siding/internal/orders"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/ledger"
)

// The same tasks, workers and check, with the guard and without: the check must
// tell the two apart, or it proves nothing.
func TestTheLedgerIsWrongWithoutTheGuard(t *testing.T) {
	t.Parallel()
	// The longest order, and all of the busiest customer.
	part := linesWith(t, orderFile(t), func(line string) bool {
		return strings.HasPrefix(line, "581219,") || strings.Contains(line, ",12748,")
	})
	for _, guarded := range []bool{true, false} {
		name := "unguarded"
		if guarded {
			name = "guarded"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report, lines := runPart(t, part, guarded)
			if guarded && (!report.OK() || lines != int64(report.Lines)) {
				t.Errorf("want a ledger with %d lines that agrees, have %d: %s", report.Lines, lines, report)
			}
			if !guarded && (report.OK() || lines >= int64(report.Lines)) {
				t.Errorf("want lost updates, have %d lines of %d: %s", lines, report.Lines, report)
			}
		})
	}
}

// runPart enqueues the tasks of an order file, runs them, and returns what the
// oracle says and how many lines the orders in the ledger have.
func runPart(t *testing.T, part []byte, guarded bool) (report oracle.Report, lines int64) {
	t.Helper()
	srv := redistest.Start(t)
	l, err := ledger.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	client := newClient(t, srv.Client(t))
	r, err := orders.NewReader(bytes.NewReader(part))
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
	cfg := tasks.Config{Work: time.Millisecond}
	if guarded {
		startGuarded(t, srv.Addr, l, cfg)
	} else {
		startUnguarded(t, srv.Addr, l, cfg)
	}
	s := &site{redis: srv}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	err = poll.Until(ctx, func() error {
		if done := s.queueInfo(t).ProcessedTotal; done != n {
			return fmt.Errorf("%d of %d tasks are done", done, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	report, err = oracle.Check(t.Context(), l.DB(), oracle.Input{Lines: oracleLines(t, bytes.NewReader(part)), OpeningStock: tasks.OpeningStock})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.DB().QueryRowContext(t.Context(), "SELECT SUM(lines) FROM orders").Scan(&lines); err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	return report, lines
}

func startGuarded(t *testing.T, addr string, l *ledger.Ledger, cfg tasks.Config) {
	t.Helper()
	server, err := queue.NewServer(&redis.UniversalOptions{Addrs: []string{addr}}, queue.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	tasks.Register(server, l, cfg)
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

// startUnguarded runs the tasks on a plain asynq server. All have the same
// fencing token, as there is no lock to give out a better one.
func startUnguarded(t *testing.T, addr string, l *ledger.Ledger, cfg tasks.Config) {
	t.Helper()
	book := tasks.NewBook(l, cfg)
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: addr}, asynq.Config{
		Concurrency: 20, TaskCheckInterval: 20 * time.Millisecond, LogLevel: asynq.FatalLevel,
	})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		task, err := tasks.Decode(t.Type(), t.Payload())
		if err != nil {
			return err
		}
		id, _ := asynq.GetTaskID(ctx)
		return book.Run(lock.WithFence(queue.WithInfo(ctx, queue.Info{ID: id}), 1), task)
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
}

// linesWith returns the header of an order file and the lines that are wanted.
func linesWith(t *testing.T, file string, want func(line string) bool) []byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	var part bytes.Buffer
	for i, line := range strings.SplitAfter(string(text), "\n") {
		if i == 0 || want(line) {
			part.WriteString(line)
		}
	}
	return part.Bytes()
}
