package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/system"
	"github.com/sidingq/siding/bench/internal/trace"
	"github.com/sidingq/siding/internal/sleep"
)

const (
	// settle is what workers get to connect and to come to rest, before the clock starts.
	settle = 300 * time.Millisecond
	// stopTimeout is what running tasks get to end when a run is over.
	stopTimeout = time.Second
)

// inProcess returns what runs a system in this process.
func inProcess(open func(context.Context, system.Config) (system.System, error)) func(context.Context, course) (outcome, error) {
	return func(ctx context.Context, c course) (_ outcome, err error) {
		rec := trace.NewRecorder(c.plan.Tasks)
		var sent redisstat.Sent
		s, err := open(ctx, system.Config{
			Server: c.redis, Dial: sent.Dial, Workers: c.plan.Workers,
			Drain:  stopTimeout,
			Handle: func(ctx context.Context, task, _ int, _ int64) error { return rec.Handle(ctx, task) },
		})
		if err != nil {
			return outcome{}, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		d := &drive{course: c, System: s, rec: rec, sent: &sent}
		if err := d.run(ctx); err != nil {
			return outcome{}, err
		}
		d.outcome.Trace = rec.Trace()
		d.outcome.Left, err = s.Left(ctx)
		return d.outcome, err
	}
}

// A drive takes a system through a course.
type drive struct {
	course
	system.System

	rec     *trace.Recorder
	sent    *redisstat.Sent
	outcome outcome
}

func (d *drive) run(ctx context.Context) (err error) {
	first, second := d.Start, d.enqueueAll
	if d.plan.Stored {
		first, second = second, first
	}
	started := false
	defer func() {
		if started {
			// Tasks that were cut off must still be able to end their runs.
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			err = errors.Join(err, d.Stop(stopping))
		}
	}()
	started = !d.plan.Stored
	if err := first(ctx); err != nil {
		return err
	}
	if err := sleep.For(ctx, settle); err != nil {
		return err
	}
	if err := d.begin(ctx); err != nil {
		return err
	}
	sent, cpu := d.sent.Count(), cpuTime()
	d.rec.Begin()
	limited, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	started = true
	if err := second(limited); err != nil && limited.Err() == nil {
		return err
	}
	select {
	case <-d.rec.All():
	case <-limited.Done():
	}
	d.outcome.sent, d.outcome.cpu = d.sent.Count()-sent, cpuTime()-cpu
	return d.end(ctx)
}

// enqueueAll enqueues every task when its time has come.
func (d *drive) enqueueAll(ctx context.Context) error {
	start := time.Now()
	for i, task := range d.plan.Tasks {
		if wait := task.At - time.Since(start); wait > 0 {
			if err := sleep.For(ctx, wait); err != nil {
				return err
			}
		}
		due := d.plan.Tasks[i : i+1]
		if err := d.rec.Call(due, func() error { return d.Enqueue(ctx, due) }); err != nil {
			return fmt.Errorf("enqueue task %d: %w", task.ID, err)
		}
	}
	return nil
}
