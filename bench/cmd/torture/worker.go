package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/journal"
)

// workerCommand is the first argument of this program as a worker process.
const workerCommand = "worker"

// ready is what a worker process prints once it takes tasks.
const ready = "ready\n"

// drainTimeout is what a worker gets to end its tasks on SIGTERM: more than any task takes.
const drainTimeout = 8 * time.Second

// asked reports whether this process is a worker.
func asked() bool { return len(os.Args) > 1 && os.Args[1] == workerCommand }

// work is what a worker process does, until ctx ends.
func work(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var s setting
	if len(args) != 2 {
		return fmt.Errorf("want %s and its setting, have %q", workerCommand, args)
	}
	if err := json.Unmarshal([]byte(args[1]), &s); err != nil {
		return err
	}
	chosen, err := contest.Choose(contenders(), s.Contender)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(s.Plan)
	if err != nil {
		return err
	}
	var tasks []task
	if err := json.Unmarshal(text, &tasks); err != nil {
		return err
	}
	records, err := journal.Open(s.Journal)
	if err != nil {
		return err
	}
	q, err := chosen[0].open(ctx, s.config(func(ctx context.Context, task, charged int, fence int64) error {
		job := journal.Job{Task: task, Charged: charged, Fence: fence, Work: time.Duration(tasks[task].Work) * time.Millisecond}
		return records.Work(ctx, job)
	}))
	if err == nil {
		err = q.Start(context.WithoutCancel(ctx))
	}
	if err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, ready); err != nil {
		return err
	}
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout+time.Second)
	defer cancel()
	return q.Stop(stopping)
}
