package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// A result is how a run of the program ended.
type result struct {
	out, err string
	status   int
}

// wantResult compares a run with what is wanted of it.
func wantResult(t *testing.T, want, have result) {
	t.Helper()
	expect.Same(t, "result", have, want, cmp.AllowUnexported(result{}))
}

// lockctl runs the program in an empty environment.
func lockctl(t *testing.T, args ...string) result {
	t.Helper()
	return runIn(t.Context(), nil, "", args...)
}

// runIn runs the program with what it reads from stdin.
func runIn(ctx context.Context, environ []string, stdin string, args ...string) result {
	var out, err bytes.Buffer
	a := newApp(strings.NewReader(stdin), &out, &err, environ)
	status := a.run(ctx, args)
	return result{out.String(), err.String(), status}
}

// A fake is an inspector that gives the same answers at all times. It has none to what no test with a fake asks.
type fake struct {
	inspector

	list    inspect.List
	scanned []inspect.Lock
	lock    inspect.Lock
	waiters []inspect.Waiter
	why     inspect.Explanation
	servers []inspect.Server
	leftOut int // held lines
	err     error
}

func (f *fake) Held(context.Context) (inspect.List, error) { return f.list, f.err }
func (f *fake) Show(context.Context, string, int, int) (inspect.Lock, []inspect.Waiter, error) {
	return f.lock, f.waiters, f.err
}

func (f *fake) Why(context.Context, string, string) (inspect.Explanation, error) { return f.why, f.err }

func (f *fake) HeldLines(context.Context) ([]inspect.HeldLine, int, error) {
	return nil, f.leftOut, f.err
}

func (f *fake) Servers(context.Context) ([]inspect.Server, error) { return f.servers, f.err }

func (f *fake) Scan(_ context.Context, progress func(int)) ([]inspect.Lock, error) {
	if progress != nil {
		progress(1000)
	}
	return f.scanned, f.err
}

// now is the time in all tests with a fake.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fakeApp returns a program on a fake.
func fakeApp(f *fake) (a *app, out, errs *bytes.Buffer) {
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	a = newApp(strings.NewReader(""), out, errs, nil)
	a.now, a.zone = func() time.Time { return now }, time.FixedZone("CET", 3600)
	a.open = func(_ context.Context, settings config.Config, _ *time.Location) (*connection, error) {
		return &connection{inspector: f, rdb: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), settings: settings}, nil
	}
	return a, out, errs
}

// golden compares a text with that of a file in testdata. With -update it writes the file.
func golden(t *testing.T, name, have string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		expect.OK(t, os.WriteFile(name, []byte(have), 0o600))
	}
	want := expect.Value(os.ReadFile(name))(t)
	expect.Same(t, name+", which go test ./cmd/lockctl -update writes", have, string(want))
}

// locks is one lock of each kind.
var locks = []inspect.Lock{
	{
		Resource: "order:536365", State: inspect.Held, Holder: "warehouse:allocate 77ab09 on web-3 (pid 4121)",
		Task: &inspect.Task{Queue: "default", ID: "77ab09", Kind: "warehouse:allocate"}, Worker: &inspect.Worker{Host: "web-3", PID: 4121},
		Since: now.Add(-12 * time.Second), Left: inspect.Duration(11300 * time.Millisecond), Fence: 1772366388000000,
		Waiting: 3, OldestWait: inspect.Duration(4187 * time.Millisecond),
	},
	{
		Resource: "account:<12345>&co", State: inspect.Held, Holder: "balance:debit 0192f0c1-5e0b-7a3c-9f7e-3d1f6a0b2c4d on worker-7.eu-central.example.com (pid 9)",
		Task:   &inspect.Task{Queue: "critical", ID: "0192f0c1-5e0b-7a3c-9f7e-3d1f6a0b2c4d", Kind: "balance:debit"},
		Worker: &inspect.Worker{Host: "worker-7.eu-central.example.com", PID: 9}, Gone: true,
		Since: now.Add(-3 * time.Minute), Left: inspect.Duration(400 * time.Millisecond), Waiting: 120, Paused: 2,
		OldestWait: inspect.Duration(190 * time.Second),
	},
	{
		Resource: "sku:85123A", State: inspect.Reserved, Task: &inspect.Task{Queue: "default", ID: "77ab10"}, Holder: "the next waiter",
		Since: now.Add(-200 * time.Millisecond), Left: inspect.Duration(4800 * time.Millisecond),
	},
	{Resource: "bad\x1b[31mred", State: inspect.Foreign, Holder: "another program", Endless: true, Waiting: 1, OldestWait: inspect.Duration(26 * time.Hour)},
	{Resource: "顧客:佐藤", State: inspect.Free, Waiting: 1, OldestWait: inspect.Duration(2500 * time.Millisecond)},
}
