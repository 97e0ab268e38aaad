package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// costTasks is how many tasks run at most to measure the cost of one.
const costTasks = 20_000

// measureCosts runs tasks that do nothing. They have no resource, one each, or a few for all, so
// that they wait.
func measureCosts(ctx context.Context, o options) error {
	tasks := min(o.tasks, costTasks)
	for _, c := range []struct {
		what      string
		resources int // 0: unguarded
		waiting   bool
	}{{"without a resource", 0, false}, {"on a free resource", tasks, false}, {"that had to wait", (tasks + few - 1) / few, true}} {
		o.say("a task %s", c.what)
		o.name = c.what
		if err := measureCost(ctx, o, tasks, c.resources, c.waiting); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
	}
	return nil
}

func measureCost(ctx context.Context, o options, tasks, resources int, waiting bool) (err error) {
	server, err := redistest.Run(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	s, err := newTestbed(server.Addr, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	if waiting {
		err = s.hold(ctx, resources)
	}
	if err == nil && resources == 0 {
		err = enqueue(ctx, s.rdb, tasks, func(int) queue.Task { return probe{} })
	} else if err == nil {
		err = s.enqueue(ctx, tasks, resources)
	}
	if err != nil {
		return err
	}
	before, start := s.used(ctx), time.Now()
	if err := s.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	s.fleet.free.Store(true)
	if waiting {
		if err := s.allParked(ctx, tasks); err != nil {
			return err
		}
		if err := s.handOffAll(ctx); err != nil {
			return err
		}
	}
	if err := s.reach(ctx, &s.fleet.done, tasks); err != nil {
		return err
	}
	const what = "a task, from a full queue to its end"
	s.add(what, "one worker", "per second", rate(tasks, start))
	used := s.addCPU(ctx, what, before, tasks)
	s.add(what, "scripts sent", "for each", float64(used.Scripts())/float64(tasks))
	return nil
}

// handOffAll releases all locks, each for the first in its line.
func (s *testbed) handOffAll(ctx context.Context) error {
	resources := slices.Collect(maps.Keys(s.leases))
	return split(ctx, len(resources), func(ctx context.Context, i int) error { return s.handOff(ctx, resources[i]) })
}
