package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/ledger"
	"github.com/sidingq/siding/tasks/oracle"
	"github.com/sidingq/siding/tasks/orders"
	"github.com/sidingq/siding/tasks/orders/ordertest"
)

// binaries builds the programs once for all tests.
var binaries = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "siding-e2e-"); err != nil {
		return "", err
	}
	built = dir
	out, err := exec.Command("go", "build", "-o", dir+"/", "../cmd/worker", "../cmd/enqueue", "../cmd/lockctl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return dir, nil
})

// built is where binaries has put them, "" before that.
var built string

func TestMain(m *testing.M) {
	m.Run()
	_ = os.RemoveAll(built)
}

// A testbed is one Redis, one ledger, and the programs that work on them.
type testbed struct {
	redis  *redistest.Server
	ledger string
	bin    string
	env    []string
}

func newTestbed(t *testing.T, redisArgs ...string) *testbed {
	t.Helper()
	bin := expect.Value(binaries())(t)
	s := &testbed{redis: redistest.Start(t, redisArgs...), ledger: filepath.Join(t.TempDir(), "ledger.db"), bin: bin}
	s.env = append(environ(),
		"SIDING_REDIS_ADDRS="+s.redis.Addr,
		"SIDING_LEDGER_DSN="+s.ledger,
		"SIDING_HTTP_ADDRESS=127.0.0.1:0",
	)
	return s
}

// environ returns the environment without the settings of the person who runs the tests.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SIDING_") })
}

// A process is a running program.
type process struct{ *proc.Program }

// start starts a program, which the test's cleanup kills.
func (s *testbed) start(t *testing.T, dir, program string, args ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, s.env
	return &process{proc.Launch(t, cmd)}
}

// end sends a signal, and wants the program to end well.
func (p *process) end(t *testing.T, signal os.Signal) {
	t.Helper()
	p.Signal(t, signal)
	if status := p.Wait(t, 30*time.Second); status != 0 {
		t.Errorf("%q: exit status after %v: want 0, have %d", p.Cmd.Args, signal, status)
	}
}

// kill ends the program by SIGKILL.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.Signal(t, os.Kill)
	<-p.Ended
}

// A worker is a process that prints a summary at its end.
type worker struct{ *process }

func (s *testbed) startWorker(t *testing.T, args ...string) *worker {
	t.Helper()
	dir := t.TempDir() // has no config.yaml
	return &worker{s.start(t, dir, filepath.Join(s.bin, "worker"), append([]string{"--json"}, args...)...)}
}

// terminate ends the worker by SIGTERM and returns its summary.
func (w *worker) terminate(t *testing.T) (sum summary) {
	t.Helper()
	w.end(t, syscall.SIGTERM)
	if err := json.Unmarshal([]byte(w.Stdout.String()), &sum); err != nil {
		t.Errorf("summary: %v in %q", err, w.Stdout.String())
	}
	return sum
}

// summary is what a worker prints at its end.
type summary struct {
	Tasks     int   `json:"tasks"`
	Succeeded int   `json:"succeeded"`
	Archived  int   `json:"archived"`
	Contended int   `json:"contended"`
	Parked    int   `json:"parked"`
	LedgerOK  *bool `json:"ledger_ok"`
}

// enqueue runs cmd/enqueue and returns what it printed.
func (s *testbed) enqueue(ctx context.Context, args ...string) (stdout string, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "enqueue"), args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = s.env, &out, &errs
	cmd.Dir = os.TempDir()
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("enqueue %s: %w\n%s", strings.Join(args, " "), err, tail(errs.String(), 2000))
	}
	return out.String(), nil
}

// lockctl runs cmd/lockctl and returns what it printed.
func (s *testbed) lockctl(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(s.bin, "lockctl"), args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = s.env, &out, &errs
	cmd.Dir = t.TempDir() // has no config.yaml
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// enqueueOrders enqueues an order file. Only the real one may have bad lines.
func (s *testbed) enqueueOrders(ctx context.Context, file string) (stdout string, err error) {
	const refused = 3 // exit status
	stdout, err = s.enqueue(ctx, "orders", file, "--json")
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == refused && isReal(file) {
		return stdout, nil
	}
	return stdout, err
}

// queueInfo asks asynq itself.
func (s *testbed) queueInfo(t *testing.T) *asynq.QueueInfo {
	t.Helper()
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: s.redis.Addr})
	defer func() { _ = inspector.Close() }()
	if queues, err := inspector.Queues(); err != nil {
		t.Fatal(err)
	} else if len(queues) == 0 {
		return &asynq.QueueInfo{} // nothing has been enqueued yet
	}
	info := expect.Value(inspector.GetQueueInfo("default"))(t)
	return info
}

// awaitEmpty waits until no task has yet to run, and wants none archived.
func (s *testbed) awaitEmpty(t *testing.T, limit time.Duration) *asynq.QueueInfo {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var info *asynq.QueueInfo
	expect.OK(t, expect.Until(ctx, func() error {
		info = s.queueInfo(t)
		if left := info.Pending + info.Active + info.Scheduled + info.Retry; left > 0 {
			return fmt.Errorf("%d tasks have yet to run", left)
		}
		return nil
	}))
	expect.That(t, info.Archived == 0, "archived: want none, have %d", info.Archived)
	return info
}

// checkLedger has the oracle compare the ledger with the file.
func (s *testbed) checkLedger(t *testing.T, file string) oracle.Report {
	t.Helper()
	l := expect.Value(ledger.Open(s.ledger))(t)
	defer func() { _ = l.Close() }()
	report := expect.Value(oracle.Check(t.Context(), l.DB(), oracle.Input{Lines: fileLines(t, file), OpeningStock: tasks.OpeningStock}))(t)
	return report
}

// isReal reports whether an order file is the real one, which may have bad lines.
func isReal(file string) bool {
	path, err := ordertest.Real()
	return err == nil && path == file
}

// fileLines reads the lines of an order file that ask for tasks, for the oracle. Bad lines of the
// real file are left out.
func fileLines(t *testing.T, file string) iter.Seq[oracle.Line] {
	t.Helper()
	f := expect.Value(os.Open(file))(t)
	t.Cleanup(func() { _ = f.Close() })
	r := expect.Value(orders.NewReader(expect.Value(orders.Unpack(f))(t)))(t)
	return func(yield func(oracle.Line) bool) {
		for {
			line, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if bad, ok := errors.AsType[*orders.LineError](err); ok && isReal(file) {
				t.Log(bad)
				continue
			}
			if err != nil {
				t.Error(err)
				return
			}
			if line.Quantity != 0 && !yield(oracle.Line{
				Number: line.Number, Order: line.Order, SKU: line.SKU, Quantity: line.Quantity, Price: int64(line.Price),
				Customer: line.Customer,
			}) {
				return
			}
		}
	}
}

// orderFiles returns order files by name: "short" for every run, and those of [ordertest.Files]
// for long tests.
func orderFiles(t *testing.T) map[string]func(testing.TB) string {
	t.Helper()
	files := ordertest.Files(t)
	files["short"] = func(tb testing.TB) string { tb.Helper(); return ordertest.File(tb, ordertest.LeastLines) }
	return files
}

func countLines(t *testing.T, file string) (n int) {
	t.Helper()
	for range fileLines(t, file) {
		n++
	}
	return n
}

func tail(s string, n int) string {
	if len(s) > n {
		return "... " + s[len(s)-n:]
	}
	return s
}

// newClient returns a client without shards.
func newClient(t *testing.T, rdb redis.UniversalClient) *queue.Client {
	t.Helper()
	client := expect.Value(queue.NewClient(rdb, queue.ClientConfig{}))(t)
	return client
}
