package main

import (
	"crypto/sha256"
	_ "embed" // for the sample
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/oracle"
	"github.com/sidingq/siding/tasks/orders"
)

// sample is a morning's orders of a shop that does not exist, in the format of the Online Retail
// data set. It has the traits of that set. A quarter of the lines are about one craze, and orders
// have up to 59 lines. There are cancellations, customers that are not known, and a stock code with
// two spellings.
//
//go:embed sample.csv
var sample string

// retention is how long the dashboard shows the tasks that are done.
const retention = 24 * time.Hour

// sampleJobs returns the tasks of the demo, all in one queue: forms that were submitted twice, and
// all tasks of the orders in text.
func sampleJobs(text, queueName string) ([]queue.Job, error) {
	var jobs []queue.Job
	for i, p := range placements() {
		for again := range 2 {
			jobs = append(jobs, queue.Job{
				Task: tasks.PlaceOrder{User: p.User, Submission: p.Submission, Items: []tasks.Item{
					{SKU: "14107A", Quantity: int64(1 + i%3), Price: 29500},
				}},
				Options: &queue.Options{Queue: queueName, Retention: retention, TaskID: fmt.Sprintf("%s-%s-%d", p.User, p.Submission, again+1)},
			})
		}
	}
	reader, err := orders.NewReader(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	sum := sha256.Sum256([]byte(text))
	plan := orders.NewPlan(orders.PlanConfig{Content: hex.EncodeToString(sum[:4]), Queue: queueName, Retention: retention})
	for job, err := range plan.Jobs(reader) {
		if err != nil {
			return nil, fmt.Errorf("sample: %w", err)
		}
		jobs = append(jobs, job.Job)
	}
	return jobs, nil
}

// placements are the submissions of the demo: ten users, two forms each.
func placements() []oracle.Placement {
	var all []oracle.Placement
	for user := range 10 {
		for form := range 2 {
			all = append(all, oracle.Placement{User: fmt.Sprintf("user-%d", user+1), Submission: fmt.Sprintf("form-%d", form+1)})
		}
	}
	return all
}

// sampleInput returns the orders in text, and the placements, as the oracle reads them.
func sampleInput(text string) (oracle.Input, error) {
	reader, err := orders.NewReader(strings.NewReader(text))
	if err != nil {
		return oracle.Input{}, fmt.Errorf("sample: %w", err)
	}
	var lines []oracle.Line
	for {
		l, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return oracle.Input{}, fmt.Errorf("sample: %w", err)
		}
		lines = append(lines, oracle.Line{
			Number: l.Number, Order: l.Order, SKU: l.SKU, Quantity: l.Quantity, Price: int64(l.Price), Customer: l.Customer,
		})
	}
	return oracle.Input{Lines: slices.Values(lines), Placements: placements(), OpeningStock: tasks.OpeningStock}, nil
}
