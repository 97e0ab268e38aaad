package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/sidingq/siding/bench/internal/delay"
	"github.com/sidingq/siding/bench/internal/judge"
	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

const (
	fleet = 3 // worker processes at a time
	slots = 8 // tasks that each runs at once
	// idle is after how long without a run a key is stuck, at the end.
	idle = 30 * time.Second
)

// A trial is one contender in one scenario.
type trial struct {
	contender

	scenario scenario
	tasks    []workload.Task
	dir      string
	node     string // folder of the Node programs
	plan     string // file of the tasks

	server *proc.Server
	near   string           // its address, as this program reaches it
	line   delay.Line       // to it, as workers reach it
	quit   syscall.Signal   // ends the server without a loss
	gates  []*delay.Process // the way of each worker to the server, by slot
	now    []*worker        // by slot
	struck int              // the slot of the worker that stands still, or is cut off
	all    []*worker        // those before, too
	faults []judge.Fault
	stored chan error // gets the result of enqueueing
}

// newTrial starts the server of a trial and its workers. The caller must close it, also after an
// error.
func newTrial(ctx context.Context, c contender, s scenario, tasks []workload.Task, node string) (t *trial, err error) {
	t = &trial{contender: c, scenario: s, tasks: tasks, node: node, stored: make(chan error, 1)}
	if t.dir, err = os.MkdirTemp("", "torture-"); err != nil {
		return t, err
	}
	t.plan = filepath.Join(t.dir, "plan.json")
	text, err := json.Marshal(tasks)
	if err != nil {
		return t, err
	}
	if err := os.WriteFile(t.plan, text, 0o600); err != nil {
		return t, err
	}
	if err := t.serve(ctx); err != nil {
		return t, err
	}
	t.now = make([]*worker, fleet)
	for slot := range fleet {
		g, err := delay.Start(ctx, t.line)
		if err != nil {
			return t, err
		}
		t.gates = append(t.gates, g)
		if err := t.employ(ctx, slot); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (t *trial) setting(server, journal string) setting {
	return setting{
		Contender: t.Name, Server: server, Plan: t.plan, Journal: journal,
		Slots: slots, TTL: int(ttl.Milliseconds()),
	}
}

// run takes the trial through its scenario. It ends when all tasks have come to their end and
// the queue has none, or after the limit.
func (t *trial) run(ctx context.Context, limit time.Duration) (judge.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	go func() {
		_, err := t.ask(ctx, enqueueing)
		t.stored <- err
	}()
	began, err := t.begun(ctx)
	if err != nil {
		return judge.Verdict{}, err
	}
	for _, e := range t.scenario.events {
		if err := sleep.For(ctx, began+e.at-proc.Now()); err != nil {
			return judge.Verdict{}, err
		}
		if err := e.do(t, ctx); err != nil {
			return judge.Verdict{}, err
		}
	}
	queued := len(t.tasks)
	for sleep.For(ctx, 500*time.Millisecond) == nil {
		records, err := t.records()
		if err != nil {
			return judge.Verdict{}, err
		}
		if !t.complete(records) {
			continue
		}
		// The server may still be coming back, and then does not answer.
		if left, err := t.left(ctx); err == nil && left == 0 {
			queued = 0
			break
		}
	}
	cancelled := ctx.Err() != nil
	cancel()
	if err := <-t.stored; err != nil && !cancelled {
		return judge.Verdict{}, err
	}
	if queued > 0 {
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if queued, err = t.left(asking); err != nil {
			return judge.Verdict{}, err
		}
	}
	return t.judge(queued)
}

// begun returns when the first handler has started, once it has.
func (t *trial) begun(ctx context.Context) (at time.Duration, err error) {
	err = expect.Until(ctx, func() error {
		records, err := t.records()
		if err != nil {
			return err
		}
		if len(records) == 0 {
			return errors.New("no task has started")
		}
		at = slices.MinFunc(records, func(a, b judge.Record) int { return cmp.Compare(a.At, b.At) }).At
		return nil
	})
	return at, err
}

// complete reports whether all tasks have come to their end.
func (t *trial) complete(records []judge.Record) bool {
	ended := make(map[int]bool)
	for _, r := range records {
		if r.Kind == judge.End {
			ended[r.Task] = true
		}
	}
	return len(ended) == len(t.tasks)
}

func (t *trial) judge(queued int) (judge.Verdict, error) {
	for slot, w := range t.now {
		if err := w.Gone(); err != nil {
			return judge.Verdict{}, fmt.Errorf("worker %d: %w; its log:\n%s", slot, err, w.Log())
		}
	}
	c := judge.Case{Faults: t.faults, Closed: proc.Now(), Idle: idle, Queued: queued}
	for _, task := range t.tasks {
		c.Tasks = append(c.Tasks, task.Key)
	}
	var err error
	if c.Records, err = t.records(); err != nil {
		return judge.Verdict{}, err
	}
	return judge.Judge(c), nil
}

// records returns what all workers have written.
func (t *trial) records() (all []judge.Record, err error) {
	for _, w := range t.all {
		some, err := judge.Read(w.journal)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// close ends everything. Keep, if it is not "", is a folder that gets what the handlers wrote.
func (t *trial) close(keep string) (err error) {
	for _, w := range t.all {
		w.Kill()
	}
	if keep != "" && t.dir != "" {
		err = os.CopyFS(filepath.Join(keep, t.scenario.Name+"-"+t.Name), os.DirFS(t.dir))
	}
	for _, w := range t.all {
		w.Stop()
	}
	for _, g := range t.gates {
		g.Stop()
	}
	if t.server != nil {
		t.server.Stop()
	}
	return errors.Join(err, os.RemoveAll(t.dir))
}
