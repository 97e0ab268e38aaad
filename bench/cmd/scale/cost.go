package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/report"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// costTasks is how many tasks run at most to measure the cost of one.
const costTasks = 20_000

// A cost is what one task costs, from a full queue to its end.
type cost struct {
	What    string  `json:"cost_of"`
	Rate    float64 `json:"tasks_per_second"`
	CPU     float64 `json:"redis_us_per_task"`
	Scripts float64 `json:"scripts_per_task"`
}

// measureCosts runs tasks that do nothing. They have no resource, one each, or a few for all, so
// that they wait.
func measureCosts(ctx context.Context, o options) ([]cost, error) {
	tasks := min(o.tasks, costTasks)
	var all []cost
	for _, c := range []struct {
		what      string
		resources int // 0: unguarded
		waiting   bool
	}{{"without a resource", 0, false}, {"on a free resource", tasks, false}, {"that had to wait", (tasks + few - 1) / few, true}} {
		_, _ = fmt.Fprintf(o.progress, "%s a task %s\n", time.Now().Format(time.TimeOnly), c.what)
		found, err := measureCost(ctx, o, tasks, c.resources, c.waiting)
		if err != nil {
			return all, fmt.Errorf("%s: %w", c.what, err)
		}
		found.What = c.what
		all = append(all, found)
	}
	return all, nil
}

func measureCost(ctx context.Context, o options, tasks, resources int, waiting bool) (c cost, err error) {
	server, err := redistest.Run(ctx)
	if err != nil {
		return c, err
	}
	defer server.Stop()
	s, err := newTestbed(server.Addr, o)
	if err != nil {
		return c, err
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
		return c, err
	}
	cpu, scripts, start := s.cpu(ctx), sent(ctx, s.rdb), time.Now()
	if err := s.start(ctx); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	s.fleet.free.Store(true)
	if waiting {
		if err := s.allParked(ctx, tasks); err != nil {
			return c, err
		}
		if err := s.handOffAll(ctx); err != nil {
			return c, err
		}
	}
	if err := s.reach(ctx, &s.fleet.done, tasks); err != nil {
		return c, err
	}
	c.Rate = rate(tasks, start)
	c.CPU, c.Scripts = (s.cpu(ctx)-cpu)/float64(tasks), (sent(ctx, s.rdb)-scripts)/float64(tasks)
	return c, nil
}

// handOffAll releases all locks, each for the first in its line.
func (s *testbed) handOffAll(ctx context.Context) error {
	resources := slices.Collect(maps.Keys(s.leases))
	return split(ctx, len(resources), func(ctx context.Context, i int) error { return s.handOff(ctx, resources[i]) })
}

func (c cost) writeJSON(w io.Writer) error { return json.NewEncoder(w).Encode(c) }

// writeCosts writes a line for each kind of task.
func writeCosts(w io.Writer, costs []cost) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "\na task\tper second, one worker\tCPU of Redis, µs\tscripts sent")
	for _, c := range costs {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", c.What, report.Short(c.Rate), report.Short(c.CPU), report.Short(c.Scripts))
	}
	return table.Flush() // tells of the errors of the lines before, too
}

// sent returns how many scripts clients have sent. 0 when Redis does not tell.
func sent(ctx context.Context, rdb redis.UniversalClient) float64 {
	used, err := redisstat.ReadUsage(ctx, rdb)
	if err != nil {
		return 0
	}
	return float64(used.Scripts())
}
