package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// While the ledger takes no writes, the worker takes no tasks and says so, and no task uses a
// retry. Once there is room again all tasks are done.
func TestFullLedger(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	file := filepath.Join(t.TempDir(), "ledger.db")
	// As on a disk that is full: the worker cannot make the file larger than it is then.
	const pages = 400
	w := start(t, "--redis", server.Addr, "--http", "127.0.0.1:0", "--ledger", fmt.Sprintf("sqlite:%s?_pragma=max_page_count(%d)", file, pages))
	base := "http://" + address(t, &w.stderr)
	if status, body := fetch(t, base+"/readyz"); status != http.StatusOK {
		t.Fatalf("want ready, have %d %s", status, body)
	}
	other := expect.Value(sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(30000)"))(t)
	t.Cleanup(func() { _ = other.Close() })
	fill := fmt.Sprintf("CREATE TABLE others (data BLOB); INSERT INTO others VALUES (zeroblob(%d))", 4096*pages)
	expect.OK(t, expect.Err(other.ExecContext(t.Context(), fill)))

	orders := make([]string, 300)
	for i := range orders {
		orders[i] = fmt.Sprint(7001 + i)
	}
	enqueue(t, rdb, "default", orders...)
	expect.Eventually(t, "not ready, and why", func() bool {
		status, body := fetch(t, base+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "no tasks are taken") && strings.Contains(body, "database or disk is full")
	})
	if have := count(t, rdb, "default"); have.Archived != 0 || have.Pending < len(orders)/2 {
		t.Errorf("want most tasks left where they are, have %+v", have)
	}
	wantTexts(t, w.stderr.String(), `level=ERROR msg="no tasks are taken, as something is missing that they need"`)

	expect.OK(t, expect.Err(other.ExecContext(t.Context(), "DROP TABLE others")))
	expect.Eventually(t, "all tasks done", func() bool { return count(t, rdb, "default").Completed == len(orders) })
	if have := count(t, rdb, "default"); have.FailedTotal != 0 {
		t.Errorf("want no retry used, have %d failures", have.FailedTotal)
	}
	wantTexts(t, w.stderr.String(), `msg="tasks are taken again"`)
	expect.Eventually(t, "ready again", func() bool {
		status, _ := fetch(t, base+"/readyz")
		return status == http.StatusOK
	})
	w.end(t, 30*time.Second)
}
