package worker_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// A program of its own is a complete member: it runs its tasks under their locks, serves
// probes and the dashboard, and drains. The file of settings may be that of the fleet.
func TestMainRunsTasksAndDrains(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	dir := t.TempDir()
	settings := "redis:\n  addrs: [\"" + server.Addr + "\"]\nhttp:\n  address: 127.0.0.1:0\nledger:\n  dsn: of-others.db\n"
	expect.OK(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(settings), 0o600))
	p := launch(t, "good", dir, "--log-format", "json")
	url := base(t, &p.Stderr)
	wantPage(t, url+"/healthz", "ok")
	wantPage(t, url+"/readyz", "true")
	wantPage(t, url+"/dashboard/", "</html>")

	client := expect.Value(queue.NewClient(rdb, queue.ClientConfig{}))(t)
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	for _, n := range []note{{"1", "0s"}, {"2", "2s"}} {
		expect.OK(t, expect.Err(client.Enqueue(t.Context(), n, &queue.Options{Retention: time.Hour})))
	}
	expect.Eventually(t, "one task done and one running", func() bool {
		have, err := inspector.GetQueueInfo("default")
		return err == nil && have.Completed == 1 && strings.Contains(p.Stderr.String(), `"msg":"a note is taken","page":"2"`)
	})
	p.Signal(t, syscall.SIGTERM)
	wantStatus(t, p, exitOK)
	wantTexts(t, p.Stderr.String(), `"msg":"draining","cause":"received terminated"`, `"msg":"worker ended","tasks":2,"succeeded":2`, `"msg":"a note is taken","page":"1"`)
	for line := range strings.Lines(p.Stderr.String()) {
		expect.That(t, json.Valid([]byte(line)), "want each line an object, have %q", line)
	}
	if have, err := inspector.GetQueueInfo("default"); err != nil || have.Completed != 2 {
		t.Errorf("want the running task completed, have %+v, %v", have, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "of-others.db")); err == nil {
		t.Error("want no ledger opened")
	}
}

// A mistake in the program ends it before it takes a task, with a text that names it.
func TestMainNamesMistakes(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t).Addr
	for program, want := range map[string]struct {
		args   []string
		status int
		stderr []string
	}{
		"nil":         {nil, exitFault, []string{ownName() + ": no task has a handler: want a function that calls queue.Handle"}},
		"no handlers": {nil, exitFault, []string{ownName() + ": no task has a handler: want a function that calls queue.Handle"}},
		"nil handler": {nil, exitUsage, []string{"panic: queue: Handle: test:note: the handler is nil", "setup_test.go:"}},
		"same kind":   {nil, exitUsage, []string{"panic: queue: Handle: test:note has a handler already", "setup_test.go:"}},
		"panics":      {nil, exitUsage, []string{"panic: no such table", "setup_test.go:"}},
		"good":        {[]string{"--ledger", "x"}, exitUsage, []string{ownName() + ": unknown flag: --ledger\n" + ownName() + ": " + ownName() + " --help lists the flags\n"}},
	} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			p := launch(t, program, t.TempDir(), append([]string{"--redis", redis, "--http", "127.0.0.1:0"}, want.args...)...)
			wantStatus(t, p, want.status)
			wantTexts(t, p.Stderr.String(), want.stderr...)
			expect.That(t, !strings.Contains(p.Stderr.String(), "worker started"), "want no start")
		})
	}
}

// The help is that of the program, and names no setting that it has not.
func TestMainHelps(t *testing.T) {
	t.Parallel()
	p := launch(t, "good", t.TempDir(), "--help")
	wantStatus(t, p, exitOK)
	wantTexts(t, p.Stdout.String(), ownName()+" takes tasks from Redis", "--embedded", "--lock-ttl", "--http")
	if have := p.Stdout.String(); strings.Contains(have, "--ledger") || strings.Contains(have, "--demo") {
		t.Errorf("want nothing of the shop in the help, have %s", have)
	}
}
