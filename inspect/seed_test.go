package inspect_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
)

// encoded is a task as asynq keeps it, parked for a resource.
func encoded(queue, id, resource string) []byte {
	m := taskredis.Message{Type: "test:job", Payload: []byte(`{"res":"` + resource + `"}`), ID: id, Queue: queue, Retry: 25}
	m.Headers = map[string]string{"siding-resource": resource}
	return m.Encode()
}

// seed writes so many waiting tasks into Redis, as parking them leaves them behind, spread over some
// resources. Task i has the id "task-i" and waits for resource i modulo resources. The later tasks came
// later, one each ms, the last one now.
func (b *bed) seed(tasks, resources int) {
	b.Helper()
	ctx, now := b.Context(), time.Now()
	const batch = 2000
	for first := 0; first < tasks; first += batch {
		pipe := b.rdb.Pipeline()
		for i := first; i < min(first+batch, tasks); i++ {
			id, resource := fmt.Sprintf("task-%d", i), b.seeded(i%resources)
			ticket := now.Add(-time.Duration(tasks-i) * time.Millisecond).UnixMicro()
			ends := now.Add(time.Hour).Unix()
			pipe.HSet(ctx, b.taskKey(id), "msg", encoded(b.queue, id, resource), "state", "retry", "siding_ticket", ticket, "siding_lock", "lock:"+resource, "siding_until", ends, "siding_parked", 1)
			pipe.ZAdd(ctx, b.key("retry"), redis.Z{Score: float64(ends), Member: id})
			pipe.ZAdd(ctx, b.line(resource), redis.Z{Score: float64(ticket), Member: id})
			if i < resources {
				pipe.ZAdd(ctx, "{lock:"+resource+"}:lines", redis.Z{Score: float64(ticket), Member: b.queue})
				pipe.ZAdd(ctx, "siding:{"+b.queue+"}:ready", redis.Z{Score: float64(now.Add(time.Hour).UnixMicro()), Member: "lock:" + resource})
				pipe.Set(ctx, "lock:"+resource, "siding:1:warehouse", time.Hour)
			}
		}
		expect.OK(b, expect.Err(pipe.Exec(ctx)))
	}
	b.must(b.rdb.SAdd(ctx, "asynq:queues", b.queue).Err())
}

// line is the line of tasks of the bed's queue that wait for a resource.
func (b *bed) line(resource string) string { return "siding:{" + b.queue + "}:line:lock:" + resource }

// seeded is the i-th of the resources of seed.
func (b *bed) seeded(i int) string { return fmt.Sprintf("%s:%d", b.resource, i) }

// A meter counts what is sent to Redis.
type meter struct {
	mu       sync.Mutex
	commands []string // by their names
	trips    int
	readOnly bool // scripts run in Redis' own mode for those that write nothing
}

func (m *meter) count(cmds ...redis.Cmder) {
	if slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == "hello" || cmd.Name() == "client" }) {
		return // of a connection that begins
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trips++
	for _, cmd := range cmds {
		name := strings.ToLower(cmd.Name())
		m.commands = append(m.commands, name)
		if m.readOnly && (name == "eval" || name == "evalsha") {
			cmd.Args()[0] = name + "_ro"
		}
	}
}

// reset returns what was counted since the last call.
func (m *meter) reset() (commands []string, trips int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	commands, trips = m.commands, m.trips
	m.commands, m.trips = nil, 0
	return commands, trips
}

// metered counts what the bed's inspector sends from now on.
func (b *bed) metered() *meter {
	m := &meter{}
	b.rdb.AddHook(redistest.Hook(func(cmds []redis.Cmder, send func(...redis.Cmder) error) error {
		m.count(cmds...)
		return send(cmds...)
	}))
	return m
}

// questions are all but Scan, each about a seeded bed.
func (b *bed) questions() map[string]func(context.Context) error {
	i := b.inspector
	return map[string]func(context.Context) error{
		"held":    func(ctx context.Context) error { _, err := i.Held(ctx); return err },
		"show":    func(ctx context.Context) error { _, _, err := i.Show(ctx, b.seeded(0), 1, 20); return err },
		"why":     func(ctx context.Context) error { _, err := i.Why(ctx, "", "task-5"); return err },
		"orphans": func(ctx context.Context) error { _, err := i.Orphans(ctx); return err },
		"servers": func(ctx context.Context) error { _, err := i.Servers(ctx); return err },
		"queues":  func(ctx context.Context) error { _, err := i.Queues(ctx); return err },
	}
}

// The cost of a question does not depend on how many tasks wait.
func TestCost(t *testing.T) {
	t.Parallel()
	cost := func(tasks int) map[string]int {
		b := setupAlone(t)
		b.seed(tasks, 10)
		m := b.metered()
		sent := make(map[string]int)
		for name, ask := range b.questions() {
			expect.OK(t, ask(t.Context())) // Redis learns of the scripts
			m.reset()
			expect.OK(t, ask(t.Context()))
			commands, trips := m.reset()
			sent[name] = len(commands)
			expect.That(t, name != "show" || trips <= 6, "show: want few calls, have %d", trips)
			for _, c := range commands {
				expect.That(t, c != "keys" && c != "scan", "%s: want no KEYS and no SCAN, have %s", name, c)
			}
		}
		return sent
	}
	few, many := cost(10), cost(10000)
	for name, n := range few {
		t.Logf("%s: %d commands", name, n)
		expect.That(t, many[name] == n, "%s: want %d commands with 10,000 waiting tasks as with 10, have %d", name, n, many[name])
	}
}

// Redis itself refuses what would change it, and no question asks for that.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	b := setupAlone(t)
	b.seed(100, 10)
	m := b.metered()
	m.readOnly = true
	questions := b.questions()
	questions["scan"] = func(ctx context.Context) error { _, err := b.inspector.Scan(ctx, nil); return err }
	reads := strings.Fields("hello client eval evalsha smembers zrangebyscore get hget zcard zrange scan exists zscore") // a new connection sends the first two
	for name, ask := range questions {
		expect.OK(t, ask(t.Context()))
		commands, _ := m.reset()
		for _, c := range commands {
			expect.That(t, slices.Contains(reads, c), "%s: want a command that only reads, have %s", name, c)
		}
	}
}

// With a million waiting tasks each question is answered in seconds, also on a busy machine.
func TestMillion(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	for _, resources := range []int{1, 10_000, 100_000} {
		b := setupAlone(t)
		b.seed(1_000_000, resources)
		for name, ask := range b.questions() {
			expect.OK(t, ask(t.Context()))
			began := time.Now()
			expect.OK(t, ask(t.Context()))
			took := time.Since(began)
			t.Logf("%d resources: %s: %v", resources, name, took)
			expect.That(t, took <= 5*time.Second, "%d resources: %s: want an answer within 5 s, have %v", resources, name, took)
		}
		list := get(b, b.inspector.Held)
		if many := resources > 2000; many != (list.LeftOut > 0) || len(list.Locks) != min(2000, resources) {
			t.Errorf("%d resources: want at most 2,000 locks, and the others left out, have %d and %d", resources, len(list.Locks), list.LeftOut)
		}
		expect.OK(t, b.rdb.FlushAllAsync(t.Context()).Err())
	}
}
