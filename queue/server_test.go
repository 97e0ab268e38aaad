package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

func findsNone([]byte) (string, error) { return "", nil }

func TestServerConfigValidate(t *testing.T) {
	t.Parallel()
	const names = `bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have `
	for _, tt := range []struct {
		cfg  queue.ServerConfig
		want string // "" for a valid one
	}{
		{cfg: queue.ServerConfig{}},
		{cfg: queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{"a": 1_000_000}, Concurrency: 1_000_000}}},
		{cfg: queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{"a": 1, "b:c": 10}, Concurrency: 10000, DelayedTaskCheckInterval: 10 * time.Millisecond}}},
		{queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{" ": 1}}}, `queue: queues: want names of 1 to 256 ` + names + `" "`},
		{queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{"{a}": 1}}}, `queue: queues: want names of 1 to 256 ` + names + `"{a}"`},
		{queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{"a/b": 1}}}, `queue: queues: want names of 1 to 256 ` + names + `"a/b"`},
		// asynq leaves a queue without a weight out, and takes its default for some values below zero.
		{queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{"a": 1, "off": 0}}}, `queue: queues: off: want a weight of 1 to 1000000, have 0`},
		{queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{"a": -2}}}, `queue: queues: a: want a weight of 1 to 1000000, have -2`},
		{queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{"a": math.MaxInt, "b": 1}}}, fmt.Sprint(`queue: queues: a: want a weight of 1 to 1000000, have `, math.MaxInt)},
		{queue.ServerConfig{Asynq: asynq.Config{Concurrency: math.MaxInt}}, fmt.Sprint(`queue: concurrency: want 1000000 at most, have `, math.MaxInt)},
		{queue.ServerConfig{Asynq: asynq.Config{Concurrency: -3}}, `queue: concurrency: want 0 or more, have -3`},
		{queue.ServerConfig{Asynq: asynq.Config{HealthCheckInterval: -1}}, `queue: health check interval: want 0 or more, have -1ns`},
		{queue.ServerConfig{Asynq: asynq.Config{GroupMaxDelay: -time.Second}}, `queue: group max delay: want 0 or more, have -1s`},
		{queue.ServerConfig{Asynq: asynq.Config{GroupMaxSize: -1}}, `queue: group max size: want 0 or more, have -1`},
		{queue.ServerConfig{Asynq: asynq.Config{JanitorInterval: -1}}, `queue: janitor interval: want 0 or more, have -1ns`},
		{queue.ServerConfig{Asynq: asynq.Config{JanitorBatchSize: -1}}, `queue: janitor batch size: want 0 or more, have -1`},
		{cfg: queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: -1}}}, // has no meaning here, and asynq says that it may be negative
		{cfg: queue.ServerConfig{Recovery: queue.Recovery{Crashes: -1, Losses: -1}}},
		{queue.ServerConfig{Recovery: queue.Recovery{Crashes: -5}}, `queue: recovery: crashes: want 0 or more, or -1 for none, have -5`},
		{queue.ServerConfig{Recovery: queue.Recovery{Losses: -2}}, `queue: recovery: losses: want 0 or more, or -1 for none, have -2`},
		// What is nil in an interface would panic once it is called.
		{queue.ServerConfig{Handler: (*asynq.ServeMux)(nil)}, `queue: handler: want one, or none at all, have a nil *asynq.ServeMux`},
		{queue.ServerConfig{Handler: asynq.HandlerFunc(nil)}, `queue: handler: want one, or none at all, have a nil asynq.HandlerFunc`},
		{queue.ServerConfig{Store: (*locktest.Memory)(nil)}, `queue: store: want one, or none at all, have a nil *locktest.Memory`},
		{queue.ServerConfig{Asynq: asynq.Config{ErrorHandler: asynq.ErrorHandlerFunc(nil)}}, `queue: error handler: want one, or none at all, have a nil asynq.ErrorHandlerFunc`},
		{queue.ServerConfig{Asynq: asynq.Config{GroupAggregator: asynq.GroupAggregatorFunc(nil)}}, `queue: group aggregator: want one, or none at all, have a nil asynq.GroupAggregatorFunc`},
		{queue.ServerConfig{Asynq: asynq.Config{DelayedTaskCheckInterval: time.Millisecond}}, `queue: delayed task check interval: want 10ms or more, have 1ms`},
		{queue.ServerConfig{Asynq: asynq.Config{ShutdownTimeout: -time.Second}}, `queue: shutdown timeout: want 1ms or more, have -1s`},
		{queue.ServerConfig{Lock: lock.Config{Prefix: lock.NoPrefix}}, `queue: lock: prefix: want one, as the resource of a task could name any key otherwise, have NoPrefix`},
		{queue.ServerConfig{Asynq: asynq.Config{GroupGracePeriod: time.Millisecond}}, `queue: group grace period: want 1s or more, have 1ms`},
		{queue.ServerConfig{Overrun: -1}, `queue: overrun: want 0 or more, have -1ns`},
		// Nothing would ever come under an empty name.
		{queue.ServerConfig{Resources: map[string]queue.ResourceFunc{"": findsNone}}, `queue: resources: want the kind of a task, have ""`},
		{queue.ServerConfig{Resources: map[string]queue.ResourceFunc{" ": findsNone}}, `queue: resources: want the kind of a task, have " "`},
		{queue.ServerConfig{Resources: map[string]queue.ResourceFunc{"a": nil}}, `queue: resources: a: want a function, have nil`},
		{queue.ServerConfig{Resources: map[string]queue.ResourceFunc{"order:*": findsNone}}, `queue: resources: want the whole kind of a task, not a pattern, have "order:*"`},
		{queue.ServerConfig{Policies: map[string]queue.Policy{"order:*": {}}}, `queue: policies: want the whole kind of a task, not a pattern, have "order:*"`},
		{queue.ServerConfig{Policies: map[string]queue.Policy{"": {}}}, `queue: policies: want the kind of a task, have ""`},
		{queue.ServerConfig{Limits: map[string]queue.Limit{"": {}}}, `queue: limits: bad resource name: it is empty`},
		{queue.ServerConfig{Store: locktest.NewMemory(), Limits: map[string]queue.Limit{"account:*": {Holders: 5}, "order:*": {Holders: 1}}}, `queue: limits: account:*: want one holder with a store of another kind, have 5`},
		{queue.ServerConfig{Shards: map[string]int{"": 2}}, `queue: shards: want names of 1 to 249 ` + names + `""`},
		{queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{"": 1}}}, `queue: queues: want names of 1 to 256 ` + names + `""`},
		{queue.ServerConfig{Lock: lock.Config{RenewEvery: time.Hour}}, `lock: renew every: `},
	} {
		err := tt.cfg.Validate()
		expect.That(t, (tt.want != "" || err == nil) && (tt.want == "" || err != nil && strings.HasPrefix(err.Error(), tt.want)),
			"want %q, have %v", tt.want, err)
		s, err := queue.NewServer(queue.RedisOpt{}, tt.cfg)
		expect.That(t, (err == nil) == (tt.want == ""), "new: want %q, have %v", tt.want, err)
		if s != nil {
			shutdown(t, s) // never started: closes its connections
		}
	}
}

// A blank is a task that no client can enqueue.
type blank struct{}

func (blank) Kind() string { return " " }

func TestHandlePanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fn := func(context.Context, job) error { return nil }
	wantPanic := func(want string, f func()) {
		t.Helper()
		expect.Equal(t, "panic", panicOf(f), want)
	}
	s := b.newServer(queue.ServerConfig{})
	queue.Handle(s, fn)
	wantPanic("queue: Handle: test:job has a handler already", func() { queue.Handle(s, fn) })
	wantPanic(`queue: Handle: want the kind of a task, have ""`, func() {
		queue.Handle(s, func(context.Context, named) error { return nil })
	})
	wantPanic(`queue: Handle: want the kind of a task, have " "`, func() {
		queue.Handle(s, func(context.Context, blank) error { return nil })
	})
	wantPanic("queue: Handle: test:note: the handler is nil", func() { queue.Handle[note](s, nil) })
	wantPanic("queue: Handle: test:job: the server is nil", func() { queue.Handle(nil, fn) })
	wantPanic("queue: Handle: queue.Task is an interface: want the type of the tasks of one kind", func() {
		queue.Handle(s, func(context.Context, queue.Task) error { return nil })
	})
	wantPanic("queue: Redis: the options are nil", func() { queue.Redis(nil) })
	have := s.Kinds()
	expect.That(t, slices.Equal(have, []string{"test:job"}), "want the kind that has a handler, have %v", have)
	start(t, s)
	wantPanic("queue: Handle: test:note: the server has been started", func() {
		queue.Handle(s, func(context.Context, note) error { return nil })
	})
}

// A server that does not know a task's type names those that it knows; another
// server may know it, so the task is tried again.
func TestUnknownTaskType(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(queue.ServerConfig{}, b.run)
	info := b.awaitState(b.enqueue(named{kind: "test:new"}), asynq.TaskStateRetry)
	want := `queue: no handler for "test:new"; this server has test:job, test:note`
	expect.That(t, info.LastErr == want && info.Retried == 1, "want %q to use a retry, have %q, %d", want, info.LastErr, info.Retried)
}

type checked struct {
	Res string    `json:"res"`
	N   int       `json:"n"`
	At  time.Time `json:"at"`
}

func (checked) Kind() string       { return "test:checked" }
func (c checked) Resource() string { return c.Res }
func (c checked) Validate() error {
	if c.Res == "" {
		return &queue.TaskError{Kind: c.Kind(), Field: "res", Want: "it is empty"}
	}
	return nil
}

// A payload that no retry can mend archives its task at once.
func TestBadPayload(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newServer(queue.ServerConfig{})
	queue.Handle(s, func(context.Context, checked) error {
		t.Error("the handler ran")
		return nil
	})
	queue.Handle(s, func(context.Context, *pointed) error {
		t.Error("the handler ran")
		return nil
	})
	queue.Handle(s, func(context.Context, note) error {
		t.Error("the handler ran")
		return nil
	})
	start(t, s)
	for _, tt := range []struct{ kind, payload, want string }{
		{"test:checked", `{"res":`, "payload: unexpected end of JSON input"},
		{"test:checked", `{"res":1}`, "payload: json: cannot unmarshal number"},
		{"test:checked", `{"n":0.5}`, "payload: json: cannot unmarshal number into"},
		{"test:checked", `{"at":"4111"}`, "payload: it does not decode into queue_test.checked (*time.ParseError)"},
		{"test:checked", `{}`, "res: it is empty"},
		{"test:checked", ``, "payload: unexpected end of JSON input"},
		{"test:pointed", `null`, "payload: want a value, have null"},
		{"test:note", " null\n", "payload: want a value, have null"},
	} {
		have := b.awaitState(b.enqueueTask(asynq.NewTask(tt.kind, []byte(tt.payload))), asynq.TaskStateArchived)
		expect.That(t, strings.HasPrefix(have.LastErr, tt.kind+": "+tt.want) && have.Retried == 0,
			"%q: want %q, have %q", tt.payload, tt.want, have.LastErr)
	}
}

// With Redis away, calls end with a clear error within their context's deadline.
func TestRedisUnreachable(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	silent, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts, and never answers
	expect.OK(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for name, addr := range map[string]string{"refuses": "127.0.0.1:1", "hangs": silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			opts := &redis.UniversalOptions{Addrs: []string{addr}}
			rdb := queue.Redis(opts)
			t.Cleanup(func() { _ = rdb.Close() })
			start := time.Now()
			wantError(t, "enqueue", "queue: enqueue test:job: ", expect.Err(newClient(t, rdb).Enqueue(ctx, job{Res: "order:1"}, nil)))
			wantSoon(t, start, "enqueue: want it within 1 s")
			results, err := newClient(t, rdb).EnqueueBatch(ctx, []queue.Job{{job{Res: "order:1"}, nil}, {job{Res: "order:2"}, nil}})
			expect.That(t, err != nil && results[0].Err != nil && results[1].Err != nil,
				"batch: want an error for each, have %+v, %v", results, err)

			s := expect.Value(queue.NewServer(queue.RedisOpt(*opts), queue.ServerConfig{Logger: newLogs(t).logger}))(t)
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start = time.Now()
			wantError(t, "start", "queue: redis does not answer: ", s.Start(ctx))
			wantSoon(t, start, "start: want it within 1 s")
			shutdown(t, s)
		})
	}
}

// Types of tasks that look as if they had a resource, or a check.
type (
	byPointer    struct{ base }
	plural       struct{ base }
	withError    struct{ base }
	checkPointer struct{ base }
	base         struct{}
)

func (base) Kind() string                   { return "a:kind" }
func (*byPointer) Resource() string         { return "r" }
func (plural) Resources() []string          { return []string{"r"} }
func (withError) Resource() (string, error) { return "r", nil }
func (*checkPointer) Validate() error       { return errors.New("never valid") }
func handles[T queue.Task](s *queue.Server) {
	queue.Handle(s, func(context.Context, T) error { return nil })
}

// Times and numbers of asynq.Config, and the times of locks, reach the engine as they are.
func TestTimesReachTheEngine(t *testing.T) {
	t.Parallel()
	b, cfg := setup(t), asynq.Config{}
	theirs, want := reflect.ValueOf(&cfg).Elem(), make(map[string]int64)
	for i := range theirs.NumField() {
		name := theirs.Type().Field(i).Name
		if _, known := reflect.TypeFor[engine.Config]().FieldByName(name); known && theirs.Field(i).CanInt() {
			if want[name] = int64(i + 2); theirs.Field(i).Type() == reflect.TypeFor[time.Duration]() {
				want[name] *= int64(time.Second)
			}
			theirs.Field(i).SetInt(want[name])
		}
	}
	server := b.newServer(queue.ServerConfig{Asynq: cfg, Lock: lock.Config{
		TTL: 20 * time.Second, RenewEvery: 6 * time.Second, SafetyMargin: 2 * time.Second, HandoffTimeout: 3 * time.Second,
	}})
	defer shutdown(t, server)
	made := expect.Value(queue.EngineOf(server))(t)
	expect.That(t, len(want) >= 9, "want all of them, have %v", want)
	for name, n := range want {
		expect.Equal(t, name, reflect.ValueOf(made).FieldByName(name).Int(), n)
	}
	of := fmt.Sprint(made.TTL, made.RenewEvery, made.SafetyMargin, made.Handoff, made.FenceTTL)
	expect.Equal(t, "times of locks", of, "20s 6s 2s 3s 1m20s")
}

func panicOf(f func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	f()
	return ""
}

// A task that would run without its lock, or unchecked, as a method is not quite that of the interface, is refused.
func TestMethodsThatMissTheirInterface(t *testing.T) {
	t.Parallel()
	client := setup(t).client
	const signature = "want a method Resource that takes nothing and returns a string, such as queue.AllOf(a, b) for several"
	for _, tt := range []struct {
		task   queue.Task
		handle func(*queue.Server)
		want   string
	}{
		{byPointer{}, handles[byPointer], "want Resource as a method of queue_test.byPointer, have it of *queue_test.byPointer"},
		{checkPointer{}, handles[checkPointer], "want Validate as a method of queue_test.checkPointer, have it of *queue_test.checkPointer"},
		{plural{}, handles[plural], signature},
		{&plural{}, handles[*plural], signature},
		{withError{}, handles[withError], signature},
	} {
		expect.Equal(t, "Handle", panicOf(func() { tt.handle(new(queue.Server)) }), fmt.Sprintf("queue: Handle: %T: %s", tt.task, tt.want))
		_, err := client.Enqueue(t.Context(), tt.task, nil)
		want := fmt.Sprintf("%T: task: %s", tt.task, tt.want)
		expect.That(t, err != nil && err.Error() == want, "Enqueue: want %q, have %v", want, err)
	}
}

// once fails the test if a line of err's text has the name of a package twice as a prefix, or that of taskredis at all.
func once(t *testing.T, what string, err error) {
	t.Helper()
	expect.Need(t, err != nil, "%s: want an error", what)
	for line := range strings.Lines(err.Error()) {
		for _, prefix := range []string{"queue: ", "lock: ", "engine: ", "lockredis: "} {
			expect.That(t, strings.Count(" "+line, " "+prefix) <= 1, "%s: want %q once, have %q", what, prefix, line)
		}
		expect.That(t, !strings.Contains(line, "taskredis: "), "%s: want no name of an internal package, have %q", what, line)
	}
}

// Errors contain one another. Each text has the name of a package once.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	away := queue.RedisOpt{Addrs: []string{"127.0.0.1:1"}, MaxRetries: -1, DialerRetries: 1}
	down := queue.Redis((*redis.UniversalOptions)(&away))
	t.Cleanup(func() { _ = down.Close() })
	client := newClient(t, down)
	server := expect.Value(queue.NewServer(away, queue.ServerConfig{Logger: newLogs(t).logger}))(t)
	missing := b.newServer(queue.ServerConfig{Available: func(context.Context) error { return lock.ErrClosed }})
	defer shutdown(t, missing)
	b.enqueue(b.job(1), queue.Options{TaskID: "taken", UniqueFor: time.Hour})
	enqueue := func(c *queue.Client, task queue.Task, o queue.Options) error {
		o.Queue = b.queue
		return expect.Err(c.Enqueue(t.Context(), task, &o))
	}
	for name, err := range map[string]error{
		"no redis":      enqueue(client, b.job(1), queue.Options{}),
		"taken":         enqueue(b.client, b.job(2), queue.Options{TaskID: "taken"}),
		"duplicate":     enqueue(b.client, b.job(1), queue.Options{UniqueFor: time.Hour}),
		"bad resource":  enqueue(b.client, job{Res: "{"}, queue.Options{}),
		"bad option":    enqueue(b.client, b.job(1), queue.Options{Timeout: 1}),
		"batch":         expect.Err(client.EnqueueBatch(t.Context(), []queue.Job{{Task: b.job(1)}})),
		"check":         expect.Err(queue.CheckRedis(t.Context(), down)),
		"revoke":        expect.Err(queue.Revoke(t.Context(), down, b.revocation())),
		"no client":     expect.Err(queue.NewClient(nil, queue.ClientConfig{})),
		"bad queue":     queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{"/": 1}}}.Validate(),
		"bad ttl":       queue.ServerConfig{Lock: lock.Config{TTL: -1}}.Validate(),
		"ready":         server.Ready(t.Context()),
		"start":         server.Start(t.Context()),
		"run again":     server.Run(t.Context()),
		"not available": missing.Ready(t.Context()),
	} {
		once(t, name, err)
	}
}

func nothing(context.Context) error { return nil }
