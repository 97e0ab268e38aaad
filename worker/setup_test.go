package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/worker"
)

// The exit statuses, as the documentation tells them.
const (
	exitOK    = 0
	exitFault = 1
	exitUsage = 2
)

// asProgram makes the test binary run as the program that it names.
const asProgram = "SIDING_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if program, ok := programs[os.Getenv(asProgram)]; ok {
		program()
	}
	logging.Disable()
	goleak.VerifyTestMain(m)
}

// A note is a task of a program of its own.
type note struct {
	Page string `json:"page"`
	Work string `json:"work"` // how long it takes
}

func (note) Kind() string       { return "test:note" }
func (n note) Resource() string { return "page:" + n.Page }

func take(ctx context.Context, n note) error {
	if lock.Fence(ctx, n.Resource()) == 0 {
		return queue.Permanent(errors.New("want a fence"))
	}
	work, err := time.ParseDuration(n.Work)
	if err != nil {
		return queue.Permanent(err)
	}
	slog.InfoContext(ctx, "a note is taken", "page", n.Page)
	timer := time.NewTimer(work)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// programs are those that the test binary runs as.
var programs = map[string]func(){
	"good":        func() { worker.Main(func(s *queue.Server) { queue.Handle(s, take) }) },
	"nil":         func() { worker.Main(nil) },
	"no handlers": func() { worker.Main(func(*queue.Server) {}) },
	"nil handler": func() { worker.Main(func(s *queue.Server) { queue.Handle[note](s, nil) }) },
	"panics":      func() { worker.Main(func(*queue.Server) { panic("no such table") }) },
	"same kind": func() {
		worker.Main(func(s *queue.Server) {
			queue.Handle(s, take)
			queue.Handle(s, take)
		})
	},
}

// launch starts a program in a folder.
func launch(t *testing.T, program, dir string, args ...string) *proc.Program {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...) //nolint:noctx // killed at cleanup, after the servers it talks to
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asProgram+"="+program)
	return proc.Launch(t, cmd)
}

// wantStatus waits for the end of the process.
func wantStatus(t *testing.T, p *proc.Program, want int) {
	t.Helper()
	if have := p.Wait(t, 30*time.Second); have != want {
		t.Errorf("want exit status %d, have %d", want, have)
	}
}

// base waits for the start of a worker and returns the URL of its web server.
func base(t *testing.T, stderr *proc.Output) string {
	t.Helper()
	started := regexp.MustCompile(`"?msg"?[=:]"worker started".*http"?[=:]"?(http://[^/\s"]+)`)
	var have []string
	expect.Eventually(t, "the worker started", func() bool {
		have = started.FindStringSubmatch(stderr.String())
		return have != nil
	})
	return have[1]
}

// wantPage checks that a page answers 200 with the text.
func wantPage(t *testing.T, url, text string) {
	t.Helper()
	r := expect.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
	r.Close = true // leave no connection behind
	reply := expect.Value(http.DefaultClient.Do(r))(t)
	defer func() { _ = reply.Body.Close() }()
	have, err := io.ReadAll(reply.Body)
	expect.That(t, err == nil && reply.StatusCode == http.StatusOK && strings.Contains(string(have), text), "%s: want 200 and %q, have %d, %.500s, %v", url, text, reply.StatusCode, have, err)
}

// ownName is the name of the test binary.
func ownName() string { return strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") }

// wantTexts checks that each text is in have.
func wantTexts(t *testing.T, have string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		expect.That(t, strings.Contains(have, text), "want %q in %s", text, fmt.Sprintf("%.2000s", have))
	}
}
