package main

import (
	"bytes"
	"os"
	"slices"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/tasks/orders/ordertest"
)

// A scenario is one kind of work with what is measured of it.
type scenario struct {
	contest.Scenario

	// plan makes the work, smaller by the options' scale.
	plan    func(options) (workload.Plan, error)
	figures []figure
}

func scenarios() []scenario {
	scaled := func(plan func(float64) workload.Plan) func(options) (workload.Plan, error) {
		return func(o options) (workload.Plan, error) { return plan(o.scale), nil }
	}
	return []scenario{
		{
			contest.Scenario{Name: "H", About: "200 tasks of 10 ms on one key, shuffled among 2,000 of 10 ms on keys of their own"},
			scaled(workload.Mixed),
			slices.Concat([]figure{makespan, toIdeal, toWorked, enqueueing}, handOffs, costs),
		},
		{
			contest.Scenario{Name: "hot", About: "2,000 tasks that do nothing on one key"},
			scaled(workload.Hot),
			slices.Concat([]figure{throughput}, handOffs, costs),
		},
		{
			contest.Scenario{Name: "uncontended", About: "20,000 tasks that do nothing on keys of their own, enqueued beforehand"},
			scaled(workload.Uncontended),
			slices.Concat([]figure{throughput, enqueueing}, costs),
		},
		{
			contest.Scenario{Name: "orders", About: "an order file: a task per line for the item and one per order, that do nothing"},
			planOrders,
			slices.Concat([]figure{makespan, throughput}, handOffs, costs),
		},
		{
			contest.Scenario{Name: "transfers", About: "2,000 tasks of 10 ms, each on two of 50 keys"},
			scaled(workload.Transfers),
			slices.Concat([]figure{makespan, toIdeal, toInOrder, refusals, inversions}, costs),
		},
		{
			contest.Scenario{Name: "limit", About: "500 tasks of 20 ms on one key, of which 5 may run at once"},
			scaled(workload.Limit),
			slices.Concat([]figure{makespan, toIdeal, refusals}, costs),
		},
		{
			contest.Scenario{Name: "rate", About: "400 tasks that do nothing on one key, of which 100 may start in any second"},
			scaled(workload.Rate),
			slices.Concat([]figure{makespan, busiest}, gaps, late, []figure{refusals}, costs),
		},
		{
			contest.Scenario{Name: "long", About: "1,000 tasks of 10 ms that wait for one key, while 100 others per second come and go"},
			scaled(workload.Long),
			slices.Concat([]figure{makespan}, latencies, load, []figure{waitingMemory}),
		},
		{
			contest.Scenario{Name: "backlog", About: "100,000 tasks that do nothing pending, 200 of 5 ms for one key in their first tenth"},
			scaled(workload.Backlog),
			slices.Concat([]figure{makespan}, handOffs),
		},
		{
			contest.Scenario{Name: "behind-alone", About: "1,000 tasks of 5 ms pending, on keys of their own, when the workers start"},
			scaled(workload.BehindAlone),
			slices.Concat([]figure{makespan}, latencies),
		},
		{
			contest.Scenario{Name: "behind", About: "the same behind 100,000 tasks that do nothing, on one key"},
			scaled(workload.Behind),
			slices.Concat([]figure{makespan}, latencies),
		},
		{
			contest.Scenario{Name: "bystander-alone", About: "400 tasks of 2 ms per second on keys of their own"},
			scaled(workload.BystandersAlone),
			slices.Concat(latencies, load),
		},
		{
			contest.Scenario{Name: "bystander", About: "the same beside a key with 50 tasks of 15 ms per second and 100 more at once"},
			scaled(workload.Bystanders),
			slices.Concat(latencies, handOffs, load),
		},
	}
}

// planOrders reads the order file that is named. Else it reads the one that the tests find, or
// makes one up, always the same.
func planOrders(o options) (workload.Plan, error) {
	lines := int(max(10, float64(o.lines)*o.scale))
	path := o.orders
	if path == "" {
		var err error
		if path, err = ordertest.Real(); err != nil {
			return workload.Plan{}, err
		}
	}
	if path == "" {
		return workload.Orders(bytes.NewReader(ordertest.Generate(1, max(lines, ordertest.Lines))), lines)
	}
	file, err := os.Open(path)
	if err != nil {
		return workload.Plan{}, err
	}
	defer func() { _ = file.Close() }()
	return workload.Orders(file, lines)
}
