package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
)

func TestFaultsAtTheStart(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1" // no test that runs beside this one can take it
	taken := occupy(t)
	nowhere := filepath.Join(t.TempDir(), "missing", "ledger.db")
	locked, open := redistest.Start(t, "--requirepass", "secret"), redistest.Start(t)
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"no redis", settings(t, "--redis", nobody), []string{"worker: redis " + nobody + ": ", "connection refused", "worker --embedded"}},
		{"a redis that says nothing", settings(t, "--redis", taken, "--redis-timeout", "30s"), []string{"worker: redis " + taken + ": "}},
		{"no such database", settings(t, "--redis", open.Addr, "--redis-db", "99"), []string{"worker: redis " + open.Addr + ": ", "DB index is out of range (redis.db: want ", "have 99)"}},
		{"a password is wanted", settings(t, "--redis", locked.Addr), []string{"worker: redis " + locked.Addr + ": ", "NOAUTH", "SIDING_REDIS_PASSWORD"}},
		{"no redis but something else", settings(t, "--redis", strings.TrimPrefix(web.URL, "http://")), []string{"no Redis is at that address", "redis.tls"}},
		{"http port taken", settings(t, "--embedded", "--embedded-port", port(t, vacant(t)), "--http", taken), []string{"worker: http.address: " + taken + " is taken", "--http"}},
		{"embedded port taken", settings(t, "--embedded", "--embedded-port", port(t, taken)), []string{"worker: embedded redis: ", port(t, taken), "address already in use"}},
		{"no folder for the ledger", settings(t, "--redis", nobody, "--ledger", nowhere), []string{"worker: ledger " + nowhere}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := start(t, test.args...)
			expect.Equal(t, "exit status", w.wait(t, 30*time.Second), exitFault)
			var said []string
			for line := range strings.Lines(w.stderr.String()) {
				if strings.HasPrefix(line, "worker: ") {
					said = append(said, line)
				}
			}
			expect.That(t, len(said) == 1, "want one error, have %q", said)
			if file := test.args[slices.Index(test.args, "--ledger")+1]; file != nowhere {
				expect.Is(t, "ledger of a worker that cannot run", expect.Err(os.Stat(file)), os.ErrNotExist)
			}
			wantTexts(t, w.stderr.String(), test.want...)
		})
	}
}

// A worker that is asked to end while it waits for Redis or for its ledger has done nothing wrong.
func TestEndAtTheStart(t *testing.T) {
	t.Parallel()
	open := redistest.Start(t)
	for name, args := range map[string][]string{
		"redis": {"--redis-timeout", "30s", "--redis"}, "ledger": {"--redis", open.Addr, "--redis-timeout", "30s", "--ledger"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener := expect.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
			silent := listener.Addr().String()
			if name == "ledger" {
				silent = "postgres://somebody@" + silent + "/x"
			}
			w := start(t, settings(t, append(args, silent)...)...)
			conn, err := listener.Accept() // and no answer
			expect.OK(t, err)
			w.end(t, 20*time.Second)
			_, _ = conn.Close(), listener.Close()
		})
	}
}

func TestServeEmbedded(t *testing.T) {
	t.Parallel()
	w := start(t, settings(t, "--embedded", "--embedded-port", port(t, vacant(t)), "--json", "--log-format", "text")...)
	base := "http://" + address(t, &w.stderr)
	expect.Equal(t, "health", get(t, base+"/healthz"), "ok\n")
	expect.Eventually(t, "a worker that is ready", func() bool { // one probe of a busy machine may take too long
		status, body := fetch(t, base+"/readyz")
		return status == http.StatusOK && strings.Contains(body, "true")
	})
	wantTexts(t, get(t, base+"/"), "</html>")
	expect.Eventually(t, "the gauges of the fleet in the metrics", func() bool {
		have := get(t, base+"/metrics")
		return strings.Contains(have, "\nsiding_redis_up 1\n") && strings.Contains(have, "\nsiding_servers 1\n")
	})
	w.end(t, 20*time.Second)
	wantTexts(t, w.stderr.String(), `msg="embedded redis"`, "msg=draining", `msg="worker ended"`)
	var have map[string]int64
	if err := json.Unmarshal([]byte(w.stdout.String()), &have); err != nil || len(have) != 5 {
		t.Errorf("want five figures in JSON, have %q, %v", w.stdout.String(), err)
	}
}

func TestServeWithoutHTTP(t *testing.T) {
	t.Parallel()
	w := start(t, settings(t, "--embedded", "--embedded-port", port(t, vacant(t)), "--http", "off")...)
	expect.Eventually(t, "the worker started", func() bool { return strings.Contains(w.stderr.String(), "http=off") })
	w.end(t, 20*time.Second)
}

func TestServeRunsTasksOfTheNamedQueues(t *testing.T) {
	t.Parallel()
	redisPort := port(t, vacant(t))
	w := start(t, settings(t, "--embedded", "--embedded-port", redisPort, "--queue", "urgent=2", "--log-level", "debug")...)
	address(t, &w.stderr)
	rdb := client(t, "127.0.0.1:"+redisPort)
	enqueue(t, rdb, "urgent", "7001", "7001", "7002")
	expect.Eventually(t, "all tasks completed", func() bool { return count(t, rdb, "urgent").Completed == 3 })
	w.end(t, 20*time.Second)
	wantTexts(t, w.stderr.String(), "tasks=3 succeeded=3")
	expect.Equal(t, "tasks in the log", strings.Count(w.stderr.String(), `msg="task done"`), 3)
	expect.That(t, !strings.Contains(w.stderr.String(), `"order"`), "want no payload in the log")
}

// A Redis that goes away while a worker runs makes it unready, not dead.
func TestRedisGoesAndComesBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := start(t, settings(t, "--redis", server.Addr)...)
	base := "http://" + address(t, &w.stderr)
	server.Kill()
	expect.Eventually(t, "not ready without Redis", func() bool {
		status, body := fetch(t, base+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "redis does not answer")
	})
	expect.Equal(t, "health", get(t, base+"/healthz"), "ok\n")
	server.Restart(t)
	expect.Eventually(t, "ready again", func() bool {
		status, _ := fetch(t, base+"/readyz")
		return status == http.StatusOK
	})
	rdb := server.Client(t)
	enqueue(t, rdb, "default", "7001")
	expect.Eventually(t, "a task completed", func() bool { return count(t, rdb, "default").Completed == 1 })
	w.end(t, 30*time.Second)
	if have := strings.Count(w.stderr.String(), "\n"); have > 200 {
		t.Errorf("want a log in bounds, have %d lines", have)
	}
}

// SIGTERM: the running tasks finish, their locks are released, the rest stays.
func TestSIGTERMDrains(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	orders := make([]string, 30)
	for i := range orders {
		orders[i] = fmt.Sprint(7001 + i/2) // two tasks each
	}
	enqueue(t, rdb, "default", orders...)
	p := launch(t, settings(t, "--redis", server.Addr, "--concurrency", "4", "--work", "4s", "--lock-ttl", "1m")...)
	base := "http://" + address(t, &p.Stderr)
	expect.Eventually(t, "running tasks", func() bool { return count(t, rdb, "default").Active > 0 })
	p.Signal(t, syscall.SIGTERM)
	expect.Eventually(t, "draining", func() bool { return strings.Contains(p.Stderr.String(), "msg=draining") })
	if status, body := fetch(t, base+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "draining") {
		t.Errorf("want not ready while draining, have %d %s", status, body)
	}
	expect.Equal(t, "exit status", p.Wait(t, 15*time.Second), exitOK)
	have := count(t, rdb, "default")
	expect.That(t, have.Active == 0 && have.Archived == 0 && have.Completed != 0 && have.Completed != len(orders), "want running tasks completed and others left, have %+v", have)
	if all := have.Pending + have.Retry + have.Completed; all != len(orders) {
		t.Errorf("want no task lost of %d, have %d", len(orders), all)
	}
	// A reserved lock is free for the waiter it is kept for; a held one has
	// a fence of a holder that is no more.
	expect.Eventually(t, "no lock held", func() bool {
		keys, err := rdb.Keys(t.Context(), "lock:*").Result()
		return err == nil && len(keys) == 0
	})

	// Another worker does the rest.
	next := launch(t, settings(t, "--redis", server.Addr)...)
	expect.Eventually(t, "all tasks completed", func() bool { return count(t, rdb, "default").Completed == len(orders) })
	next.Signal(t, syscall.SIGINT)
	expect.Equal(t, "exit status", next.Wait(t, 15*time.Second), exitOK)
}

// signalUntilEnd signals a program until it has ended.
func signalUntilEnd(t *testing.T, p *proc.Program, sig syscall.Signal) {
	t.Helper()
	expect.Eventually(t, "the end", func() bool {
		_ = p.Cmd.Process.Signal(sig) // an error says that it has ended
		select {
		case <-p.Ended:
			return true
		default:
			return false
		}
	})
}

// A second signal does not wait for anything.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	enqueue(t, rdb, "default", "7001")
	p := launch(t, settings(t, "--redis", server.Addr, "--work", "1h", "--shutdown-timeout", "30s", "--shutdown-hard-deadline", "1m")...)
	expect.Eventually(t, "a running task", func() bool { return count(t, rdb, "default").Active == 1 })
	p.Signal(t, syscall.SIGTERM)
	expect.Eventually(t, "draining", func() bool { return strings.Contains(p.Stderr.String(), "msg=draining") })
	// A request of its own, as it comes later; those before are of the first.
	signalUntilEnd(t, p, syscall.SIGTERM)
	expect.Equal(t, "exit status", p.Wait(t, 5*time.Second), exitFault)
	wantTexts(t, p.Stderr.String(), "ending at once")
}

// A worker whose reader has gone drains as others do, and says what it could not print.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	expect.OK(t, err)
	_ = reader.Close()
	cmd := program(t, settings(t, "--embedded", "--embedded-port", port(t, vacant(t)), "--json")...)
	cmd.Stdout = writer
	p := proc.Launch(t, cmd)
	_ = writer.Close() // the process has its own
	address(t, &p.Stderr)
	p.Signal(t, syscall.SIGTERM)
	expect.Equal(t, "exit status", p.Wait(t, 20*time.Second), exitFault)
	wantTexts(t, p.Stderr.String(), `msg="worker ended"`, "standard output: write /dev/stdout: broken pipe")
}

// The hard deadline holds also when Redis hangs and nothing can be given back.
func TestHardDeadlineWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	enqueue(t, rdb, "default", "7001")
	p := launch(t, settings(t, "--redis", server.Addr, "--work", "1h", "--shutdown-timeout", "200ms", "--shutdown-hard-deadline", "1500ms")...)
	expect.Eventually(t, "a running task", func() bool { return count(t, rdb, "default").Active == 1 })
	server.Pause()
	defer server.Resume()
	began := time.Now()
	p.Signal(t, syscall.SIGTERM)
	expect.Equal(t, "exit status", p.Wait(t, 30*time.Second), exitFault)
	if have := time.Since(began); have < 1400*time.Millisecond || have > 15*time.Second {
		t.Errorf("want the end after 1.5 s, have %v", have)
	}
	wantTexts(t, p.Stderr.String(), "worker: shutdown.hard_deadline: 1.5s have passed")
}

// client returns a Redis client that is closed at the end of the test.
func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// enqueue enqueues an audit of each order.
func enqueue(t *testing.T, rdb *redis.Client, queueName string, orders ...string) {
	t.Helper()
	c := expect.Value(queue.NewClient(rdb, queue.ClientConfig{}))(t)
	for _, order := range orders {
		expect.OK(t, expect.Err(c.Enqueue(t.Context(), tasks.AuditOrder{Order: order}, &queue.Options{Queue: queueName, Retention: time.Hour})))
	}
}

// count says how many tasks of the queue are in which state.
func count(t *testing.T, rdb *redis.Client, queueName string) *asynq.QueueInfo {
	t.Helper()
	info := expect.Value(asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo(queueName))(t)
	return info
}
