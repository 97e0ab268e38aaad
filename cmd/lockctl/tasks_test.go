package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// An operator lists the tasks that wait, takes some out of their line, and has one of them run again. One that runs stays.
func TestTasks(t *testing.T) {
	t.Parallel()
	b := busy(t)
	b.enqueue(t, "other", "order:2")
	var all []listed
	expect.Eventually(t, "two tasks wait for order:1", func() bool {
		all, _ = answer[[]listed](t, b, "tasks", "order:1")
		return len(all) == 2
	})
	expect.That(t, all[0].Task.ID == "second" && all[0].Position == 1 && all[1].Task.ID == "third" && all[1].Position == 2 && all[1].State == inspect.StateWaiting && all[1].Resource == "order:1", "want second and third in their order, have %+v", all)
	for _, verb := range []string{"archive", "delete"} {
		b.says(t, "", verb+" first --reason drill --yes", cli.StatusFault, "nothing has changed: task \"first\": a worker has it")
		b.says(t, "no\n", verb+" third --reason drill", cli.StatusFault, "nothing has changed")
	}
	b.says(t, "", "run second", cli.StatusFault, waitsInLine)
	b.says(t, "yes\n", "archive second --reason drill --by alice", cli.StatusOK, "second is archived, by alice: drill.\n…by=alice reason=drill")
	b.says(t, "", "delete third --reason drill --yes", cli.StatusOK, "third is deleted, by ")
	expect.Eventually(t, "the line is empty", func() bool {
		one, _ := answer[shown](t, b, "show", "order:1")
		return one.Lock.Waiting == 0
	})
	if all, _ := answer[[]listed](t, b, "tasks", "order:1"); len(all) != 1 || all[0].State != inspect.StateArchived || all[0].Error != "" {
		t.Errorf("want the archived one, which has not failed, have %+v", all)
	}
	b.letOneSucceed(t) // first, or other
	b.letOneSucceed(t)
	b.says(t, "", "run second", cli.StatusOK, "second is pending, by ")
	b.letOneSucceed(t)
	expect.Eventually(t, "second has run, and third has not", func() bool { return b.runs("second") == 1 && b.runs("third") == 0 })
}

// An archived task, which somebody has to see to, is listed however many tasks wait.
func TestTasksListsArchivedOnesFirst(t *testing.T) {
	t.Parallel()
	b := busy(t)
	b.enqueue(t, "later", "order:2", queue.Options{Delay: time.Hour})
	b.says(t, "", "archive later --reason drill --yes", cli.StatusOK, "later is archived")
	have := b.run(t, "", "tasks", "--count", "1", "--json")
	expect.That(t, strings.Contains(have.out, `"later"`) && !strings.Contains(have.out, `"second"`) && strings.Contains(have.err, "there are more tasks"), "want the archived one alone, and a note that there are more, have %+v", have)
}

// A message that asynq cannot read hides no other tasks: not those of later pages.
func TestTasksBehindOneThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := busy(t)
	pipe := b.rdb.Pipeline()
	for i := range 150 {
		m := taskredis.Message{Type: "test:job", ID: fmt.Sprint("archived-", i), Queue: "default"}
		message := m.Encode()
		if i == 60 { // on the first page, whichever end of the archive that shows
			message = []byte("\xff")
		}
		pipe.HSet(t.Context(), taskredis.TaskKey("default", m.ID), "msg", message, "state", "archived")
		pipe.ZAdd(t.Context(), "asynq:{default}:archived", redis.Z{Score: float64(1_800_000_000 + i), Member: m.ID})
	}
	expect.OK(t, expect.Err(pipe.Exec(t.Context())))
	all, _ := answer[[]listed](t, b, "tasks", "--count", "1000")
	archived := slices.DeleteFunc(all, func(l listed) bool { return l.State != inspect.StateArchived })
	expect.That(t, len(archived) == 149, "want 149 archived tasks, have %d", len(archived))
}

// An ending is an inspector that finds all tasks completed.
type ending struct{ inspector }

func (e ending) Why(ctx context.Context, queueName, id string) (inspect.Explanation, error) {
	found, err := e.inspector.Why(ctx, queueName, id)
	found.State = inspect.StateCompleted
	return found, err
}

// A task that succeeds while the list is made is in none of the states that it is about.
func TestTasksThatEndMeanwhile(t *testing.T) {
	t.Parallel()
	b := busy(t)
	var out, errs bytes.Buffer
	a := newApp(strings.NewReader(""), &out, &errs, []string{"SIDING_REDIS_ADDRS=" + b.at.Addr})
	a.open = func(ctx context.Context, settings config.Config, zone *time.Location) (*connection, error) {
		c, err := open(ctx, settings, zone)
		if err == nil {
			c.inspector = ending{c.inspector}
		}
		return c, err
	}
	if status := a.run(t.Context(), []string{"tasks", "--json"}); status != cli.StatusOK || strings.TrimSpace(out.String()) != "[]" {
		t.Errorf("want none, have %s%s, %d", &out, &errs, status)
	}
}

// A task of a plain asynq client names no resource. Its lock does, also one in an external store.
func TestTasksWithoutAHeader(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]lock.Store{"redis": nil, "external store": locktest.NewMemory()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t)
			b.serveWith(t, store)
			client := asynq.NewClientFromRedisClient(b.rdb)
			for n, want := range []inspect.State{inspect.StateRunning, inspect.StateWaiting} {
				id := []string{"first", "second"}[n]
				_, err := client.EnqueueContext(t.Context(), asynq.NewTask("test:job", []byte(`{"res":"order:1"}`)), asynq.TaskID(id))
				expect.OK(t, err)
				b.awaitState(t, id, want)
			}
			if all, _ := answer[[]listed](t, b, "tasks", "order:1"); len(all) != 1 || all[0].Task.ID != "second" || all[0].Resource != "order:1" {
				t.Errorf("want the one that waits, have %+v", all)
			}
		})
	}
}

// What has become of a task while the operator thinks counts. One that has succeeded does not run again.
func TestChangeOfATaskThatHasChanged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		verb  string
		fails error
		state inspect.State // in which it is when the operator says yes
		want  string
	}{
		"succeeded":                     {"archive", nil, inspect.StateCompleted, "it has succeeded"},
		"stops a line":                  {"delete", errors.New("no such order"), inspect.StateArchived, `the task "later" holds the line of order:1`},
		"stops a line that would go on": {"archive", errors.New("no such order"), inspect.StateArchived, `task "later": it has run meanwhile`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t)
			if tt.fails != nil {
				b.fail.Store("later", tt.fails)
			}
			b.serve(t)
			b.enqueue(t, "later", "order:1", queue.Options{Delay: time.Hour, Retries: queue.NoRetries, Retention: time.Hour, Policy: &queue.Policy{OnFailure: queue.OnFailureStop}})
			have := b.after(t, func() {
				b.says(t, "", "run later", cli.StatusOK, "later is pending")
				if tt.fails == nil {
					b.letOneSucceed(t)
				}
				b.awaitState(t, "later", tt.state)
			}, tt.verb, "later", "--reason", "drill")
			expect.That(t, have.status == cli.StatusFault && strings.Contains(have.err, "nothing has changed: ") && strings.Contains(have.err, tt.want), "want %q, have %+v", tt.want, have)
			if tt.fails == nil {
				b.says(t, "", "run later", cli.StatusFault, `nothing has changed: task "later": it has succeeded`)
			}
			b.awaitState(t, "later", tt.state)
		})
	}
}

// awaitState waits until a task is in a state.
func (b *testbed) awaitState(t *testing.T, id string, want inspect.State) {
	t.Helper()
	expect.Eventually(t, id+" is "+string(want), func() bool {
		e, _ := answer[inspect.Explanation](t, b, "why", id)
		return e.State == want
	})
}

// What an operator changes is in the log, whatever its level: some reasons are nowhere else.
func TestRecordsWhateverTheLevel(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.serve(t)
	b.enqueue(t, "later", "order:2", queue.Options{Delay: time.Hour})
	for _, c := range []struct{ line, want string }{
		{"limit set order:1 0 --reason drill --by alice", `msg="an operator has changed a limit" resource=order:1 outcome=paused by=alice reason=drill`},
		{"limit set order:* 2 --rate 9/1s --reason drill --by alice", `resource=order:* outcome="at most 2 holders, 9/1s" by=alice reason=drill`},
		{"limit unset order:1", `msg="an operator has changed a limit" resource=order:1 outcome=unset by=`},
		{"archive later --reason drill --by alice --yes", `msg="an operator has changed a task" task_id=later queue=default resource=order:2 outcome=archived by=alice reason=drill`},
		{"queue pause default --reason drill --by alice --yes", `queue=default outcome=paused by=alice reason=drill`},
	} {
		b.says(t, "", "--log-level error "+c.line, cli.StatusOK, "level=WARN …"+c.want)
	}
}

// An operator pauses a queue, and resumes it.
func TestQueuePause(t *testing.T) {
	t.Parallel()
	b := busy(t)
	b.says(t, "", "queue resume default", cli.StatusFault, `nothing has changed: the queue "default" is not paused`)
	b.says(t, "yes\n", "queue pause default --reason drill --by alice", cli.StatusOK, "default: paused by alice; …by=alice reason=drill")
	b.says(t, "", "queue pause default --reason drill --yes", cli.StatusFault, `nothing has changed: the queue "default" is paused already`)
	b.says(t, "", "doctor", cli.StatusOK, "warning  queues: default is paused, and 2 tasks wait there\n")
	b.says(t, "", "queue pause defalt --reason drill --yes", cli.StatusFault, `there is no queue "defalt"`)
	if info, err := asynq.NewInspectorFromRedisClient(b.rdb).GetQueueInfo("default"); err != nil || !info.Paused {
		t.Errorf("want it paused, have %+v, %v", info, err)
	}
	expect.OK(t, b.rdb.SAdd(t.Context(), "asynq:queues", "a\x1b[2J").Err())
	b.says(t, "", "queue pause a\x1b[2J --reason drill --yes", cli.StatusOK, "`lockctl queue resume 'a\\x1b[2J'` resumes it")
	if done, status := answer[queued](t, b, "queue", "resume", "default"); status != cli.StatusOK || done.Outcome != "resumed" || done.Queue != "default" {
		t.Errorf("resume: have %+v, %d", done, status)
	}
}
