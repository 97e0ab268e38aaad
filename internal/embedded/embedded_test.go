package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynqmon"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/embedded"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a server on a free port with a client.
func start(t *testing.T) (*embedded.Server, *redis.Client) {
	t.Helper()
	server := expect.Value(embedded.Start(embedded.AnyPort))(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: redistest.Patience})
	t.Cleanup(func() {
		expect.Is(t, "close", client.Close(), nil)
		server.Close()
	})
	return server, client
}

func TestTTLRunsOut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		ttl  time.Duration
	}{
		{"short", 50 * time.Millisecond},
		{"long", 2 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, client := start(t)
			ctx := t.Context()
			before := time.Now()
			expect.OK(t, client.Set(ctx, "key", "value", test.ttl).Err())
			// On a busy machine the answer may come too late.
			if have, err := client.Get(ctx, "key").Result(); (err != nil || have != "value") && time.Since(before) < test.ttl {
				t.Fatalf("want the value right after the write, have %q, %v", have, err)
			}
			expect.Eventually(t, "half of the TTL left", func() bool {
				left, err := client.PTTL(ctx, "key").Result()
				return err == nil && left <= test.ttl/2
			})
			if have := time.Since(before); have < test.ttl/2-20*time.Millisecond {
				t.Errorf("want half the TTL left after %v, have it after %v", test.ttl/2, have)
			}
			expect.Eventually(t, "the key gone", func() bool {
				return errors.Is(client.Get(ctx, "key").Err(), redis.Nil)
			})
			// A step early is allowed, and late may mean a busy machine.
			if have := time.Since(before); have < test.ttl-20*time.Millisecond {
				t.Errorf("want the key gone after %v, have %v", test.ttl, have)
			}
		})
	}
}

func TestExpireInAScriptRunsOut(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := t.Context()
	script := redis.NewScript(`redis.call('HSET', KEYS[1], 'a', 'b') return redis.call('PEXPIRE', KEYS[1], ARGV[1])`)
	expect.OK(t, script.Run(ctx, client, []string{"key"}, 50).Err())
	expect.Eventually(t, "the key gone", func() bool { return client.Exists(ctx, "key").Val() == 0 })
}

func TestTimeInAScriptFollowsTheSystem(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	script := redis.NewScript(`local t = redis.call('TIME') return t[1] * 1000000 + t[2]`)
	ask := func() int64 {
		have := expect.Value(script.Run(t.Context(), client, nil).Int64())(t)
		return have
	}
	before := time.Now().UnixMicro()
	first := ask()
	after := time.Now().UnixMicro()
	expect.That(t, first >= before && first <= after, "want a time between %d and %d, have %d", before, after, first)
	expect.Eventually(t, "a later time", func() bool { return ask() > first })
}

func TestExpiryKeepsUpWithManyKeys(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := t.Context()
	for from := range 20 { // at a time no more than a busy machine answers in time
		pipe := client.Pipeline()
		for i := range 1000 {
			pipe.Set(ctx, "key:"+strconv.Itoa(1000*from+i), "value", time.Hour)
		}
		expect.OK(t, expect.Err(pipe.Exec(ctx)))
	}
	const keys = 7
	lived := make([]time.Duration, keys)
	var all sync.WaitGroup
	apart := time.NewTicker(71 * time.Millisecond) // so they are set at all phases of the steps by which TTLs move
	defer apart.Stop()
	for i := range lived {
		<-apart.C
		key, before := "lock:"+strconv.Itoa(i), time.Now()
		expect.OK(t, client.Set(ctx, key, "value", time.Second).Err())
		all.Go(func() {
			err := expect.Until(ctx, func() error {
				if client.Exists(ctx, key).Val() > 0 {
					return errors.New("it is there")
				}
				return nil
			})
			if err == nil { // else it has lived for no time
				lived[i] = time.Since(before)
			}
		})
	}
	all.Wait()
	// On a busy machine one step may be late, and a few keys live for that much less.
	slices.Sort(lived)
	expect.That(t, lived[keys/2] >= 850*time.Millisecond, "want most keys to live 1 s, at most 100 ms less, have %v", lived)
}

func TestPorts(t *testing.T) {
	t.Parallel()
	taken := expect.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer func() { _ = taken.Close() }()
	_, text, err := net.SplitHostPort(taken.Addr().String())
	expect.OK(t, err)
	port := expect.Value(strconv.Atoi(text))(t)

	if _, err := embedded.Start(port); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), text) {
		t.Errorf("taken port: want an error that names it, have %v", err)
	}
	if _, err := embedded.Start(70000); err == nil || !strings.Contains(err.Error(), "70000") {
		t.Errorf("port 70000: want an error that names it, have %v", err)
	}

	// With no port given, two servers must get along whoever holds 6379.
	for range 2 {
		server := expect.Value(embedded.Start(0))(t)
		defer server.Close()
		if host, _, err := net.SplitHostPort(server.Addr()); err != nil || host != "127.0.0.1" {
			t.Errorf("want an address on 127.0.0.1, have %s", server.Addr())
		}
	}
}

func TestCloseFreesThePort(t *testing.T) {
	t.Parallel()
	server := expect.Value(embedded.Start(embedded.AnyPort))(t)
	addr := server.Addr()
	server.Close()
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr); err == nil {
		_ = conn.Close()
		t.Errorf("want nobody on %s after Close", addr)
	}
}

// Everything above it depends on asynq and its dashboard working here.
func TestAsynqAndItsDashboardRun(t *testing.T) {
	t.Parallel()
	server, _ := start(t)
	conn := asynq.RedisClientOpt{Addr: server.Addr()}

	client := asynq.NewClient(conn)
	defer func() { _ = client.Close() }()
	expect.OK(t, expect.Err(client.EnqueueContext(t.Context(), asynq.NewTask("greet", []byte(`{}`)), asynq.Retention(time.Hour))))
	ran := make(chan struct{})
	worker := asynq.NewServer(conn, asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel})
	err := worker.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		close(ran)
		return nil
	}))
	expect.OK(t, err)
	limit, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case <-ran:
	case <-limit.Done():
		t.Error("want the task run within 10 s")
	}
	worker.Shutdown()

	dashboard := asynqmon.New(asynqmon.Options{RootPath: "/", RedisConnOpt: conn})
	defer func() { _ = dashboard.Close() }()
	for _, path := range []string{"/api/queues", "/api/queues/default", "/api/queues/default/completed_tasks", "/api/servers", "/api/redis_info"} {
		reply := httptest.NewRecorder()
		dashboard.ServeHTTP(reply, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		expect.That(t, reply.Code == http.StatusOK && json.Valid(reply.Body.Bytes()), "%s: want 200 and JSON, have %d %s", path, reply.Code, reply.Body)
	}
}
