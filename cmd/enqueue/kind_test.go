package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// A task of an unknown kind needs a resource, and that of a known kind is what its payload says. The
// errors of task and stream are the same ones.
func TestKindsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ kind, payload, resource, want string }{
		"unknown without a resource": {"order:ship", `{"order":"1"}`, "", `resource: want one with the kind "order:ship", which is none of ` + strings.Join(tasks.Kinds(), ", ") + `, have nothing`},
		"no kind":                    {"", `{}`, "order:1", `kind: want one of ` + strings.Join(tasks.Kinds(), ", ") + `, or one of your own, have nothing`},
		"long kind":                  {strings.Repeat("k", 257), `{}`, "order:1", `main.foreignTask: kind: want 1 to 256 bytes of UTF-8, have "` + strings.Repeat("k", 80) + `…"`},
		"other resource":             {"order:audit", `{"order":"1"}`, "order:2", `order:audit: resource: want "order:1" as its payload says, or none, have "order:2"`},
		"bad resource":               {"order:ship", `{}`, "order:{1", `order:ship: resource: lock: bad resource name: braces have to be in pairs, the first not empty, as a Redis Cluster chooses slots by them: "order:{1"`},
		"bad option":                 {"order:ship", `{}`, "order:1", `order:ship: policy: on busy: want park, reject, coalesce or replace, have "wat"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task, want := []string{"task", c.kind, "--redis", "127.0.0.1:1", "--payload", c.payload}, c.want
			if c.resource != "" {
				task = append(task, "--resource", c.resource)
			} else {
				want = "--" + want // it begins with the resource, which is a flag of task
			}
			line := `{"kind":"` + c.kind + `","payload":` + c.payload + `,"resource":"` + c.resource + `"`
			if name == "bad option" {
				task = append(task, "--on-busy", "wat")
				line += `,"on_busy":"wat"`
			}
			wanted := result{"", "enqueue: " + want + "\n", exitRefused}
			if name == "bad option" { // it names the flag
				wanted = result{"", "enqueue: --on-busy: want park, reject, coalesce or replace, have \"wat\"\nRun 'enqueue task --help' for usage.\n", 2}
			}
			wantResult(t, wanted, enqueue(t, "", task...))
			stream := enqueue(t, line+"}", "stream", "--dry-run")
			if stream.status != exitRefused || !strings.Contains(stream.out, "line 1: "+c.want+"\n") {
				t.Errorf("stream: want %q, have %+v", c.want, stream)
			}
		})
	}
}

// A payload of a kind of the user's own may be any JSON, and nothing else. The error does not show it.
func TestPayloadsOfOtherKinds(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"order": "1"}`:   "",
		`"1"`:              "",
		`[1, 2]`:           "",
		``:                 "payload: want JSON: unexpected end of JSON input",
		`{"secret":`:       "payload: want JSON: unexpected end of JSON input",
		`{} {}`:            "payload: want JSON: invalid character '{' after top-level value",
		"{\"a\":\"\xff\"}": "payload: want JSON: it is not UTF-8",
	} {
		have := enqueue(t, "", "task", "test:ship", "--dry-run", "--resource", "order:1", "--payload", payload)
		if want == "" {
			wantResult(t, result{"test:ship is valid\n", "", cli.StatusOK}, have)
		} else {
			wantResult(t, result{"", "enqueue: test:ship: " + want + "\n", exitRefused}, have)
		}
	}
	have := enqueue(t, `{"kind":"test:ship","resource":"order:1"}`, "stream", "--dry-run")
	if want := "line 1: test:ship: payload: want JSON: unexpected end of JSON input\n"; !strings.Contains(have.out, want) {
		t.Errorf("stream: want %q, have %q", want, have.out)
	}
}

// A task may need several resources: each has a flag of its own, and a line has a list of them.
func TestSeveralResources(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		`["account:2","account:1"]`: "\naccount:1\naccount:2",
		`["account:1"]`:             "account:1",
		`"account:1"`:               "account:1",
	} {
		_, jobs := decodeAll(t, streamDecoder{}, `{"kind":"cash:move","payload":{},"resource":`+list+`}`)
		if len(jobs) != 1 {
			t.Fatalf("%s: want a job, have %v", list, jobs)
		}
		if have, ok := jobs[0].Task.(queue.Guarded); !ok || have.Resource() != want {
			t.Errorf("%s: want %q, have %v", list, want, have)
		}
	}
	command := []string{"task", "cash:move", "--payload", "{}", "--dry-run", "--resource", "account:1"}
	wantResult(t, result{"cash:move is valid\n", "", cli.StatusOK}, enqueue(t, "", append(command, "--resource", "account:2")...))
	have := enqueue(t, "", append(command, "--resource", "account:{2")...)
	if have.status != exitRefused || !strings.Contains(have.err, `braces have to be in pairs`) {
		t.Errorf("want the second one refused, have %+v", have)
	}
}

// All options go with a task of any kind, and its id has nothing of its kind.
func TestOptionsOfOtherKinds(t *testing.T) {
	t.Parallel()
	text := `{"kind":"ship/{1}","payload":[1, 2],"resource":"order:1","priority":3,"on_busy":"coalesce","max_wait":"1m","retries":2}`
	_, jobs := decodeAll(t, streamDecoder{content: content{hash: "0123456789abcdefrest"}}, text)
	if len(jobs) != 1 {
		t.Fatalf("want a job, have %v", jobs)
	}
	want := &queue.Options{
		TaskID: "1-0123456789abcdef", Priority: 3, Retries: 2,
		Policy: &queue.Policy{OnBusy: queue.OnBusyCoalesce, MaxWait: time.Minute},
	}
	if diff := cmp.Diff(want, jobs[0].Options); diff != "" {
		t.Errorf("options (-want +have):\n%s", diff)
	}
	if err := queue.Check(jobs[0].Task, jobs[0].Options); err != nil {
		t.Error(err)
	}
}

// A shipment is a task of a user's own program.
type shipment struct {
	Order string `json:"order"`
	Step  int    `json:"step"`
}

func (shipment) Kind() string       { return "test:ship" }
func (s shipment) Resource() string { return "order:" + s.Order }

// A parcel is another one, which leaves it to whoever enqueues it to name its resource.
type parcel struct {
	Step int `json:"step"`
}

func (parcel) Kind() string { return "test:parcel" }

// A server with handlers of the user's own runs what enqueue task and enqueue stream have enqueued, one
// after the other for each resource. If a kind has a resource by its type, that is what counts.
func TestOtherKindsRunGuarded(t *testing.T) {
	t.Parallel()
	at := redistest.Start(t)
	server, err := queue.NewServer(queue.RedisOpt{Addrs: []string{at.Addr}}, queue.ServerConfig{
		Logger: slog.New(slog.DiscardHandler),
	})
	expect.OK(t, err)
	var mu sync.Mutex
	var ran []string
	entered, left := make(chan struct{}), make(chan struct{})
	leave := sync.OnceFunc(func() { close(left) })
	run := func(ctx context.Context, name string, step int) {
		resource := queue.InfoFrom(ctx).Resource
		if lock.Fence(ctx, resource) == 0 {
			t.Errorf("%s %d: want the lock of %q, have none", name, step, resource)
		}
		if step == 1 {
			close(entered)
			<-left
		}
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, name+" on "+resource)
	}
	queue.Handle(server, func(ctx context.Context, s shipment) error {
		run(ctx, "shipment", s.Step)
		return nil
	})
	queue.Handle(server, func(ctx context.Context, p parcel) error {
		run(ctx, "parcel", p.Step)
		return nil
	})
	expect.OK(t, server.Start(t.Context()))
	t.Cleanup(func() {
		leave() // also if the test ends before
		_ = server.Shutdown(context.WithoutCancel(t.Context()))
	})

	put := func(stdin string, args ...string) {
		t.Helper()
		if have := enqueue(t, stdin, append(args, "--redis", at.Addr)...); have.status != cli.StatusOK {
			t.Fatalf("%q: %+v", args, have)
		}
	}
	waiting := func(n int) func() bool {
		return func() bool {
			info, err := inspect(t, at).GetQueueInfo("default")
			return err == nil && info.Retry == n
		}
	}
	put("", "task", "test:parcel", "--resource", "order:7", "--payload", `{"step":1}`)
	<-entered
	put("", "task", "test:ship", "--resource", "order:7", "--payload", `{"order":"7","step":2}`)
	expect.Eventually(t, "the second waiting", waiting(1))
	put(`{"kind":"test:parcel","payload":{"step":3},"resource":"order:7"}`, "stream")
	expect.Eventually(t, "the third waiting", waiting(2))
	// The resource that was named is free, and that of the payload is not.
	put("", "task", "test:ship", "--resource", "order:8", "--payload", `{"order":"7","step":4}`)
	expect.Eventually(t, "the fourth waiting", waiting(3))
	leave()
	var have []string
	expect.Eventually(t, "all done", func() bool {
		mu.Lock()
		defer mu.Unlock()
		have = slices.Clone(ran)
		return len(have) == 4
	})
	want := []string{"parcel on order:7", "shipment on order:7", "parcel on order:7", "shipment on order:7"}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("runs (-want +have):\n%s", diff)
	}
	info, err := asynq.NewInspectorFromRedisClient(at.Client(t)).GetQueueInfo("default")
	if err != nil || info.Failed != 0 {
		t.Errorf("want no failure, have %+v, %v", info, err)
	}
}
