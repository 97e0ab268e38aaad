package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/tasks/orders"
)

// orderFile writes a file of so many orders with three lines each, of which one is postage. It
// returns the file's path and the ids of its tasks.
func orderFile(t *testing.T, n int) (path string, want map[string]bool) {
	t.Helper()
	var text strings.Builder
	text.WriteString("InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n")
	for i := range n {
		for _, sku := range []string{"22222", "33333", "POST"} {
			fmt.Fprintf(&text, "%d,%s,x,%d,2011-11-08T07:52:00,1.25,%d,UK\n", 500000+i, sku, 1+i%5, 10000+i%50)
		}
	}
	path = writeFile(t, "orders.csv", text.String())
	sum := expect.Value(fingerprint(t.Context(), strings.NewReader(text.String())))(t)
	reader := expect.Value(orders.NewReader(strings.NewReader(text.String())))(t)
	want = make(map[string]bool)
	for job, err := range orders.NewPlan(orders.PlanConfig{Content: sum.short()}).Jobs(reader) {
		expect.OK(t, err)
		want[job.Options.TaskID] = true
	}
	return path, want
}

// wantExactly compares the queue with the ids that it should have, each once.
func wantExactly(t *testing.T, client *redis.Client, queue string, want map[string]bool) {
	t.Helper()
	expect.Same(t, "ids", ids(t, client, queue), want)
	expect.Equal(t, "pending", pending(t, client, queue), len(want))
}

func TestOrdersReport(t *testing.T) {
	t.Parallel()
	const header = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n"
	const at = ",2011-11-08T07:52:00,"
	text := header +
		"1,22222,x,1" + at + "1,17850,UK\n" +
		"1,22222,x,six" + at + "1,17850,UK\n" +
		"2,POST,x,1" + at + "1,,UK\n" +
		"C3,22222,x,-1" + at + "1,17850,UK\n" +
		"4,22222,x,1" + at + "0,17850,UK\n" +
		"5,22222,x,0" + at + "1,17850,UK\n" +
		"1,22222,x,1" + at + "1,17850,UK\n" +
		strings.Repeat("1,2\n", 25)
	path := writeFile(t, "orders", text)
	var refused strings.Builder
	for line := 9; line <= 27; line++ {
		fmt.Fprintf(&refused, "           line %d: want 8 fields as in the header, have 2\n", line)
	}
	rest := `        6  lines of 5 orders, of which 1 cancellations
        1  times an order came back after another, with more lines
`
	left := `        1  debits left out: no customer
        1  debits left out: the order's value is zero
        1  deductions left out: a service, not goods
        1  lines left out: the quantity is zero
       26  refused
           line 3: quantity: want a whole number of at most 1000000000 either way, have "six"
` + refused.String() + "           and 6 more; --json lists them\n"
	want := path + ": checked, nothing was enqueued\n" + rest + "       17  tasks would be enqueued\n" + left
	wantResult(t, result{want, "", exitRefused}, enqueue(t, "", "orders", path, "--dry-run", "--redis", "127.0.0.1:1"))

	server := redistest.Shared(t)
	args := []string{"orders", path, "--redis", server.Addr, "--queue", "orders-report"}
	want = path + ": done\n" + rest + "       17  tasks enqueued\n        0  tasks were there already\n" + left
	wantResult(t, result{want, "", exitRefused}, enqueue(t, "", args...))
	// The refused lines are reported again, for they have not been mended.
	want = path + ": everything was already enqueued\n" + rest + "        0  tasks enqueued\n       17  tasks were there already; all up to line 33, by the checkpoint\n" + left
	wantResult(t, result{want, "", exitRefused}, enqueue(t, "", args...))
}

func TestOrdersAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	path, want := orderFile(t, 50)
	text := expect.Value(os.ReadFile(path))(t)
	packed := filepath.Join(t.TempDir(), "other-name")
	f := expect.Value(os.Create(packed))(t)
	zip := gzip.NewWriter(f)
	expect.OK(t, expect.Err(zip.Write(text)))
	expect.OK(t, zip.Close())
	expect.OK(t, f.Close())
	const q = "orders-again"
	run := func(want string, args ...string) {
		t.Helper()
		have := enqueue(t, "", append([]string{"orders", "--redis", server.Addr, "--json"}, args...)...)
		expect.That(t, have.status == cli.StatusOK && strings.Contains(have.out, want), "%v: want %s, have %+v", args, want, have)
	}
	run(`"enqueued":350,"already_there":0`, path, "--queue", q)
	wantExactly(t, client, q, want)
	run(`"enqueued":0,"already_there":350`, path, "--queue", q)
	// The same content under another name, and compressed.
	run(`"enqueued":0,"already_there":350`, packed, "--queue", q)
	// Without its checkpoint, as after a crash before it was saved: by the ids.
	run(`"enqueued":0,"already_there":350`, path, "--queue", q, "--restart")
	wantExactly(t, client, q, want)
	// Another queue is another matter.
	run(`"enqueued":350,"already_there":0`, path, "--queue", q+"2")
	// The limit: tasks that are gone and a checkpoint that was not saved. The
	// ids are the same, which is what the ledger's journal goes by.
	expect.OK(t, expect.Err(inspect(t, server).DeleteAllPendingTasks(q)))
	run(`"enqueued":0,"already_there":350`, path, "--queue", q)
	run(`"enqueued":350,"already_there":0`, path, "--queue", q, "--restart")
	wantExactly(t, client, q, want)
}

func TestOrdersRetention(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	path, want := orderFile(t, 1)
	for q, args := range map[string][]string{"10m0s": nil, "2h0m0s": {"--retention", "2h"}, "0s": {"--retention", "0"}} {
		if have := enqueue(t, "", append(args, "orders", path, "--redis", server.Addr, "--queue", q)...); have.status != cli.StatusOK {
			t.Fatalf("want status 0, have %+v", have)
		}
		for id := range want {
			info := expect.Value(inspect(t, server).GetTaskInfo(q, id))(t)
			expect.Equal(t, id+": retention", info.Retention.String(), q)
		}
	}
}

// Redis goes away in the middle and comes back: a clear error soon, and the
// next run completes the set.
func TestOrdersRedisGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail, mend func(*testing.T, *redistest.Server)
		within     time.Duration
	}{
		"killed": {func(_ *testing.T, s *redistest.Server) { s.Kill() }, func(t *testing.T, s *redistest.Server) { t.Helper(); s.Restart(t) }, 5 * time.Second},
		"frozen": {func(_ *testing.T, s *redistest.Server) { s.Pause() }, func(_ *testing.T, s *redistest.Server) { s.Resume() }, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "frozen" {
				verify.Long(t)
			}
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			slow := locktest.NewProxy(t, server.Addr)
			slow.Delay(20 * time.Millisecond)
			path, want := orderFile(t, 500)
			client := server.Client(t)
			ended := make(chan result)
			go func() { ended <- enqueueIn(t.Context(), nil, "", "orders", path, "--redis", slow.Addr) }()
			expect.Eventually(t, "some tasks", func() bool { return pending(t, client, defaultQueue) > 300 })
			c.fail(t, server)
			start := time.Now()
			have := <-ended
			if took := time.Since(start); took > c.within {
				t.Errorf("want the end within %v, have %v", c.within, took)
			}
			expect.That(t, have.status == cli.StatusFault && strings.HasPrefix(have.err, "enqueue: redis "+slow.Addr+": ") && strings.Contains(have.err, "run the same command again to go on behind line "), "want status 1 and an error that says how to go on, have %+v", have)
			c.mend(t, server)
			again := enqueue(t, "", "orders", path, "--redis", server.Addr, "--json")
			expect.That(t, again.status == cli.StatusOK && strings.Contains(again.out, `"complete":true`) && strings.Contains(again.out, `"resumed_after":`), "again: want it to go on and complete, have %+v", again)
			wantExactly(t, server.Client(t), defaultQueue, want)
		})
	}
}

// An input that cannot be read as a whole is refused as a whole, before anything is sent.
func TestOrdersRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, c := range map[string]struct{ text, want string }{
		"workbook":  {"PK\x03\x04 and more", "not a CSV file but a workbook (.xlsx) or another zip archive: open it in a spreadsheet program and save it as CSV"},
		"truncated": {"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01", "unexpected EOF"},
		"no header": {"1,2,3\n", `header: want a column InvoiceNo or Invoice, have "1,2,3"`},
		"empty":     {"", "header: want a header line, have an empty file"},
	} {
		path := writeFile(t, name, c.text)
		wantResult(t, result{"", "enqueue: " + path + ": " + c.want + "\n", cli.StatusFault}, enqueue(t, "", "orders", path, "--redis", server.Addr))
	}
	if n, err := server.Client(t).DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("keys: want none, have %d (%v)", n, err)
	}
}

// Lines from stdin have the ids, and the checkpoint, of the file that they came from.
func TestOrdersFromStdin(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	path, want := orderFile(t, 50)
	text := expect.Value(os.ReadFile(path))(t)
	for _, state := range []string{"-: done\n", "-: everything was already enqueued\n"} {
		have := enqueue(t, string(text), "orders", "-", "--redis", server.Addr)
		expect.That(t, have.status == cli.StatusOK && strings.HasPrefix(have.out, state), "want status 0 and %q, have %+v", state, have)
		wantExactly(t, client, defaultQueue, want)
	}
	if have := enqueue(t, "", "orders", path, "--redis", server.Addr); !strings.Contains(have.out, "everything was already enqueued") {
		t.Errorf("the file itself: want its checkpoint found, have %+v", have)
	}
}

// The report in JSON has the refused lines that the one for people leaves out.
func TestRefusalsInJSON(t *testing.T) {
	t.Parallel()
	for refused, listed := range map[int]int{50: 50, maxRefusals + 1: maxRefusals} {
		have := enqueue(t, strings.Repeat("{}\n", refused), "stream", "--dry-run", "--json")
		var r report
		expect.OK(t, json.Unmarshal([]byte(have.out), &r))
		if have.status != exitRefused || r.Refused != refused || len(r.Refusals) != listed || r.Refusals[listed-1].Line != listed {
			t.Errorf("want %d refused and %d listed, have status %d, %d and %d", refused, listed, have.status, r.Refused, len(r.Refusals))
		}
	}
}

// Who takes a node of a Cluster for the whole is told which setting is wrong, whichever call Redis refuses.
func TestOneOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	const q, line = "one-of-a-cluster", `{"kind":"order:audit","payload":{"order":"1"}}` + "\n"
	other := cluster.Nodes[1]
	if slot := cluster.Client(t).ClusterKeySlot(t.Context(), q).Val(); slot >= 8192 {
		other = cluster.Nodes[0]
	}
	file := writeFile(t, "tasks", line)
	for _, args := range [][]string{{"task", "order:audit", "--payload", `{"order":"1"}`}, {"stream"}, {"stream", file}, {"stream", file, "--restart"}} {
		have := enqueue(t, line, append(args, "--redis", other.Addr, "--queue", q)...)
		if have.status != cli.StatusFault || !strings.HasPrefix(have.err, "enqueue: redis "+other.Addr+": ") ||
			!strings.Contains(have.err, "MOVED ") || !strings.Contains(have.err, " (redis.cluster: want true for a Cluster, have false)") {
			t.Errorf("%v: want status 1, the address and the setting, have %+v", args, have)
		}
	}
}

// A Redis without memory is a fault, and no line is to blame for it.
func TestRedisOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	used := expect.Value(client.InfoMap(t.Context(), "memory").Result())(t)
	bytes, err := strconv.Atoi(used["Memory"]["used_memory"])
	expect.OK(t, err)
	// Full in the middle of a batch.
	expect.OK(t, client.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(bytes+1<<20)).Err())
	var lines strings.Builder
	items := strings.Repeat(`{"sku":"22222","quantity":1,"price":"1"},`, 999)
	for i := range 200 {
		fmt.Fprintf(&lines, `{"kind":"order:place","payload":{"user":"%d","submission":"1","items":[%s{"sku":"22222","quantity":1,"price":"1"}]}}`+"\n", i, items)
	}
	have := enqueue(t, lines.String(), "stream", "--redis", server.Addr)
	expect.That(t, have.status == cli.StatusFault && strings.Contains(have.err, "OOM") && strings.Contains(have.out, "        0  refused"), "want status 1, Redis' reason and no line refused, have %+v", have)
}
