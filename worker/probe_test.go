package worker_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A health check needs nothing but the program: it asks the worker that runs with the same settings.
func TestProbeOfARunningWorker(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	address := expect.Value(proc.FreeAddr(t.Context()))(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// The settings of a container: all addresses, and a password, which the probe does not need.
	settings := []string{"--redis", server.Addr, "--http", "0.0.0.0:" + port, "--http-dashboard=false"}
	probe := func(name string) *proc.Program { return launch(t, "good", dir, append(settings, "--probe", name)...) }

	early := probe("healthz")
	wantStatus(t, early, exitFault)
	wantTexts(t, early.Stderr.String(), "http://127.0.0.1:"+port+"/healthz", "connection refused")

	w := launch(t, "good", dir, settings...)
	expect.Eventually(t, "the worker started", func() bool { return strings.Contains(w.Stderr.String(), "worker started") })
	for name, want := range map[string]string{"healthz": "ok\n", "readyz": `{"ready":true}` + "\n"} {
		p := probe(name)
		wantStatus(t, p, exitOK)
		if have := p.Stdout.String(); have != want {
			t.Errorf("%s: want %q, have %q", name, want, have)
		}
	}
	server.Kill() // a worker without its Redis lives, and takes no tasks
	alive, ready := probe("healthz"), probe("readyz")
	wantStatus(t, alive, exitOK)
	wantStatus(t, ready, exitFault)
	wantTexts(t, ready.Stdout.String(), `{"ready":false}`)
	wantTexts(t, ready.Stderr.String(), "/readyz: want status 200, have 503 Service Unavailable")
}

// A worker that is stopped still has its port, which takes connections. The probe does not wait for ever.
func TestProbeOfAStuckWorker(t *testing.T) {
	t.Parallel()
	listener := expect.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	p := launch(t, "good", t.TempDir(), "--http", listener.Addr().String(), "--probe", "healthz")
	wantStatus(t, p, exitFault)
	wantTexts(t, p.Stderr.String(), "/healthz", "context deadline exceeded")
}

// An answer other than 200 is a fault, also one that leads elsewhere.
func TestProbeFollowsNothing(t *testing.T) {
	t.Parallel()
	listener := expect.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	asked := make(chan string, 1)
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.RequestURI
		http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound) // which is no answer
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Shutdown(context.WithoutCancel(t.Context()))
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	p := launch(t, "good", t.TempDir(), "--http", listener.Addr().String(), "--probe", "readyz")
	wantStatus(t, p, exitFault)
	wantTexts(t, p.Stderr.String(), "want status 200, have 302 Found")
	if have := <-asked; have != "/readyz" {
		t.Errorf("want /readyz, have %s", have)
	}
}

// A probe that nobody can answer is a wrong command line, which another try does not change.
func TestProbeNamesMistakes(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`--probe: want healthz or readyz, have "ping"`:                    {"--probe", "ping"},
		`--probe: want healthz or readyz, have ""`:                        {"--probe="},
		"--http: want an address that --probe can ask, have off":          {"--probe", "healthz", "--http", "off"},
		"--http: want an address that --probe can ask, have 127.0.0.1:0":  {"--probe", "healthz", "--http", "127.0.0.1:0"},
		"--probe: want a worker that runs, have --embedded, which starts": {"--probe", "healthz", "--embedded"},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p := launch(t, "good", t.TempDir(), args...)
			wantStatus(t, p, exitUsage)
			wantTexts(t, p.Stderr.String(), want)
		})
	}
}
