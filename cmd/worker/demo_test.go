package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/tasks"
)

// demoLimit is far above the few seconds that a demo takes. With the race detector on a busy
// machine a demo can take a minute.
const demoLimit = 4 * time.Minute

func TestDemoOnce(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	w := start(t, "--demo", "--once", "--json", "--work", "2ms", "--http", "127.0.0.1:0", "--embedded-port", port(t, vacant(t)))
	if have := w.wait(t, demoLimit); have != exitOK {
		t.Fatalf("want exit status 0, have %d", have)
	}
	text := w.stdout.String()
	expect.Need(t, strings.Count(text, "\n") == 1 && strings.HasSuffix(text, "\n"), "want one line on standard output, have %q", text)
	var have map[string]any
	expect.OK(t, json.Unmarshal([]byte(text), &have))
	number := func(key string) float64 {
		n, ok := have[key].(float64)
		if !ok {
			t.Errorf("want a number as %s, have %v", key, have[key])
		}
		delete(have, key)
		return n
	}
	tasks, succeeded, archived := number("tasks"), number("succeeded"), number("archived")
	contended, parked := number("contended"), number("parked")
	expect.That(t, tasks >= 500 && succeeded == tasks && archived == 0, "want at least 500 tasks, all succeeded, none archived, have %v, %v, %v", tasks, succeeded, archived)
	expect.That(t, contended >= 50 && parked >= contended, "want contention worth watching, have %v contended, parked %v times", contended, parked)
	expect.That(t, have["ledger_ok"] == true && len(have) == 1, "want ledger_ok and nothing else left, have %v", have)
}

// While tasks wait, the dashboard shows them in the Retry tab, with the reason. A
// task that an operator archives makes the demo a failure that says so.
func TestDemoOnceFails(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	redisPort := port(t, vacant(t))
	w := start(t, "--demo", "--once", "--json", "--work", "20ms", "--http", "127.0.0.1:0", "--embedded-port", redisPort)
	var url []string
	expect.Eventually(t, "the demo has begun", func() bool {
		url = regexp.MustCompile(`dashboard: (http://\S+)/`).FindStringSubmatch(w.stderr.String())
		return url != nil
	})
	inspector := asynq.NewInspectorFromRedisClient(client(t, "127.0.0.1:"+redisPort))
	expect.Eventually(t, "a task archived", func() bool {
		// A task far back in the queue, lest it runs meanwhile.
		pending, err := inspector.ListPendingTasks(demoQueue, asynq.PageSize(1), asynq.Page(500))
		return err == nil && len(pending) == 1 && inspector.ArchiveTask(demoQueue, pending[0].ID) == nil
	})
	reason := regexp.MustCompile(`"error_message":"waits for [a-z]+:[^"]+, [^"]+"`)
	expect.Eventually(t, "a waiting task with its reason", func() bool {
		return reason.MatchString(get(t, url[1]+"/api/queues/default/retry_tasks"))
	})
	expect.Equal(t, "exit status", w.wait(t, demoLimit), exitFault)
	wantTexts(t, w.stdout.String(), `"archived":1,`, `"ledger_ok":false`)
	wantTexts(t, w.stderr.String(), "worker: want all ", "(1 archived)")
}

// A demo whose port is taken takes another, serves until it is asked to end,
// and leaves nothing behind.
func TestDemoServesUntilItIsStopped(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	taken := occupy(t)
	w := start(t, "--demo", "--work", "2ms", "--http", taken, "--embedded-port", port(t, vacant(t)))
	ctx, cancel := context.WithTimeout(t.Context(), demoLimit)
	defer cancel()
	err := expect.Until(ctx, func() error {
		if !strings.Contains(w.stderr.String(), "still serving") {
			return errors.New("the demo is not done")
		}
		return nil
	})
	expect.OK(t, err)
	wantTexts(t, w.stderr.String(), taken+" is taken")
	wantTexts(t, w.stdout.String(), "succeeded", "contended", "agrees with a recomputation")

	url := regexp.MustCompile(`dashboard (http://\S+)/,`).FindStringSubmatch(w.stderr.String())
	expect.Need(t, url != nil && !strings.Contains(url[1], taken), "want the address of the dashboard, have %v", url)
	reply := get(t, url[1]+"/api/queues/default")
	var have struct {
		Current struct{ Completed, Size int }
	}
	expect.OK(t, json.Unmarshal([]byte(reply), &have))
	expect.That(t, have.Current.Completed >= 500 && have.Current.Completed == have.Current.Size, "want all tasks shown as completed, have %s", reply)
	w.end(t, 30*time.Second)
}

func TestDemoOnceInterrupted(t *testing.T) {
	t.Parallel()
	p := launch(t, "--demo", "--once", "--json", "--work", "1s", "--http", "127.0.0.1:0", "--embedded-port", port(t, vacant(t)), "--shutdown-timeout", "100ms")
	expect.Eventually(t, "the demo has begun", func() bool { return strings.Contains(p.Stderr.String(), "dashboard: ") })
	p.Signal(t, os.Interrupt)
	expect.Equal(t, "exit status", p.Wait(t, 30*time.Second), exitFault)
	wantTexts(t, p.Stderr.String(), "interrupted")
	expect.Equal(t, "standard output", p.Stdout.String(), "")
	// The temporary folder of the demo is in the process's own.
	left, err := filepath.Glob(filepath.Join(p.Cmd.Dir, "siding-demo-*"))
	expect.That(t, err == nil && len(left) <= 0, "want its ledger removed, have %v, %v", left, err)
}

// A demo whose tasks stall, as after a visitor has paused the queue, says so and goes on. With --once it fails.
func TestDemoStalls(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	enqueue(t, rdb, demoQueue, "7001")
	const want = "demo: no task has ended for 1ms: 0 of 1 are done, 0 wait, 0 run"
	var log proc.Output
	d := &demo{app: &app{stderr: &log, flags: flags{once: true, work: time.Millisecond}}, redis: rdb, total: 1}
	if _, err := d.watch(t.Context()); err == nil || err.Error() != want {
		t.Errorf("--once: want %q, have %v", want, err)
	}
	d.flags.once = false
	ctx, end := context.WithTimeout(t.Context(), time.Second) // ten looks
	defer end()
	expect.Is(t, "the end", expect.Err(d.watch(ctx)), context.DeadlineExceeded)
	expect.Equal(t, "what it says", log.String(), want+"; still serving, until Ctrl-C\n")
}

func TestResultOfAWrongLedger(t *testing.T) {
	t.Parallel()
	err := result{Tasks: 3, Succeeded: 3, differences: "order 7001: 2 lines, want 3"}.err()
	expect.That(t, err != nil && strings.Contains(err.Error(), "order 7001"), "want an error with the difference, have %v", err)
}

// The demo shows each kind of task.
func TestSampleJobs(t *testing.T) {
	t.Parallel()
	jobs := expect.Value(sampleJobs(sample, demoQueue))(t)
	kinds := map[string]int{}
	for _, job := range jobs {
		kinds[job.Task.Kind()]++
	}
	for _, kind := range tasks.Kinds() {
		if kinds[kind] < 10 {
			t.Errorf("want ten tasks of kind %s or more, have %d", kind, kinds[kind])
		}
	}
}

// get returns the body of a page that answers 200.
func get(t *testing.T, url string) string {
	t.Helper()
	status, body := fetch(t, url)
	expect.Need(t, status == http.StatusOK, "%s: want 200, have %d %s", url, status, body)
	return body
}

// fetch returns the status and the body of a page.
func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r := expect.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
	r.Close = true // leave no connection behind
	reply := expect.Value(http.DefaultClient.Do(r))(t)
	defer func() { _ = reply.Body.Close() }()
	text := expect.Value(io.ReadAll(reply.Body))(t)
	return reply.StatusCode, string(text)
}
