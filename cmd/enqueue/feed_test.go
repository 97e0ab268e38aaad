package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/orders"
)

// numbered yields so many items for each of the lines, and calls at before each line.
func numbered(q string, lines, each int, at func(line int)) source {
	return func(yield func(orders.Job, error) bool) {
		for line := 1; line <= lines; line++ {
			at(line)
			for part := range each {
				opts := &queue.Options{Queue: q, TaskID: fmt.Sprintf("%d-%d", line, part)}
				if !yield(orders.Job{Job: queue.Job{Task: tasks.AuditOrder{Order: "1"}, Options: opts}, Line: line, Through: line}, nil) {
					return
				}
			}
		}
	}
}

func never(int) {}

// At whatever line a run is interrupted, its checkpoint is at the end of a line. Nothing behind the
// checkpoint is left out, and nothing before it is done again.
func TestFeedInterruptedAnywhere(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	const lines, each = 260, 3
	for stop := 1; stop <= lines; stop += 37 {
		t.Run(fmt.Sprint(stop), func(t *testing.T) {
			t.Parallel()
			q := fmt.Sprintf("feed-interrupted-%d", stop)
			mark := newCheckpoint(client, "test", q, "c0ffee")
			ctx, interrupt := context.WithCancel(t.Context())
			first := &report{}
			f := feeder{client: newClient(t, client), queues: make(map[string]bool), mark: mark, report: first}
			err := f.run(ctx, numbered(q, lines, each, func(line int) {
				if line == stop {
					interrupt()
				}
			}))
			expect.Need(t, errors.Is(err, errInterrupted) && !first.Complete, "want it interrupted, have %v and %+v", err, first)
			if have, err := mark.load(t.Context()); have != first.Through || err != nil {
				t.Errorf("checkpoint: want %d as in the report, have %d (%v)", first.Through, have, err)
			}
			if have := pending(t, client, q); have != each*first.Through || have != first.Enqueued {
				t.Errorf("want all tasks up to line %d and no more, have %d", first.Through, have)
			}
			second := &report{}
			f.report = second
			expect.OK(t, f.run(t.Context(), numbered(q, lines, each, never)))
			want := &report{
				Complete: true, Through: lines, ResumedAfter: first.Through,
				Enqueued: each*lines - first.Enqueued, AlreadyThere: first.Enqueued,
			}
			expect.Same(t, "second report", second, want, cmpopts.IgnoreUnexported(report{}))
			expect.Equal(t, "tasks", pending(t, client, q), each*lines)
		})
	}
}

// A line that an earlier run refused is refused again. A deadline that has passed since its line
// was enqueued is no reason.
func TestFeedRecallsRefusals(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	const q = "feed-refusals"
	mark := newCheckpoint(client, "test", q, "c0ffee")
	expect.OK(t, mark.save(t.Context(), 3))
	job := func(opts queue.Options) queue.Job {
		opts.Queue = q
		return queue.Job{Task: tasks.AuditOrder{Order: "1"}, Options: &opts}
	}
	past := time.Now().Add(-time.Minute)
	items := func(yield func(orders.Job, error) bool) {
		for i, job := range []queue.Job{
			job(queue.Options{Deadline: past}),
			job(queue.Options{Timeout: time.Millisecond}),
			{},
			job(queue.Options{Deadline: past}),
			job(queue.Options{}),
		} {
			var err error
			if job.Task == nil {
				err = &orders.LineError{Line: i + 1, Want: "bad"}
			}
			if !yield(orders.Job{Job: job, Line: i + 1, Through: i + 1}, err) {
				return
			}
		}
	}
	have := &report{}
	f := feeder{client: newClient(t, client), queues: make(map[string]bool), mark: mark, report: have}
	expect.OK(t, f.run(t.Context(), items))
	var why []string
	for _, r := range have.Refusals {
		why = append(why, fmt.Sprint(r.Line, " ", strings.Split(r.Why, ": want")[0]))
	}
	expect.Same(t, "refusals", why, []string{"2 order:audit: timeout", "3 bad", "4 order:audit: deadline"})
	expect.That(t, have.AlreadyThere == 1 && have.Enqueued == 1 && have.Refused == 3, "want 1 there already, 1 enqueued and 3 refused, have %+v", have)
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	mark := newCheckpoint(client, "test", "checkpoint", "c0ffee")
	ctx := t.Context()
	for _, c := range []struct{ save, want int }{{0, 0}, {7, 7}, {5, 7}, {9, 9}, {9, 9}, {1 << 40, 1 << 40}} {
		expect.OK(t, mark.save(ctx, c.save))
		have, err := mark.load(ctx)
		expect.That(t, have == c.want && err == nil, "after %d: want %d, have %d (%v)", c.save, c.want, have, err)
	}
	// Every save is followed by the whole time, also one that moves nothing.
	for _, line := range []int{5, 1 << 41} {
		expect.OK(t, client.Expire(ctx, mark.key, time.Minute).Err())
		expect.OK(t, mark.save(ctx, line))
		if have := client.TTL(ctx, mark.key).Val(); have < checkpointAge-time.Minute || have > checkpointAge {
			t.Errorf("want it kept for %v, have %v", checkpointAge, have)
		}
	}
	for _, other := range []*checkpoint{
		newCheckpoint(client, "other", "checkpoint", "c0ffee"), newCheckpoint(client, "test", "other", "c0ffee"), newCheckpoint(client, "test", "checkpoint", "other"),
	} {
		if have, err := other.load(ctx); have != 0 || err != nil {
			t.Errorf("%s: want 0, have %d (%v)", other.key, have, err)
		}
	}
	expect.OK(t, mark.forget(ctx))
	if have, err := mark.load(ctx); have != 0 || err != nil {
		t.Errorf("forgotten: want 0, have %d (%v)", have, err)
	}
	for _, rubbish := range []string{"rubbish", "-1", ""} {
		expect.OK(t, client.Set(ctx, mark.key, rubbish, 0).Err())
		if _, err := mark.load(ctx); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("key %q: want a line number, have %q; --restart forgets it", mark.key, rubbish)) {
			t.Errorf("%q: want an error that says what to do, have %v", rubbish, err)
		}
	}
}

// A file that changes between the two times it is read must not pass as done.
func TestFileChangedWhileRead(t *testing.T) {
	t.Parallel()
	const text = `{"kind":"order:audit","payload":{"order":"1"}}` + "\n"
	before := expect.Value(fingerprint(t.Context(), strings.NewReader(text)))(t)
	for now, want := range map[string]error{text: nil, text + text: errors.New("line 3: the file was changed while it was being read")} {
		r := &report{}
		items := streamDecoder{content: before}.jobs(unchanged{strings.NewReader(now), sha256.New(), before}, false)
		err := (&feeder{report: r}).run(t.Context(), items)
		expect.That(t, fmt.Sprint(err) == fmt.Sprint(want) && r.Complete == (want == nil), "want %v, have %v and %+v", want, err, r)
	}
}

// What is added to a file while it is read is no part of it. Else all its tasks would come again, under other ids, with the next run.
func TestFileThatGrows(t *testing.T) {
	t.Parallel()
	have, _, err := readTwice(t, os.O_APPEND)
	expect.OK(t, err)
	expect.Equal(t, "text", have, "a\n")
}

func TestFileThatChanges(t *testing.T) {
	t.Parallel()
	_, content, err := readTwice(t, 0)
	expect.Is(t, "a file that was changed", err, errChanged)
	end := verdict(input{content: content}, &report{Through: 7}, fmt.Errorf("line 8: %w", err))
	const want = "line 8: the file was changed while it was being read; all up to line 7 is enqueued as it was, and another run enqueues all lines anew"
	expect.Equal(t, "verdict", fmt.Sprint(end), want)
}

// The advice after a fault goes on where the run ended, also if that has begun anew.
func TestAdviceAfterAFault(t *testing.T) {
	t.Parallel()
	for restart, want := range map[bool]string{
		false: "interrupted; run the same command again to go on behind line 7",
		true:  "interrupted; run the same command without --restart to go on behind line 7",
	} {
		end := verdict(input{content: content{hash: "c0ffee"}, restart: restart}, &report{Through: 7}, errInterrupted)
		expect.Equal(t, "verdict", fmt.Sprint(end), want)
	}
}

// readTwice reads a file of the line a in between whose two readings somebody has opened it with a flag, and written a line.
func readTwice(t *testing.T, flag int) (string, content, error) {
	t.Helper()
	path := writeFile(t, "tasks", "a\n")
	f := expect.Value(os.Open(path))(t)
	defer f.Close()
	text, content, err := twice(t.Context(), f, func(r io.Reader) (io.Reader, error) { return r, nil })
	expect.OK(t, err)
	other := expect.Value(os.OpenFile(path, os.O_WRONLY|flag, 0))(t)
	defer other.Close()
	expect.OK(t, expect.Err(other.WriteString("b\n")))
	have, err := io.ReadAll(text)
	return string(have), content, err
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	have, err := fingerprint(t.Context(), strings.NewReader("a\nb\nc"))
	want := content{hash: "ea7fb08b7a2dc4619ffb7c7bb38d95a2047935fa165d71b12efd3852a2e6d0cc", lines: 2}
	expect.That(t, err == nil && have == want && have.short() == "ea7fb08b7a2dc461", "want %+v, have %+v (%v)", want, have, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	silent, _ := io.Pipe()
	t.Cleanup(func() { _ = silent.Close() })
	expect.Is(t, "fingerprint", expect.Err(fingerprint(ctx, silent)), errInterrupted)
}

// A last line without a line end counts as dealt with, also if the line is refused.
func TestFeedGoesToTheLastLine(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	dir := t.TempDir()
	for name, last := range map[string]string{"refused": "{}", "refused-and-ended": "{}\n", "good": `{"kind":"order:audit","payload":{"order":"2"}}`} {
		path := filepath.Join(dir, name)
		text := `{"kind":"order:audit","payload":{"order":"1"}}` + "\n" + last
		expect.OK(t, os.WriteFile(path, []byte(text), 0o600))
		for range 2 {
			var out bytes.Buffer
			a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: io.Discard}
			a.run(t.Context(), []string{"stream", path, "--redis", server.Addr, "--queue", "last-line", "--json"})
			expect.That(t, strings.Contains(out.String(), `"complete":true,"through":2`), "%s: want it complete through line 2, have %s", name, out.String())
		}
	}
}

// newClient returns a client without shards.
func newClient(t *testing.T, rdb redis.UniversalClient) *queue.Client {
	t.Helper()
	client := expect.Value(queue.NewClient(rdb, queue.ClientConfig{}))(t)
	return client
}
