package dashboard_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/dashboard"
	"github.com/sidingq/siding/internal/embedded"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// oddID is the id of a task, with characters that mean something else in a query than in a path.
const oddID = "a&b;c+d"

// start starts an in-process Redis.
func start(t *testing.T) (*redis.UniversalOptions, redis.UniversalClient) {
	t.Helper()
	server := expect.Value(embedded.Start(embedded.AnyPort))(t)
	t.Cleanup(server.Close)
	opts := &redis.UniversalOptions{Addrs: []string{server.Addr()}, ContextTimeoutEnabled: true, ReadTimeout: redistest.Patience}
	rdb := redis.NewUniversalClient(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	return opts, rdb
}

// enqueue enqueues a task with some options.
func enqueue(t *testing.T, rdb redis.UniversalClient, payload string, opts ...asynq.Option) {
	t.Helper()
	_, err := asynq.NewClientFromRedisClient(rdb).EnqueueContext(t.Context(), asynq.NewTask("greet", []byte(payload)), opts...)
	expect.OK(t, err)
}

// setup returns a handler on an in-process Redis with two tasks in it.
func setup(t *testing.T, cfg dashboard.Config) *dashboard.Handler {
	t.Helper()
	opts, rdb := start(t)
	for _, id := range []string{"one", oddID} {
		enqueue(t, rdb, "", asynq.TaskID(id))
	}
	cfg.Redis = opts
	return open(t, cfg)
}

// open returns a handler that is closed at the end of the test.
func open(t *testing.T, cfg dashboard.Config) *dashboard.Handler {
	t.Helper()
	h := expect.Value(dashboard.New(cfg))(t)
	t.Cleanup(func() { expect.Is(t, "close", h.Close(), nil) })
	return h
}

// ask sends a request for localhost, changed by the edits.
func ask(t *testing.T, h http.Handler, method, path string, edits ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	r.Host = "localhost:8080"
	for _, edit := range edits {
		edit(r)
	}
	reply := httptest.NewRecorder()
	h.ServeHTTP(reply, r)
	return reply
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

func header(key, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(key, value) }
}

// directives splits a Content-Security-Policy.
func directives(t *testing.T, reply *httptest.ResponseRecorder) map[string]string {
	t.Helper()
	have := map[string]string{}
	for part := range strings.SplitSeq(reply.Header().Get("Content-Security-Policy"), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), " ")
		have[name] = value
	}
	return have
}

func TestPagesLoadNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	h := setup(t, dashboard.Config{})
	for _, path := range []string{"/dashboard/", "/dashboard/queues/default", "/dashboard/queues/a.b", "/dashboard/servers"} {
		reply := ask(t, h, http.MethodGet, path)
		page := reply.Body.String()
		expect.Need(t, reply.Code == http.StatusOK && strings.HasPrefix(reply.Header().Get("Content-Type"), "text/html") && strings.Contains(page, "</html>"), "%s: want an HTML page, have %d %s", path, reply.Code, reply.Header().Get("Content-Type"))
		expect.Equal(t, path+": link to another server", regexp.MustCompile(`(?:href|src)="(?:https?:)?//[^"]*`).FindString(page), "")
		policy := directives(t, reply)
		expect.That(t, policy["default-src"] == "'none'", "%s: want default-src 'none', have %q", path, policy)
		for name, sources := range policy {
			expect.That(t, !strings.Contains(sources, "http") && !strings.Contains(sources, "*"), "%s: want no other server in %s, have %s", path, name, sources)
		}
		if strings.Contains(policy["script-src"], "unsafe") {
			t.Errorf("%s: want no unsafe scripts, have %s", path, policy["script-src"])
		}
		// The page does not work unless each script in it may run.
		for _, script := range regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(page, -1) {
			sum := sha256.Sum256([]byte(script[1]))
			if want := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy["script-src"], want) {
				t.Errorf("%s: want %s allowed, have %s", path, want, policy["script-src"])
			}
		}
		for _, file := range regexp.MustCompile(`(?:href|src)="(/[^"]*)"`).FindAllStringSubmatch(page, -1) {
			if reply := ask(t, h, http.MethodGet, file[1]); reply.Code != http.StatusOK || strings.HasPrefix(reply.Header().Get("Content-Type"), "text/html") {
				t.Errorf("%s: want the file, have %d %s", file[1], reply.Code, reply.Header().Get("Content-Type"))
			}
		}
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	broken := errors.New("redis does not answer")
	tests := []struct {
		name   string
		check  func(context.Context) error
		want   int
		reason string
	}{
		{"no check", nil, http.StatusOK, ""},
		{"ready", func(context.Context) error { return nil }, http.StatusOK, ""},
		{"not ready", func(context.Context) error { return broken }, http.StatusServiceUnavailable, broken.Error()},
		{"slow", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, http.StatusServiceUnavailable, context.DeadlineExceeded.Error()},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := open(t, dashboard.Config{Ready: test.check})
			if reply := ask(t, h, http.MethodGet, "/healthz"); reply.Code != http.StatusOK {
				t.Errorf("healthz: want 200 whatever the check says, have %d", reply.Code)
			}
			reply := ask(t, h, http.MethodGet, "/readyz")
			var have struct {
				Ready  bool
				Reason string
			}
			expect.OK(t, json.Unmarshal(reply.Body.Bytes(), &have))
			expect.That(t, reply.Code == test.want && have.Ready == (test.want == http.StatusOK) && have.Reason == test.reason, "readyz: want %d with reason %q, have %d %+v", test.want, test.reason, reply.Code, have)
			if reply := ask(t, h, http.MethodGet, "/dashboard/"); reply.Code != http.StatusNotFound {
				t.Errorf("dashboard switched off: want 404, have %d", reply.Code)
			}
		})
	}
}

func TestProbesAnswerWithoutRedis(t *testing.T) {
	t.Parallel()
	h := open(t, dashboard.Config{Redis: &redis.UniversalOptions{
		Addrs: []string{"127.0.0.1:1"}, DialTimeout: 100 * time.Millisecond, MaxRetries: -1, ContextTimeoutEnabled: true,
	}})
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/dashboard/": http.StatusOK, "/dashboard/api/queues": http.StatusInternalServerError} {
		if reply := ask(t, h, http.MethodGet, path); reply.Code != want {
			t.Errorf("%s: want %d, have %d", path, want, reply.Code)
		}
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{
		"127.0.0.1:8080": true, "127.9.9.9:1": true, "[::1]:8080": true, "localhost:8080": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:80": false, "example.org:80": false, "127.0.0.1": false,
	}
	for address, want := range tests {
		expect.Equal(t, address, dashboard.Loopback(address), want)
	}
}

func TestServerRefusesLargeHeaders(t *testing.T) {
	t.Parallel()
	listener := expect.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	server := dashboard.NewServer(open(t, dashboard.Config{}), slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		expect.Is(t, "close", server.Close(), nil)
		expect.Is(t, "serve", <-ended, http.ErrServerClosed)
	})
	for size, want := range map[int]int{1 << 10: http.StatusOK, 64 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		r := expect.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/healthz", listener.Addr()), http.NoBody))(t)
		r.Header.Set("X-Large", strings.Repeat("x", size))
		r.Close = true
		reply := expect.Value(http.DefaultClient.Do(r))(t)
		_, _ = io.Copy(io.Discard, reply.Body)
		_ = reply.Body.Close()
		expect.That(t, reply.StatusCode == want, "header of %d bytes: want %d, have %d", size, want, reply.StatusCode)
	}
	for name, have := range map[string]time.Duration{
		"header": server.ReadHeaderTimeout, "read": server.ReadTimeout, "write": server.WriteTimeout, "idle": server.IdleTimeout,
	} {
		expect.That(t, have > 0, "want a %s timeout, have none", name)
	}
}
