package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/orders"
)

// decodeAll returns what the decoder makes of the text, each item as "line:
// task" or "line: error".
func decodeAll(t *testing.T, d streamDecoder, text string) (told []string, jobs []queue.Job) {
	t.Helper()
	for it, err := range d.jobs(strings.NewReader(text), false) {
		refused, ok := errors.AsType[*orders.LineError](err)
		switch {
		case err != nil && !ok:
			t.Fatal(err)
		case it.Line != it.Through:
			t.Errorf("want lines one by one, have line %d through %d", it.Line, it.Through)
		case ok:
			told = append(told, fmt.Sprintf("%d: %s", refused.Line, refused.Want))
		default:
			told = append(told, fmt.Sprintf("%d: %T%v", it.Line, it.Task, it.Task))
			jobs = append(jobs, it.Job)
		}
	}
	return told, jobs
}

func TestStreamLines(t *testing.T) {
	t.Parallel()
	const good = `{"kind":"order:audit","payload":{"order":"1"}}`
	long := strings.Repeat("x", maxStreamLine)
	for name, c := range map[string]struct{ text, want string }{
		"good":              {good, "1: tasks.AuditOrder{1 0}"},
		"two resources":     {`{"kind":"balance:transfer","payload":{"from":"1","to":"2","cents":1},"resource":["account:2","account:1"]}`, "1: tasks.TransferBalance{1 2 1}"},
		"other resources":   {`{"kind":"balance:transfer","payload":{"from":"1","to":"2","cents":1},"resource":"account:1"}`, `1: balance:transfer: resource: want "account:1, account:2" as its payload says, or none, have "account:1"`},
		"byte order mark":   {"\ufeff" + good, "1: tasks.AuditOrder{1 0}"},
		"blanks, CRLF":      {"\r\n \n\t" + good + "  \r\n", "3: tasks.AuditOrder{1 0}"},
		"not JSON":          {"order:audit", "1: want a JSON object: invalid character 'o' looking for beginning of value"},
		"cut off":           {`{"kind":"order`, "1: want a JSON object: unexpected EOF"},
		"an array":          {`[]`, "1: want an object, have array"},
		"two objects":       {good + good, "1: want one JSON object, have more after it"},
		"unknown field":     {`{"kind":"order:audit","payload":{"order":"1"},"delya":"5s"}`, `1: unknown field "delya"`},
		"wrong type":        {`{"kind":"order:audit","payload":{"order":"1"},"delay":5}`, `1: delay: want a string, have number`},
		"no truth":          {`{"kind":"order:audit","payload":{"order":"1"},"unique":"10m"}`, `1: unique: want true or false, have string`},
		"wrong number":      {`{"kind":"order:audit","payload":{"order":"1"},"retries":"5"}`, `1: retries: want a whole number, have string`},
		"wrong resource":    {`{"kind":"x","payload":{},"resource":[1]}`, `1: resource: want a text or a list of texts, have [1]`},
		"no payload":        {`{"kind":"order:audit"}`, "1: order:audit: payload: want a JSON object: EOF"},
		"null":              {`{"kind":"order:audit","payload":null}`, `1: order:audit: order: is empty`},
		"bad payload":       {`{"kind":"order:audit","payload":{"order":""}}`, `1: order:audit: order: is empty`},
		"bad delay":         {`{"kind":"order:audit","payload":{"order":"1"},"delay":"soon"}`, `1: delay: want a duration such as 90s or 1h30m, have "soon"`},
		"bad max delay":     {`{"kind":"order:audit","payload":{"order":"1"},"debounce":"1","max_delay":"5"}`, `1: max_delay: want a duration such as 90s or 1h30m, have "5"`},
		"bad deadline":      {`{"kind":"order:audit","payload":{"order":"1"},"deadline":"2030-01-31"}`, `1: deadline: want a time with its zone such as 2030-01-31T18:00:00Z, have "2030-01-31"`},
		"negative retries":  {`{"kind":"order:audit","payload":{"order":"1"},"retries":-1}`, "1: retries: want 0 or more, have -1"},
		"not UTF-8":         {strings.Replace(good, "{", "{\"id\":\"a\xff\",", 1), "1: want a line of UTF-8"},
		"too long":          {long + good, fmt.Sprintf("1: want a line of less than %d bytes", maxStreamLine)},
		"long unknown name": {`{"` + long[:5000] + `":1}`, `1: unknown field "` + long[:85]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have, _ := decodeAll(t, streamDecoder{}, c.text)
			expect.Same(t, "alone", have, []string{c.want})
			// Among others it is the only one that suffers.
			have, _ = decodeAll(t, streamDecoder{}, good+"\n"+strings.TrimPrefix(c.text, "\ufeff")+"\n"+good)
			expect.That(t, len(have) == 3 && have[0] == "1: tasks.AuditOrder{1 0}" && strings.HasSuffix(have[2], ": tasks.AuditOrder{1 0}"), "among others: want the others, have %q", have)
		})
	}
}

func TestStreamOptions(t *testing.T) {
	t.Parallel()
	text := `{"kind":"order:audit","payload":{"order":"1"},"queue":"q","id":"x","delay":"5s","unique_for":"6s","retries":7,"timeout":"8s","deadline":"2999-01-01T00:00:00Z","retention":"9s","priority":3,"on_busy":"coalesce","max_wait":"1m","max_waiting":4,"use_retries":true,"on_failure":"hold"}
{"kind":"order:audit","payload":{"order":"1"},"at":"2998-01-01T00:00:00+01:00","retries":0}
{"kind":"order:audit","payload":{"order":"1"},"debounce":"1","delay":"10s","max_delay":"1m"}`
	want := []queue.Options{
		{
			Queue: "q", TaskID: "x", Delay: 5 * time.Second, UniqueFor: 6 * time.Second, Retries: 7, Timeout: 8 * time.Second,
			Deadline: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), Retention: 9 * time.Second, Priority: 3,
			Policy: &queue.Policy{OnBusy: queue.OnBusyCoalesce, MaxWait: time.Minute, MaxWaiting: 4, UseRetries: true, OnFailure: queue.OnFailureHold},
		},
		{
			Queue: "elsewhere", TaskID: "2-0123456789abcdef", Retries: queue.NoRetries,
			At: time.Date(2997, 12, 31, 23, 0, 0, 0, time.UTC),
		},
		{Queue: "elsewhere", Debounce: "1", Delay: 10 * time.Second, MaxDelay: time.Minute}, // without an id
	}
	_, jobs := decodeAll(t, streamDecoder{queue: "elsewhere", content: content{hash: "0123456789abcdefrest"}}, text)
	var have []queue.Options
	for _, job := range jobs {
		have = append(have, *job.Options)
	}
	expect.Same(t, "options", have, want)
}

func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		"", "\n\n", "{}", `{"kind":"order:audit","payload":{"order":"1"}}`, `{"kind":"order:place","payload":{"user":"u","submission":"s","items":[{"sku":"1","quantity":1,"price":"1"}]},"retries":0}`,
		`{"kind":"balance:transfer","payload":{"from":"1","to":"2","cents":1},"resource":["account:2","account:1"]}`,
		`{"payload":[]}` + "\n{", "\xff", `{"kind":"order:audit","payload":{"order":"1"},"at":"x"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		last := 0
		for it, err := range (streamDecoder{}).jobs(bytes.NewReader(text), false) {
			refused, ok := errors.AsType[*orders.LineError](err)
			expect.Need(t, err == nil || ok, "want no fault of the input, have %v", err)
			expect.Need(t, it.Line > last && it.Line <= 1+bytes.Count(text, []byte("\n")), "want lines of the file in their order, have %d behind %d", it.Line, last)
			last = it.Line
			if ok && len(refused.Error()) > 1000 {
				t.Fatalf("want a short error, have %d bytes", len(refused.Error()))
			}
			if !ok {
				if err := (queue.ClientConfig{}).Check(it.Task, it.Options); err != nil && len(err.Error()) > 1000 {
					t.Fatalf("want a short error, have %d bytes", len(err.Error()))
				}
			}
		}
	})
}

func TestStreamFromStdin(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	const q = "stream-stdin"
	text := `{"kind":"order:audit","payload":{"order":"1"},"id":"a"}
{"kind":"order:audit","payload":{"order":"1"},"id":"c","timeout":"1ms"}

{"kind":"order:adit","payload":{"order":"1"},"id":"b"}
{"kind":"order:audit","payload":{"order":"1"},"id":"d"}
{"kind":"order:ship","payload":{},"id":"e","resource":"order:1","on_busy":"wat"}`
	args := []string{"stream", "--redis", server.Addr, "--queue", q}
	want := `-: done
        2  tasks enqueued
        0  tasks were there already
        3  refused
           line 2: order:audit: timeout: want whole seconds, 1 or more, have "1ms"
           line 4: resource: want one with the kind "order:adit", which is none of ` + strings.Join(tasks.Kinds(), ", ") + `, have nothing
           line 6: order:ship: policy: on busy: want park, reject, coalesce or replace, have "wat"
`
	wantResult(t, result{want, "", exitRefused}, enqueue(t, text, args...))
	// Its own ids keep a stream from being enqueued twice.
	want = strings.NewReplacer("-: done", "-: everything was already enqueued", "2  tasks enqueued", "0  tasks enqueued", "0  tasks were", "2  tasks were").Replace(want)
	wantResult(t, result{want, "", exitRefused}, enqueue(t, text, args...))
	expect.Same(t, "ids", ids(t, server.Client(t), q), map[string]bool{"a": true, "d": true})
}

// A task that comes by a pipe is enqueued at once, although neither the batch
// is full nor the pipe at its end; and a run that waits for input can be ended.
func TestStreamIsLive(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	const q = "stream-live"
	stdin, feed := io.Pipe()
	ctx, interrupt := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	a := &app{stdin: stdin, stdout: &out, stderr: &errs}
	ended := make(chan int)
	go func() { ended <- a.run(ctx, []string{"stream", "--redis", server.Addr, "--queue", q}) }()
	for i := range 3 {
		expect.OK(t, expect.Err(fmt.Fprintf(feed, `{"kind":"order:audit","payload":{"order":"1"},"id":"%d"}`+"\n", i)))
		expect.Eventually(t, fmt.Sprintf("task %d", i), func() bool { return pending(t, client, q) == i+1 })
	}
	interrupt()
	status := <-ended
	expect.OK(t, feed.Close())
	want := result{
		"-: stopped behind line 3\n        3  tasks enqueued\n        0  tasks were there already\n        0  refused\n",
		"enqueue: interrupted; all up to line 3 is done\n", cli.StatusFault,
	}
	wantResult(t, want, result{out.String(), errs.String(), status})
}

func TestStreamFromAPipeByName(t *testing.T) {
	t.Parallel()
	have := enqueue(t, "", "stream", "/dev/null", "--dry-run")
	wantResult(t, result{"/dev/null: checked, nothing was enqueued\n        0  tasks would be enqueued\n        0  refused\n", "", cli.StatusOK}, have)
}

func TestStreamFile(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	const q, lines = "stream-file", 250
	var text strings.Builder
	for i := range lines {
		fmt.Fprintf(&text, `{"kind":"order:audit","payload":{"order":"%d"}}`+"\n", i%7)
	}
	file := writeFile(t, "tasks.jsonl", text.String())
	args := []string{"stream", file, "--redis", server.Addr, "--queue", q}
	if have := enqueue(t, "", append(args, "--dry-run", "--json")...); have.status != cli.StatusOK || !strings.Contains(have.out, `"would_enqueue":250`) {
		t.Errorf("dry run: want 250 tasks that would be enqueued, have %+v", have)
	}
	if have := ids(t, client, q); len(have) != 0 {
		t.Errorf("dry run: want nothing enqueued, have %d", len(have))
	}
	want := file + ": done\n      250  tasks enqueued\n        0  tasks were there already\n        0  refused\n"
	wantResult(t, result{want, "", cli.StatusOK}, enqueue(t, "", args...))
	want = file + ": everything was already enqueued\n        0  tasks enqueued\n      250  tasks were there already; all up to line 250, by the checkpoint\n        0  refused\n"
	wantResult(t, result{want, "", cli.StatusOK}, enqueue(t, "", args...))
	want = file + ": everything was already enqueued\n        0  tasks enqueued\n      250  tasks were there already\n        0  refused\n"
	wantResult(t, result{want, "", cli.StatusOK}, enqueue(t, "", append(args, "--restart")...))
	if have, distinct := pending(t, client, q), ids(t, client, q); have != lines || len(distinct) != lines {
		t.Errorf("tasks: want %d with ids of their own, have %d with %d ids", lines, have, len(distinct))
	}
}

// A task of a file is kept for a while, so that it does not run twice if a batch is sent again.
func TestStreamRetention(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	text := `{"kind":"order:audit","payload":{"order":"1"},"id":"a"}
{"kind":"order:audit","payload":{"order":"1"},"id":"b","retention":"9s"}
{"kind":"order:audit","payload":{"order":"1"},"id":"c","retention":"0s"}
`
	path := writeFile(t, "tasks.jsonl", text)
	for q, tt := range map[string]struct {
		stdin string
		args  []string
		a     time.Duration
	}{
		"stream-kept":       {"", []string{path}, keptFor},
		"stream-kept-long":  {"", []string{path, "--retention", "2h"}, 2 * time.Hour},
		"stream-kept-stdin": {text, nil, 0},
	} {
		have := enqueue(t, tt.stdin, append([]string{"stream", "--redis", server.Addr, "--queue", q}, tt.args...)...)
		expect.Need(t, have.status == cli.StatusOK, "%s: have %+v", q, have)
		for id, want := range map[string]time.Duration{"a": tt.a, "b": 9 * time.Second, "c": 0} {
			info := expect.Value(inspect(t, server).GetTaskInfo(q, id))(t)
			expect.Equal(t, q+" "+id, info.Retention, want)
		}
	}
}

// Lines of a file with one debounce leave one task, and the report says how many it has replaced.
func TestStreamDebounces(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	const q, lines = "stream-debounce", 150
	var text strings.Builder
	for i := range lines {
		fmt.Fprintf(&text, `{"kind":"order:audit","payload":{"order":"1","lines":%d},"debounce":"1","delay":"1h","max_delay":"1h"}`+"\n", i+1)
	}
	file := writeFile(t, "tasks.jsonl", text.String())
	want := file + ": done\n      150  tasks enqueued\n      149  tasks replaced, by later ones with the same debounce\n" +
		"        0  tasks were there already\n        0  refused\n"
	wantResult(t, result{want, "", cli.StatusOK}, enqueue(t, "", "stream", file, "--redis", server.Addr, "--queue", q))
	left, err := inspect(t, server).ListScheduledTasks(q)
	expect.That(t, err == nil && len(left) == 1 && string(left[0].Payload) == `{"order":"1","lines":150}`, "want the last one left, have %+v, %v", left, err)
}

func TestStreamInputFault(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	var out, errs bytes.Buffer
	in := io.MultiReader(strings.NewReader(`{"kind":"order:audit","payload":{"order":"1"}}`+"\n"), faulty{broken})
	a := &app{stdin: in, stdout: &out, stderr: &errs}
	status := a.run(t.Context(), []string{"stream", "--dry-run"})
	want := result{"-: not checked to its end\n        1  tasks would be enqueued\n        0  refused\n", "enqueue: line 2: disk on fire\n", cli.StatusFault}
	wantResult(t, want, result{out.String(), errs.String(), status})
}

// A faulty reader has nothing but an error.
type faulty struct{ err error }

func (f faulty) Read([]byte) (int, error) { return 0, f.err }
