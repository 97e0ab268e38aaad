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
// two spellings. The first orders credit three customers, who transfer to each other.
//
//go:embed sample.csv
var sample string

// retention is how long the dashboard shows the tasks that are done.
const retention = 24 * time.Hour

// sampleJobs returns the tasks of the demo, all in one queue: forms that were submitted twice, and
// all tasks of the orders in text, with transfers and fulfilments between them.
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
	// One transfer and one fulfilment at a time, so that they meet the others.
	parts := slices.Collect(slices.Chunk(jobs, len(jobs)/several+1))
	transfers, fulfilments := transfers(), fulfilments()
	jobs = nil
	for i, part := range parts {
		jobs = append(jobs, part...)
		for _, task := range []queue.Task{transfers[i], fulfilments[i]} {
			jobs = append(jobs, queue.Job{
				Task:    task,
				Options: &queue.Options{Queue: queueName, Retention: retention, TaskID: fmt.Sprintf("%s-%d", task.Kind(), i+1)},
			})
		}
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

// several is how many transfers the demo has, and how many fulfilments.
const several = 12

// transfers pass the credit of three customers around. The last is of more than there is.
func transfers() []tasks.TransferBalance {
	all := make([]tasks.TransferBalance, several)
	for i := range all {
		all[i] = tasks.TransferBalance{From: fmt.Sprint(3501 + i%3), To: fmt.Sprint(3501 + (i+1)%3), Cents: int64(500 + 100*i)}
	}
	all[several-1].Cents = 20_000
	return all
}

// fulfilments are of invented orders of two to four popular goods. The last wants more than there is of one.
func fulfilments() []tasks.FulfilOrder {
	skus := []string{"14107A", "16121", "18142", "15135C", "16149"}
	all := make([]tasks.FulfilOrder, several)
	for i := range all {
		all[i].Order = fmt.Sprint(8001 + i)
		for n := range 2 + i%3 {
			all[i].Items = append(all[i].Items, tasks.Pick{SKU: skus[(i+n)%len(skus)], Quantity: int64(1 + n)})
		}
	}
	all[several-1].Items[0].Quantity = 5000
	return all
}

// sampleInput returns what went into the demo, with the orders in text, as the oracle reads it.
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
	in := oracle.Input{Lines: slices.Values(lines), Placements: placements(), OpeningStock: tasks.OpeningStock}
	for _, t := range transfers() {
		in.Transfers = append(in.Transfers, oracle.Transfer{From: t.From, To: t.To, Amount: t.Cents * 100})
	}
	for _, t := range fulfilments() {
		f := oracle.Fulfilment{Order: t.Order, Units: map[string]int64{}}
		for _, item := range t.Items {
			f.Units[item.SKU] = item.Quantity
		}
		in.Fulfilments = append(in.Fulfilments, f)
	}
	return in, nil
}
