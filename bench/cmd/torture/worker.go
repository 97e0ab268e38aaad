package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/judge"
	"github.com/sidingq/siding/bench/internal/system"
	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/internal/sleep"
)

// What a process of a contender is for, in Go and in Node: its first argument. The second is its setting.
const (
	// working takes tasks until SIGTERM, and prints ready once it does.
	working = "work"
	// enqueueing ends when all tasks are enqueued.
	enqueueing = "enqueue"
	// counting prints how many tasks the queue has left.
	counting = "left"
)

const ready = "ready\n"

// drainTimeout is what a worker gets to end its tasks on SIGTERM: more than any task takes.
const drainTimeout = 8 * time.Second

// asked reports whether this process is one of a contender.
func asked() bool {
	return len(os.Args) > 1 && slices.Contains([]string{working, enqueueing, counting}, os.Args[1])
}

// takePart is what such a process does.
func takePart(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var s setting
	if len(args) != 2 {
		return fmt.Errorf("want what to do and a setting, have %q", args)
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
	var tasks []workload.Task
	if err := json.Unmarshal(text, &tasks); err != nil {
		return err
	}
	if args[0] == working {
		return work(ctx, chosen[0], s, tasks, stdout)
	}
	q, err := chosen[0].open(ctx, s.config(nil))
	if err != nil {
		return err
	}
	if args[0] == enqueueing {
		return errors.Join(enqueue(ctx, q, tasks), q.Close())
	}
	left, err := q.Left(ctx)
	_, _ = fmt.Fprint(stdout, left)
	return errors.Join(err, q.Close())
}

// enqueue enqueues the tasks of each key one after the other. The server may be down for a while.
func enqueue(ctx context.Context, q system.System, tasks []workload.Task) error {
	byKey := make(map[string][]workload.Task)
	for _, t := range tasks {
		byKey[t.Key] = append(byKey[t.Key], t)
	}
	var keys sync.WaitGroup
	for _, ofKey := range byKey {
		keys.Go(func() {
			for _, t := range ofKey {
				for q.Enqueue(ctx, []workload.Task{t}) != nil {
					if sleep.For(ctx, 50*time.Millisecond) != nil {
						return
					}
				}
			}
		})
	}
	keys.Wait()
	return context.Cause(ctx)
}

// work takes tasks until ctx ends.
func work(ctx context.Context, c contender, s setting, tasks []workload.Task, stdout io.Writer) error {
	records, err := judge.Open(s.Journal)
	if err != nil {
		return err
	}
	q, err := c.open(ctx, s.config(func(ctx context.Context, task, charged int, fence int64) error {
		return records.Work(ctx, task, charged, fence, tasks[task].Work)
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
