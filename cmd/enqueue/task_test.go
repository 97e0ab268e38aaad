package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// An error for a task that is not valid names field and value. It comes before any call to Redis:
// there is none at the address.
func TestTaskRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		stdin string
		want  string
	}{
		"unknown kind":     {[]string{"order:adit", "--payload", "{}"}, "", `--resource: want one with the kind "order:adit", which is none of ` + strings.Join(tasks.Kinds(), ", ") + `, have nothing`},
		"not JSON":         {[]string{"order:audit", "--payload", "{"}, "", "order:audit: payload: want a JSON object: unexpected EOF"},
		"nothing at stdin": {[]string{"order:audit", "--payload", "-"}, "", "order:audit: payload: want a JSON object: EOF"},
		"half a second":    {[]string{"order:audit", "--payload", `{"order":"1"}`, "--timeout", "500ms"}, "", `order:audit: timeout: want whole seconds, 1 or more, have "500ms"`},
		"delay and time":   {[]string{"order:audit", "--payload", `{"order":"1"}`, "--delay", "5s", "--at", "2999-01-01T00:00:00Z"}, "", `order:audit: delay: want either a delay or a time, not both, have "5s"`},
		"deadline gone":    {[]string{"order:audit", "--payload", `{"order":"1"}`, "--deadline", "2001-01-01T00:00:00Z"}, "", `order:audit: deadline: want a time to come, have "2001-01-01T00:00:00Z"`},
		"debounce alone":   {[]string{"order:audit", "--payload", `{"order":"1"}`, "--debounce", "1"}, "", `order:audit: delay: want whole seconds, 1 or more, of a task with a debounce, have "0s"`},
		"queue":            {[]string{"order:audit", "--payload", `{"order":"1"}`, "--queue", "{q}"}, "", `order:audit: queue: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "{q}"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"task", "--redis", "127.0.0.1:1"}, c.args...)
			wantResult(t, result{"", "enqueue: " + c.want + "\n", exitRefused}, enqueue(t, c.stdin, args...))
		})
	}
}

// A payload from a file or a pipe, which may have no end, is read no further than a line of a stream.
func TestTaskOfALongPayload(t *testing.T) {
	t.Parallel()
	const payload = `{"order":"1"}`
	text := strings.Repeat(" ", maxStreamLine-len(payload)) + payload
	want := fmt.Sprintf("enqueue: --payload: want less than %d bytes\nRun 'enqueue task --help' for usage.\n", maxStreamLine)
	command := []string{"task", "order:audit", "--dry-run", "--payload"}
	wantResult(t, result{"", want, cli.StatusUsage}, enqueue(t, text, append(command, "-")...))
	wantResult(t, result{"", want, cli.StatusUsage}, enqueue(t, "", append(command, "@"+writeFile(t, "long.json", text))...))
	wantResult(t, result{"order:audit is valid\n", "", cli.StatusOK}, enqueue(t, text[1:], append(command, "-")...))
}

func TestTaskDryRun(t *testing.T) {
	t.Parallel()
	args := []string{"task", "order:audit", "--redis", "127.0.0.1:1", "--dry-run", "--payload", `{"order":"1"}`}
	wantResult(t, result{"order:audit is valid\n", "", cli.StatusOK}, enqueue(t, "", args...))
	args = append(args, "--json", "--id", "x", "--queue", "q")
	wantResult(t, result{`{"id":"x","queue":"q","dry_run":true}` + "\n", "", cli.StatusOK}, enqueue(t, "", args...))
}

func TestTaskEnqueued(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	const q = "task-enqueued"
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	file := writeFile(t, "payload.json", `{"order":"536365"}`)
	plain := asynq.TaskInfo{State: asynq.TaskStatePending, MaxRetry: 25, Timeout: 30 * time.Minute}
	for name, c := range map[string]struct {
		args  []string
		stdin string
		want  asynq.TaskInfo
	}{
		"plain":      {[]string{"--payload", `{"order":"536365"}`}, "", plain},
		"from file":  {[]string{"--payload", "@" + file}, "", plain},
		"from stdin": {[]string{"--payload", "-"}, ` {"order": "536365"} `, plain},
		"all options": {
			[]string{"--payload", `{"order":"536365"}`, "--at", at.Format(time.RFC3339), "--retries", "3", "--timeout", "90s", "--deadline", at.Add(time.Hour).Format(time.RFC3339), "--retention", "1h", "--unique-for", "10s"},
			"",
			asynq.TaskInfo{State: asynq.TaskStateScheduled, MaxRetry: 3, Timeout: 90 * time.Second, Deadline: at.Add(time.Hour), NextProcessAt: at, Retention: time.Hour},
		},
		"no retries": {[]string{"--payload", `{"order":"536365"}`, "--retries", "0"}, "", asynq.TaskInfo{State: asynq.TaskStatePending, Timeout: 30 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := strings.ReplaceAll(name, " ", "-")
			args := append([]string{"task", "order:audit", "--redis", server.Addr, "--queue", q, "--id", id}, c.args...)
			wantResult(t, result{id + "\n", "", cli.StatusOK}, enqueue(t, c.stdin, args...))
			have := expect.Value(inspect(t, server).GetTaskInfo(q, id))(t)
			c.want.ID, c.want.Queue, c.want.Type, c.want.Payload = id, q, "order:audit", []byte(`{"order":"536365"}`)
			opt := cmpopts.EquateApproxTime(0)
			if c.want.State == asynq.TaskStatePending {
				opt = cmpopts.IgnoreFields(asynq.TaskInfo{}, "NextProcessAt") // now
			}
			expect.Same(t, "task as asynq sees it", have, &c.want, opt, cmpopts.IgnoreFields(asynq.TaskInfo{}, "Headers"), cmpopts.IgnoreUnexported(asynq.TaskInfo{}))
		})
	}
}

// An interrupt ends the program also while it waits for its stdin.
func TestTaskInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	stdin, typed := io.Pipe()
	defer typed.Close()
	var errs bytes.Buffer
	ended := make(chan int)
	go func() {
		a := &app{stdin: stdin, stdout: io.Discard, stderr: &errs}
		ended <- a.run(ctx, []string{"task", "order:audit", "--dry-run", "--payload", "-"})
	}()
	expect.Value(typed.Write([]byte("{")))(t) // returns once the program reads
	interrupt()
	select {
	case status := <-ended:
		wantResult(t, result{"", "enqueue: interrupted\n", cli.StatusFault}, result{"", errs.String(), status})
	case <-time.After(time.Minute): //nolint:forbidigo // only a test that fails waits for it
		t.Fatal("want the program ended by an interrupt")
	}
}

// The shards are those of the workers, who read the same settings.
func TestTaskIntoAShard(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	have := enqueueIn(t.Context(), []string{"SIDING_SHARDS=task-sharded=16"}, "",
		"task", "order:audit", "--redis", server.Addr, "--queue", "task-sharded", "--id", "x", "--json", "--payload", `{"order":"536365"}`)
	const want = `{"id":"x","queue":"task-sharded.015-`
	expect.That(t, strings.HasPrefix(have.out, want) && have.status == cli.StatusOK, "want %s..., have %+v", want, have)
	for _, dry := range []string{"--dry-run", "--dry-run=false"} {
		have = enqueueIn(t.Context(), []string{"SIDING_SHARDS=task-sharded=16"}, "",
			"task", "cash:move", "--redis", server.Addr, "--queue", "task-sharded", "--resource", "a", "--resource", "b", "--payload", `{}`, dry)
		expect.That(t, have.status == exitRefused && strings.Contains(have.err, "want one without shards"), "%s: want several resources refused there, have %+v", dry, have)
	}
}

func TestTaskDebounced(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	const q = "task-debounced"
	args := []string{"task", "order:audit", "--redis", server.Addr, "--queue", q, "--payload", `{"order":"1"}`, "--debounce", "1", "--delay", "1h", "--max-delay", "2h"}
	first := enqueue(t, "", args...)
	id := strings.TrimSpace(first.out)
	have := enqueue(t, "", append(args, "--json")...)
	if want := `"queue":"` + q + `","replaced":"` + id + `"}` + "\n"; id == "" || !strings.HasSuffix(have.out, want) || have.status != cli.StatusOK {
		t.Errorf("want ...%s, have %+v", want, have)
	}
	if n := server.Client(t).ZCard(t.Context(), "asynq:{"+q+"}:scheduled").Val(); n != 1 {
		t.Errorf("want one task, have %d", n)
	}
}

// A second task of the same id, or an equal one where that is asked for, is
// refused by Redis.
func TestTaskThereAlready(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	const q = "task-there"
	args := []string{"task", "order:audit", "--redis", server.Addr, "--queue", q, "--payload", `{"order":"1"}`}
	byID, byLike := append(args, "--id", "x"), append(args, "--unique")
	for want, args := range map[string][]string{queue.ErrTaskIDConflict.Error() + `: "x" in the queue "` + q + `"`: byID, queue.ErrDuplicate.Error(): byLike} {
		if have := enqueue(t, "", args...); have.status != cli.StatusOK {
			t.Errorf("first: want status 0, have %+v", have)
		}
		wantResult(t, result{"", "enqueue: order:audit: " + want + "\n", exitRefused}, enqueue(t, "", args...))
	}
	expect.Equal(t, "tasks", pending(t, server.Client(t), q), 2)
}
