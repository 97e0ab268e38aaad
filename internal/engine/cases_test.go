package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// The cases are what goes wrong in the field: servers that die, a Redis that stands still or refuses writes, keys
// of a wrong type, functions of users that fail in any way. Each says what is right then.

// A visit is an attempt as its handler saw it.
type visit struct {
	*Task

	node  *node
	began time.Time
	ended time.Time // zero while it runs
	cause error     // why its context ended, if the handler saw that
}

// A ledger keeps the visits of all servers in the order in which they began.
type ledger struct {
	tb     testing.TB
	mu     sync.Mutex
	visits []*visit
	at     map[string]*visit // who is at work, by resource
	twice  bool              // two may be at work on one resource, as in a failover that loses writes
}

// newLedger returns a ledger. The test fails if two attempts were at work on one resource.
func newLedger(tb testing.TB) *ledger {
	tb.Helper()
	return &ledger{tb: tb, at: make(map[string]*visit)}
}

func (l *ledger) begin(n *node, task *Task) *visit {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &visit{Task: task, node: n, began: time.Now()}
	for _, name := range store.Names(task.Resource) {
		if other := l.at[name]; other != nil && name != "" && !other.node.dead() && !l.twice {
			l.tb.Errorf("two at work on %s: %s and %s", name, other.ID, task.ID)
		}
		l.at[name] = v
	}
	l.visits = append(l.visits, v)
	return v
}

func (l *ledger) end(v *visit, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v.ended, v.cause = time.Now(), cause
	for _, name := range store.Names(v.Resource) {
		if l.at[name] == v {
			delete(l.at, name)
		}
	}
}

// all returns the visits so far, as they are now.
func (l *ledger) all() []visit {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]visit, len(l.visits))
	for i, v := range l.visits {
		all[i] = *v
	}
	return all
}

// of returns the visits of a resource.
func (l *ledger) of(resource string) []visit {
	return slices.DeleteFunc(l.all(), func(v visit) bool { return v.Resource != resource })
}

// begun returns an error until n attempts have begun.
func (l *ledger) begun(n int) func() error {
	return func() error {
		if have := len(l.all()); have < n {
			return fmt.Errorf("want %d attempts begun, have %d", n, have)
		}
		return nil
	}
}

// over returns an error until n attempts have ended.
func (l *ledger) over(n int) func() error {
	return func() error {
		have := 0
		for _, v := range l.all() {
			if !v.ended.IsZero() {
				have++
			}
		}
		if have < n {
			return fmt.Errorf("want %d attempts ended, have %d", n, have)
		}
		return nil
	}
}

// A node is a server with its own connections, which can be killed.
type node struct {
	*Server

	cfg    Config
	killed chan struct{}
}

// node starts a server whose handler works for as long as work says, or until its context ends.
func (f *fleet) node(l *ledger, work func(*Task) time.Duration, change ...func(*Config)) *node {
	f.t.Helper()
	n := &node{killed: make(chan struct{})}
	n.cfg = f.config(func(ctx context.Context, task *Task) error {
		v := l.begin(n, task)
		timer := time.NewTimer(work(task))
		defer timer.Stop()
		select {
		case <-timer.C:
			l.end(v, nil)
			return nil
		case <-ctx.Done():
			l.end(v, context.Cause(ctx))
			return context.Cause(ctx)
		case <-n.killed:
			return errKilled
		}
	})
	for _, c := range change {
		c(&n.cfg)
	}
	n.Server = New(n.cfg)
	expect.OK(f.t, n.Start(f.t.Context(), f.rules))
	f.t.Cleanup(func() { n.shut(f.t) })
	return n
}

var errKilled = errors.New("the server was killed")

// kill ends a server as SIGKILL ends a process: nothing more of it reaches Redis.
func (n *node) kill() {
	n.stop()
	_ = n.cfg.Redis.Close()
	close(n.killed)
}

func (n *node) dead() bool {
	select {
	case <-n.killed:
		return true
	default:
		return false
	}
}

// shut ends a server that was not killed.
func (n *node) shut(tb testing.TB) {
	tb.Helper()
	if n.dead() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := n.Shutdown(ctx)
	expect.That(tb, err == nil, "shutdown: %v", err)
	close(n.killed)
}

func always(d time.Duration) func(*Task) time.Duration { return func(*Task) time.Duration { return d } }

func slots(n int) func(*Config) { return func(c *Config) { c.Concurrency = n } }

func serves(queues ...string) func(*Config) {
	return func(c *Config) {
		c.Queues = make(map[string]int)
		for _, queue := range queues {
			c.Queues[queue] = 1
		}
	}
}

// ttl sets the TTL of locks, and what depends on it as with the default of 15 s.
func ttl(d time.Duration) func(*Config) {
	return func(c *Config) { c.TTL, c.RenewEvery, c.SafetyMargin = d, d/3, d/15 }
}

// crowd enqueues n tasks of each resource, one resource after the other.
func (f *fleet) crowd(queue string, n int, resources ...string) {
	f.t.Helper()
	ctx := context.Background()
	pipe := f.rdb.Pipeline()
	for _, resource := range resources {
		for range n {
			f.n++
			id := fmt.Sprintf("task-%06d", f.n)
			m := taskredis.Message{Type: "kind", ID: id, Queue: queue, Retry: 25, Timeout: 60, Payload: []byte(resource)}
			fields := []any{"msg", m.Encode(), "state", "pending", "pending_since", "1"}
			if resource != "" {
				fields = append(fields, "siding_resource", resource)
			}
			pipe.HSet(ctx, taskredis.TaskKey(queue, id), fields...)
			pipe.LPush(ctx, taskredis.PendingKey(queue), id)
			if pipe.Len() > 2000 {
				f.exec(pipe)
			}
		}
	}
	pipe.SAdd(ctx, "asynq:queues", queue)
	pipe.LPush(ctx, taskredis.NotifyKey(queue), 1)
	f.exec(pipe)
}

func (f *fleet) exec(pipe redis.Pipeliner) {
	f.t.Helper()
	expect.OK(f.t, expect.Err(pipe.Exec(context.Background())))
}

// parked returns an error until n tasks of a queue wait for a lock.
func (f *fleet) parked(queue string, n int) func() error {
	return func() error {
		waiting, err := f.rdb.ZCard(context.Background(), taskredis.RetryKey(queue)).Result()
		if err == nil && int(waiting) < n {
			err = fmt.Errorf("queue %s: want %d tasks that wait, have %d", queue, n, waiting)
		}
		return err
	}
}

// taken returns an error until no task of a queue is pending.
func (f *fleet) taken(queue string) func() error {
	return func() error {
		pending, err := f.rdb.LLen(context.Background(), taskredis.PendingKey(queue)).Result()
		if err == nil && pending > 0 {
			err = fmt.Errorf("queue %s: want no task pending, have %d", queue, pending)
		}
		return err
	}
}

// within waits until check returns nil, and fails the test if that takes longer than d.
func (f *fleet) within(d time.Duration, check func() error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), d, fmt.Errorf("not within %v", d))
	defer cancel()
	expect.OK(f.t, expect.Until(ctx, check))
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("r%02d", i)
	}
	return all
}

// on returns a fleet on a server that the test may stop and configure.
func on(tb testing.TB, server *redistest.Server) *fleet {
	tb.Helper()
	f := &fleet{t: tb, addr: server.Addr}
	f.rdb = f.connect()
	return f
}
