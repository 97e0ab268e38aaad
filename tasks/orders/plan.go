package orders

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// PlanConfig says how a plan enqueues the jobs of a file.
type PlanConfig struct {
	// Content is the beginning of a hash of the file's text, not empty. The id of
	// every task ends with it: the same file asks for the same tasks under any name.
	Content string
	// Queue and Retention are the options of that name of every job.
	Queue     string
	Retention time.Duration
}

// A Job is one task that a file asks for.
type Job struct {
	queue.Job
	// Line is the line the task is about; for a task about a whole order, the
	// order's first. Together with the kind it is unique in the file.
	Line int
	// Through is the last line that has been read. Through never falls. When it rises, the plan has
	// yielded all jobs of the lines before.
	Through int
}

// A Plan turns the lines of a file into jobs:
//
//	each line          warehouse:allocate
//	each line of goods stock:deduct of its quantity. On a cancellation it is
//	                   negative: the goods come back. Elsewhere a negative one is
//	                   a write-off, and what was written off is gone as well.
//	each order         order:audit, told how many lines the order has
//	each order         balance:debit of its value, postage and other services
//	                   included, if the customer is known
//
// An order ends where a line of another begins. If its number comes back later, the lines there are
// more lines of the same order. They get a second audit, with the number of lines of all parts, and
// a second debit over what they add. One that names another customer than the order is refused.
//
// Lines of no units do nothing: they are left out and do not count for the audit.
// So are the debits of orders without a customer, which must not all end up in
// one account, and of those whose value is zero. [Plan.Counts] says how many.
//
// A plan keeps the number, the count of lines and the customer of each order
// of the file, some 150 bytes; it holds none of the lines.
type Plan struct {
	cfg    PlanConfig
	orders map[string]*order
	counts Counts
	// through is the number of the last line that was read.
	through int
}

// Counts are the numbers of a plan.
type Counts struct {
	Lines         int     `json:"lines"`         // lines that were planned or left out, not refused ones
	Orders        int     `json:"orders"`        // different order numbers
	Cancellations int     `json:"cancellations"` // of which cancellations
	CameBack      int     `json:"came_back"`     // times that the number of an earlier order came back
	Skipped       Skipped `json:"skipped"`
}

// Skipped counts tasks and lines that were left out on purpose, by reason.
type Skipped struct {
	NoCustomer   int `json:"no_customer"`   // debits of an order whose customer is not known
	ZeroValue    int `json:"zero_value"`    // debits of an order that costs nothing
	ServiceCode  int `json:"service_code"`  // deductions for a line that is not about goods
	ZeroQuantity int `json:"zero_quantity"` // lines of no units
}

// An order is what a plan remembers of one.
type order struct {
	lines    int
	customer string
}

// A block is the run of lines of one order that is being read.
type block struct {
	number string
	order  *order
	first  int // its first line
	lines  int
	value  tasks.Money
}

// NewPlan returns a plan for one file. Plan panics if cfg.Content is empty.
func NewPlan(cfg PlanConfig) *Plan {
	if cfg.Content == "" {
		panic("orders: a plan without the hash of the file's content")
	}
	return &Plan{cfg: cfg, orders: make(map[string]*order)}
}

// Counts returns what has been counted so far.
func (p *Plan) Counts() Counts { return p.counts }

// Jobs reads r to its end and yields the jobs in the order of the file. The
// error of a pair is nil or a [*LineError], which is about one line and followed
// by more (its Job says only which line); any other error is the last pair.
// The jobs are valid. Call Jobs once.
func (p *Plan) Jobs(r *Reader) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		yieldAll := func(jobs ...Job) bool {
			return !slices.ContainsFunc(jobs, func(job Job) bool { return !yield(job, nil) })
		}
		var current block
		for {
			line, err := r.Next()
			if errors.Is(err, io.EOF) {
				yieldAll(p.end(current)...)
				return
			}
			if err == nil {
				err = p.check(current, line)
			}
			if refused, ok := errors.AsType[*LineError](err); ok {
				p.through = refused.Line
				if !yield(Job{Line: refused.Line, Through: refused.Line}, refused) {
					return
				}
				continue
			}
			if err != nil {
				yield(Job{}, err)
				return
			}
			if line.Order != current.number {
				// These jobs belong to the lines before: p.through rises later.
				if !yieldAll(p.end(current)...) {
					return
				}
				current = p.begin(line)
			}
			p.through = line.Number
			if !yieldAll(p.line(&current, line)...) {
				return
			}
		}
	}
}

// check refuses a line from which no valid jobs can be made, with a *LineError.
func (p *Plan) check(current block, l Line) error {
	if l.Customer != "" {
		probe := tasks.DebitBalance{Customer: l.Customer, Order: l.Order, Amount: 1}
		if err := probe.Validate(); err != nil {
			return refusal(l, err)
		}
		if known := p.orders[l.Order]; known != nil && known.customer != "" && known.customer != l.Customer {
			want := fmt.Sprintf("want the customer of the order, %s", known.customer)
			return &LineError{Line: l.Number, Field: "customer", Value: l.Customer, Want: want}
		}
	}
	if l.Quantity == 0 {
		return nil
	}
	if err := allocation(l).Validate(); err != nil {
		return refusal(l, err)
	}
	if l.Order != current.number {
		return nil
	}
	if _, ok := current.value.Plus(value(l)); !ok {
		return &LineError{Line: l.Number, Field: "price", Value: l.Price.String(), Want: "want an order whose value is in range"}
	}
	return nil
}

// refusal says of the line what a task of it says of its payload.
func refusal(l Line, err error) *LineError {
	if field, ok := errors.AsType[*queue.TaskError](err); ok {
		return &LineError{Line: l.Number, Field: field.Field, Want: field.Want}
	}
	return &LineError{Line: l.Number, Want: err.Error()}
}

// begin starts a run of lines of one order.
func (p *Plan) begin(l Line) block {
	number := strings.Clone(l.Order) // the line's string would keep the whole record
	known, ok := p.orders[number]
	if ok {
		p.counts.CameBack++
	} else {
		known = &order{}
		p.orders[number] = known
		p.counts.Orders++
		if l.Cancellation() {
			p.counts.Cancellations++
		}
	}
	return block{number: number, order: known, first: l.Number}
}

// line adds a line to its order and returns the jobs of the line.
func (p *Plan) line(b *block, l Line) []Job {
	p.counts.Lines++
	b.order.customer = cmp.Or(b.order.customer, strings.Clone(l.Customer))
	if l.Quantity == 0 {
		p.counts.Skipped.ZeroQuantity++
		return nil
	}
	b.lines++
	b.order.lines++
	b.value, _ = b.value.Plus(value(l)) // in range, by check
	jobs := []Job{p.job(l.Number, allocation(l))}
	if !l.Goods() {
		p.counts.Skipped.ServiceCode++
		return jobs
	}
	quantity := l.Quantity
	if quantity < 0 && !l.Cancellation() {
		quantity = -quantity
	}
	return append(jobs, p.job(l.Number, tasks.DeductStock{SKU: l.SKU, Quantity: quantity, Order: l.Order, Line: l.Number}))
}

// end returns the jobs of an order as a whole.
func (p *Plan) end(b block) []Job {
	if b.lines == 0 {
		return nil // there was none, or nothing but lines of no units
	}
	jobs := []Job{p.job(b.first, tasks.AuditOrder{Order: b.number, Lines: b.order.lines})}
	switch {
	case b.order.customer == "":
		p.counts.Skipped.NoCustomer++
	case b.value == 0:
		p.counts.Skipped.ZeroValue++
	default:
		jobs = append(jobs, p.job(b.first, tasks.DebitBalance{Customer: b.order.customer, Order: b.number, Amount: b.value}))
	}
	return jobs
}

func allocation(l Line) tasks.AllocateLine {
	return tasks.AllocateLine{Order: l.Order, Line: l.Number, SKU: l.SKU, Quantity: l.Quantity, Price: l.Price}
}

// value is that of a line that has been found valid.
func value(l Line) tasks.Money { return l.Price * tasks.Money(l.Quantity) }

// job returns the job of a task about a line.
func (p *Plan) job(line int, t queue.Task) Job {
	return Job{
		Job: queue.Job{Task: t, Options: &queue.Options{
			Queue: p.cfg.Queue,
			// The dashboard shows an id up to its first hyphen.
			TaskID:    fmt.Sprintf("%d:%s-%s", line, t.Kind(), p.cfg.Content),
			Retention: p.cfg.Retention,
		}},
		Line:    line,
		Through: p.through,
	}
}
