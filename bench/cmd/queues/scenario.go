package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/sidingq/siding/bench/internal/workload"
)

// A scenario is one kind of work with what is measured of it.
type scenario struct {
	name  string
	about string
	// plan makes the work, smaller by the options' scale. An [errSkipped] says why it cannot.
	plan    func(options) (workload.Plan, error)
	figures []figure
}

func (s scenario) called() string { return s.name }

// errSkipped wraps why something cannot be measured here, which is no failure.
var errSkipped = errors.New("skipped")

func scenarios() []scenario {
	scaled := func(plan func(float64) workload.Plan) func(options) (workload.Plan, error) {
		return func(o options) (workload.Plan, error) { return plan(o.scale), nil }
	}
	handOffs := []figure{
		handOff(50, "p50"), meanHandOff(), handOff(99, "p99"), handOff(100, "max"), handOffTrips(50, "p50"), handOffTrips(99, "p99"),
		refusals(), inversions(),
	}
	costs := []figure{sent(), ran(), redisCPU(), clientCPU()}
	load := []figure{sentRate(), ranRate(), redisShare(), clientShare()}
	latencies := []figure{latency(50, "p50"), latency(99, "p99")}
	return []scenario{
		{
			"H", "200 tasks of 10 ms on one key, shuffled among 2,000 of 10 ms on keys of their own", scaled(workload.Mixed),
			slices.Concat([]figure{makespan(), toIdeal(), toWorked(), enqueueing()}, handOffs, costs),
		},
		{
			"hot", "2,000 tasks that do nothing on one key", scaled(workload.Hot),
			slices.Concat([]figure{throughput()}, handOffs, costs),
		},
		{
			"uncontended", "20,000 tasks that do nothing on keys of their own, enqueued beforehand", scaled(workload.Uncontended),
			slices.Concat([]figure{throughput(), enqueueing()}, costs),
		},
		{
			"orders", "an order file: a task per line for the item and one per order, that do nothing", planOrders,
			slices.Concat([]figure{makespan(), throughput()}, handOffs, costs),
		},
		{
			"long", "1,000 tasks of 10 ms that wait for one key, while 100 others per second come and go", scaled(workload.Long),
			slices.Concat([]figure{makespan()}, latencies, load, []figure{waitingMemory()}),
		},
		{
			"backlog", "100,000 tasks that do nothing pending, 200 of 5 ms for one key in their first tenth", scaled(workload.Backlog),
			slices.Concat([]figure{makespan()}, handOffs),
		},
		{
			"bystander-alone", "400 tasks of 2 ms per second on keys of their own", scaled(workload.BystandersAlone),
			slices.Concat(latencies, load),
		},
		{
			"bystander", "the same beside a key with 50 tasks of 15 ms per second and 100 more at once", scaled(workload.Bystanders),
			slices.Concat(latencies, handOffs, load),
		},
	}
}

// planOrders reads the order file that is named, or lies where the tests look for it.
func planOrders(o options) (workload.Plan, error) {
	path := cmp.Or(o.orders, os.Getenv("SIDING_ORDERS"))
	named := path != ""
	if !named {
		path = filepath.Join("..", "..", "shared", "data", "online_retail_extract.csv.gz")
	}
	file, err := os.Open(path) //nolint:gosec // whoever runs the program names the file
	if errors.Is(err, fs.ErrNotExist) && !named {
		return workload.Plan{}, fmt.Errorf("%w: no order file at %s; -orders or SIDING_ORDERS may name another", errSkipped, path)
	}
	if err != nil {
		return workload.Plan{}, err
	}
	defer func() { _ = file.Close() }()
	return workload.Orders(file, int(max(10, float64(o.lines)*o.scale)))
}
