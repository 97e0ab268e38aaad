package orders_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/orders"
)

// plan plans a file whose lines have only an order, a stock code, a quantity, a price and a
// customer. It returns each job as "line/through task" or "line/through error".
func plan(t *testing.T, lines ...string) (jobs []string, counts orders.Counts) {
	t.Helper()
	file := header
	for _, l := range lines {
		f := strings.Split(l, " ")
		if len(f) == 4 {
			f = append(f, "")
		}
		file += fmt.Sprintf("%s,%s,x,%s,2011-11-08T07:52:00,%s,%s,UK\n", f[0], f[1], f[2], f[3], f[4])
	}
	r := expect.Value(orders.NewReader(strings.NewReader(file)))(t)
	p := orders.NewPlan(orders.PlanConfig{Content: "c0ffee", Queue: "shop", Retention: time.Minute})
	for job, err := range p.Jobs(r) {
		told := fmt.Sprintf("%d/%d ", job.Line, job.Through)
		if err != nil {
			jobs = append(jobs, told+err.Error())
			continue
		}
		jobs = append(jobs, fmt.Sprintf("%s%T%v", told, job.Task, job.Task))
		want := queue.Options{Queue: "shop", Retention: time.Minute, TaskID: fmt.Sprintf("%d:%s-c0ffee", job.Line, job.Task.Kind())}
		expect.Same(t, "options", job.Options, &want)
		expect.Is(t, "a job for the queue", (queue.ClientConfig{}).Check(job.Task, job.Options), nil)
	}
	return jobs, p.Counts()
}

func TestPlan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines  []string
		jobs   []string
		counts orders.Counts
	}{
		"no lines": {},
		"two orders": {
			lines: []string{"1 22222 2 2.55 17850", "1 33333A 1 0.1 17850", "2 22222 3 1 12345"},
			jobs: []string{
				"2/2 tasks.AllocateLine{1 2 22222 2 2.55}", "2/2 tasks.DeductStock{22222 2 1 2}",
				"3/3 tasks.AllocateLine{1 3 33333A 1 0.10}", "3/3 tasks.DeductStock{33333A 1 1 3}",
				"2/3 tasks.AuditOrder{1 2}", "2/3 tasks.DebitBalance{17850 1 5.20}",
				"4/4 tasks.AllocateLine{2 4 22222 3 1.00}", "4/4 tasks.DeductStock{22222 3 2 4}",
				"4/4 tasks.AuditOrder{2 1}", "4/4 tasks.DebitBalance{12345 2 3.00}",
			},
			counts: orders.Counts{Lines: 3, Orders: 2},
		},
		"a customer who is not known has no account": {
			lines:  []string{"1 22222 2 2.55"},
			jobs:   []string{"2/2 tasks.AllocateLine{1 2 22222 2 2.55}", "2/2 tasks.DeductStock{22222 2 1 2}", "2/2 tasks.AuditOrder{1 1}"},
			counts: orders.Counts{Lines: 1, Orders: 1, Skipped: orders.Skipped{NoCustomer: 1}},
		},
		"a cancellation comes back": {
			lines: []string{"C1 22222 -2 2.55 17850"},
			jobs: []string{
				"2/2 tasks.AllocateLine{C1 2 22222 -2 2.55}", "2/2 tasks.DeductStock{22222 -2 C1 2}",
				"2/2 tasks.AuditOrder{C1 1}", "2/2 tasks.DebitBalance{17850 C1 -5.10}",
			},
			counts: orders.Counts{Lines: 1, Orders: 1, Cancellations: 1},
		},
		"a write-off is gone, and costs nothing": {
			lines: []string{"1 22222 -2 0 17850"},
			jobs: []string{
				"2/2 tasks.AllocateLine{1 2 22222 -2 0.00}", "2/2 tasks.DeductStock{22222 2 1 2}", "2/2 tasks.AuditOrder{1 1}",
			},
			counts: orders.Counts{Lines: 1, Orders: 1, Skipped: orders.Skipped{ZeroValue: 1}},
		},
		"a sample is allocated and deducted": {
			lines: []string{"1 22222 1 0 17850", "1 33333 1 1 17850"},
			jobs: []string{
				"2/2 tasks.AllocateLine{1 2 22222 1 0.00}", "2/2 tasks.DeductStock{22222 1 1 2}",
				"3/3 tasks.AllocateLine{1 3 33333 1 1.00}", "3/3 tasks.DeductStock{33333 1 1 3}",
				"2/3 tasks.AuditOrder{1 2}", "2/3 tasks.DebitBalance{17850 1 1.00}",
			},
			counts: orders.Counts{Lines: 2, Orders: 1},
		},
		"a service has no stock and costs": {
			lines: []string{"1 POST 1 18 17850"},
			jobs: []string{
				"2/2 tasks.AllocateLine{1 2 POST 1 18.00}", "2/2 tasks.AuditOrder{1 1}", "2/2 tasks.DebitBalance{17850 1 18.00}",
			},
			counts: orders.Counts{Lines: 1, Orders: 1, Skipped: orders.Skipped{ServiceCode: 1}},
		},
		"no units, no tasks": {
			lines:  []string{"1 22222 0 1 17850", "2 22222 0 1 1", "2 22222 1 1 1"},
			jobs:   []string{"4/4 tasks.AllocateLine{2 4 22222 1 1.00}", "4/4 tasks.DeductStock{22222 1 2 4}", "3/4 tasks.AuditOrder{2 1}", "3/4 tasks.DebitBalance{1 2 1.00}"},
			counts: orders.Counts{Lines: 3, Orders: 2, Skipped: orders.Skipped{ZeroQuantity: 2}},
		},
		"equal lines, repeated codes and codes of another case are all kept": {
			lines: []string{"1 85049A 1 1", "1 85049A 1 1", "1 85049a 1 1"},
			jobs: []string{
				"2/2 tasks.AllocateLine{1 2 85049A 1 1.00}", "2/2 tasks.DeductStock{85049A 1 1 2}",
				"3/3 tasks.AllocateLine{1 3 85049A 1 1.00}", "3/3 tasks.DeductStock{85049A 1 1 3}",
				"4/4 tasks.AllocateLine{1 4 85049a 1 1.00}", "4/4 tasks.DeductStock{85049a 1 1 4}",
				"2/4 tasks.AuditOrder{1 3}",
			},
			counts: orders.Counts{Lines: 3, Orders: 1, Skipped: orders.Skipped{NoCustomer: 1}},
		},
		"an order that comes back": {
			lines: []string{"1 POST 1 1 17850", "2 POST 1 1 12345", "1 POST 1 2 17850", "1 POST 1 4"},
			jobs: []string{
				"2/2 tasks.AllocateLine{1 2 POST 1 1.00}", "2/2 tasks.AuditOrder{1 1}", "2/2 tasks.DebitBalance{17850 1 1.00}",
				"3/3 tasks.AllocateLine{2 3 POST 1 1.00}", "3/3 tasks.AuditOrder{2 1}", "3/3 tasks.DebitBalance{12345 2 1.00}",
				"4/4 tasks.AllocateLine{1 4 POST 1 2.00}", "5/5 tasks.AllocateLine{1 5 POST 1 4.00}",
				"4/5 tasks.AuditOrder{1 3}", "4/5 tasks.DebitBalance{17850 1 6.00}",
			},
			counts: orders.Counts{Lines: 4, Orders: 2, CameBack: 1, Skipped: orders.Skipped{ServiceCode: 4}},
		},
		"two customers in one order": {
			lines: []string{"1 POST 1 1", "1 POST 1 1 17850", "1 POST 1 1 12345", "1 POST 1 1 17850"},
			jobs: []string{
				"2/2 tasks.AllocateLine{1 2 POST 1 1.00}", "3/3 tasks.AllocateLine{1 3 POST 1 1.00}",
				`4/4 line 4: customer: want the customer of the order, 17850, have "12345"`,
				"5/5 tasks.AllocateLine{1 5 POST 1 1.00}", "2/5 tasks.AuditOrder{1 3}", "2/5 tasks.DebitBalance{17850 1 3.00}",
			},
			counts: orders.Counts{Lines: 3, Orders: 1, Skipped: orders.Skipped{ServiceCode: 3}},
		},
		"bad lines do not part an order and do not count": {
			lines: []string{"1 POST 1 1", "1 POST x 1", "2 {2} 1 1", "1 POST 1 1 {3}", "1 POST 1 1", "1 POST 1 x"},
			jobs: []string{
				"2/2 tasks.AllocateLine{1 2 POST 1 1.00}",
				`3/3 line 3: quantity: want a whole number of at most 1000000000 either way, have "x"`,
				`4/4 line 4: sku: want printable characters without braces, have U+007B at byte 1`,
				`5/5 line 5: customer: want printable characters without braces, have U+007B at byte 1`,
				"6/6 tasks.AllocateLine{1 6 POST 1 1.00}",
				`7/7 line 7: price: want a decimal such as 2.55 with at most four decimals, have "x"`,
				"2/7 tasks.AuditOrder{1 2}",
			},
			counts: orders.Counts{Lines: 2, Orders: 1, Skipped: orders.Skipped{NoCustomer: 1, ServiceCode: 2}},
		},
		"values beyond the range": {
			lines: []string{"1 POST 1000000000 922337203685477 1", "1 POST 1 922337203685477 1", "1 POST 1 1 1", "1 POST 1 0.5 1"},
			jobs: []string{
				`2/2 line 2: price: its product with the quantity is out of range`,
				"3/3 tasks.AllocateLine{1 3 POST 1 922337203685477.00}",
				`4/4 line 4: price: want an order whose value is in range, have "1.00"`,
				"5/5 tasks.AllocateLine{1 5 POST 1 0.50}",
				"3/5 tasks.AuditOrder{1 2}", "3/5 tasks.DebitBalance{1 1 922337203685477.50}",
			},
			counts: orders.Counts{Lines: 2, Orders: 1, Skipped: orders.Skipped{ServiceCode: 2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobs, counts := plan(t, c.lines...)
			expect.Same(t, "jobs", jobs, c.jobs)
			expect.Same(t, "counts", counts, c.counts)
		})
	}
}

func TestPlanEndsWhenNoMoreAreWanted(t *testing.T) {
	t.Parallel()
	all, _ := plan(t, "1 22222 1 1 17850", "x y z 1", "2 22222 1 1")
	for most := range all {
		r := expect.Value(orders.NewReader(strings.NewReader(header +
			"1,22222,x,1,2011-11-08T07:52:00,1,17850,UK\nx,y,x,z,2011-11-08T07:52:00,1,,UK\n2,22222,x,1,2011-11-08T07:52:00,1,,UK\n")))(t)
		var have []string
		for job, err := range orders.NewPlan(orders.PlanConfig{Content: "c0ffee"}).Jobs(r) {
			if have = append(have, fmt.Sprint(job.Line, err)); len(have) > most {
				break
			}
		}
		expect.That(t, len(have) == most+1, "want %d jobs, have %q", most+1, have)
	}
}

// A fault of the input ends the plan. The order that was being read is not complete, so no job
// concerns it as a whole.
func TestPlanTellsFaults(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	r := expect.Value(orders.NewReader(io.MultiReader(strings.NewReader(header+"1,22222,x,1,2011-11-08T07:52:00,1,17850,UK\n"), iotest.ErrReader(broken))))(t)
	var kinds []string
	var last error
	for job, err := range orders.NewPlan(orders.PlanConfig{Content: "c0ffee"}).Jobs(r) {
		if last = err; err == nil {
			kinds = append(kinds, job.Task.Kind())
		}
	}
	diff := cmp.Diff([]string{tasks.AllocateLine{}.Kind(), tasks.DeductStock{}.Kind()}, kinds)
	expect.That(t, diff == "" && errors.Is(last, broken), "want %v, have %v; jobs (-want +have):\n%s", broken, last, diff)
}
