package main

import (
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/poll"
)

// An operator lists the tasks that wait, takes some out of their line, and has one of them run again. One that runs stays.
func TestTasks(t *testing.T) {
	t.Parallel()
	b := busy(t)
	b.enqueue(t, "other", "order:2")
	var all []listed
	poll.Eventually(t, "two tasks wait for order:1", func() bool {
		all, _ = answer[[]listed](t, b, "tasks", "order:1")
		return len(all) == 2
	})
	if all[0].Task.ID != "second" || all[0].Position != 1 || all[1].Task.ID != "third" || all[1].Position != 2 || all[1].State != inspect.StateWaiting || all[1].Resource != "order:1" {
		t.Errorf("want second and third in their order, have %+v", all)
	}
	for _, verb := range []string{"archive", "delete"} {
		have := b.run(t, "", verb, "first", "--reason", "drill", "--yes")
		if have.status != cli.StatusFault || !strings.Contains(have.err, "nothing has changed: task \"first\": a worker has it") {
			t.Errorf("%s of a running task: want it refused, have %+v", verb, have)
		}
		if have := b.run(t, "no\n", verb, "third", "--reason", "drill"); have.status != cli.StatusFault || !strings.Contains(have.err, "nothing has changed") {
			t.Errorf("%s: want a question, have %+v", verb, have)
		}
	}
	if have := b.run(t, "", "run", "second"); have.status != cli.StatusFault || !strings.Contains(have.err, waitsInLine) {
		t.Errorf("run of a waiting task: want it refused, have %+v", have)
	}
	if have := b.run(t, "yes\n", "archive", "second", "--reason", "drill", "--by", "alice"); have.status != cli.StatusOK || !strings.Contains(have.out, "second is archived, by alice: drill.\n") || !strings.Contains(have.err, "by=alice reason=drill") {
		t.Errorf("archive: have %+v", have)
	}
	if have := b.run(t, "", "delete", "third", "--reason", "drill", "--yes"); have.status != cli.StatusOK {
		t.Errorf("delete: have %+v", have)
	}
	poll.Eventually(t, "the line is empty", func() bool {
		one, _ := answer[shown](t, b, "show", "order:1")
		return one.Lock.Waiting == 0
	})
	if all, _ := answer[[]listed](t, b, "tasks", "order:1"); len(all) != 1 || all[0].State != inspect.StateArchived {
		t.Errorf("want the archived one, have %+v", all)
	}
	b.finish <- struct{}{} // first, or other
	b.finish <- struct{}{}
	if have := b.run(t, "", "run", "second"); have.status != cli.StatusOK {
		t.Errorf("run: have %+v", have)
	}
	b.finish <- struct{}{}
	poll.Eventually(t, "second has run, and third has not", func() bool { return b.runs("second") == 1 && b.runs("third") == 0 })
}

// An operator pauses a queue, and resumes it.
func TestQueuePause(t *testing.T) {
	t.Parallel()
	b := busy(t)
	if have := b.run(t, "", "queue", "resume", "default"); have.status != cli.StatusFault || !strings.Contains(have.err, `nothing has changed: the queue "default" is not paused`) {
		t.Errorf("want nothing to resume, have %+v", have)
	}
	if have := b.run(t, "yes\n", "queue", "pause", "default", "--reason", "drill", "--by", "alice"); have.status != cli.StatusOK || !strings.HasPrefix(have.out, "default: paused by alice; ") {
		t.Fatalf("pause: have %+v", have)
	}
	if info, err := asynq.NewInspectorFromRedisClient(b.rdb).GetQueueInfo("default"); err != nil || !info.Paused {
		t.Errorf("want it paused, have %+v, %v", info, err)
	}
	have := b.run(t, "", "queue", "pause", "defalt", "--reason", "drill", "--yes")
	if have.status != cli.StatusFault || !strings.Contains(have.err, `there is no queue "defalt"`) {
		t.Errorf("want no such queue, have %+v", have)
	}
	if done, status := answer[queued](t, b, "queue", "resume", "default"); status != cli.StatusOK || done.Outcome != "resumed" || done.Queue != "default" {
		t.Errorf("resume: have %+v, %d", done, status)
	}
}
