package orders

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// PlanConfig says how the jobs of a file are to be enqueued.
type PlanConfig struct {
	// Content identifies what the file holds: the first digits of a hash of its
	// text. It ends the id of every task, so that the same file asks for the
	// same tasks whatever it is called. Not empty.
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
	// Through is the last line that had been looked at when the job came about.
	// It never falls, and no job with a smaller one follows: who has dealt with
	// all jobs up to a change of it has dealt with all lines up to that one.
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
// An order ends where a line of another begins. If its number comes back later,
// the lines there are more lines of the same order: they get an audit of their
// own, which is told the lines of all parts together, and a debit of their own
// over what they add. One that names another customer than the order is refused.
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
	// through is the number of the last line that was looked at.
	through int
}

// Counts say what a plan has come across.
type Counts struct {
	Lines         int     `json:"lines"`         // lines that were planned or left out, not refused ones
	Orders        int     `json:"orders"`        // different order numbers
	Cancellations int     `json:"cancellations"` // of which cancellations
	CameBack      int     `json:"came_back"`     // times that the number of an earlier order came back
	Skipped       Skipped `json:"skipped"`
}

// Skipped counts what was left out on purpose, by reason.
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

// NewPlan returns a plan for one file. It panics if cfg.Content is empty.
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
// The jobs are valid. Jobs is to be called once.
func (p *Plan) Jobs(r *Reader) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		var current block
		for {
			line, err := r.Next()
			if errors.Is(err, io.EOF) {
				p.end(current, yield)
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
				// Before this line counts as looked at: what is yielded here
				// belongs to the lines before it.
				if !p.end(current, yield) {
					return
				}
				current = p.begin(line)
			}
			p.through = line.Number
			if !p.line(&current, line, yield) {
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
			return &LineError{Line: l.Number, Field: "customer", Value: clip(l.Customer), Want: want}
		}
	}
	if l.Quantity == 0 {
		return nil
	}
	if err := allocation(l).Validate(); err != nil {
		return refusal(l, err)
	}
	var sum tasks.Money
	if l.Order == current.number {
		sum = current.value
	}
	if _, ok := addValue(sum, l); !ok {
		return &LineError{Line: l.Number, Field: "price", Value: l.Price.String(), Want: "want an order whose value is in range"}
	}
	return nil
}

// refusal says of the line what a task of it says of its payload.
func refusal(l Line, err error) *LineError {
	if field, ok := errors.AsType[*tasks.FieldError](err); ok {
		return &LineError{Line: l.Number, Field: field.Field, Want: field.Problem}
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

// line yields the jobs of one line and adds it to its order. It returns false
// when no more are wanted.
func (p *Plan) line(b *block, l Line, yield func(Job, error) bool) bool {
	p.counts.Lines++
	b.order.customer = cmp.Or(b.order.customer, strings.Clone(l.Customer))
	if l.Quantity == 0 {
		p.counts.Skipped.ZeroQuantity++
		return true
	}
	b.lines++
	b.order.lines++
	b.value, _ = addValue(b.value, l) // in range, by check
	if !yield(p.job(l.Number, allocation(l)), nil) {
		return false
	}
	if !l.Goods() {
		p.counts.Skipped.ServiceCode++
		return true
	}
	quantity := l.Quantity
	if quantity < 0 && !l.Cancellation() {
		quantity = -quantity
	}
	return yield(p.job(l.Number, tasks.DeductStock{SKU: l.SKU, Quantity: quantity, Order: l.Order, Line: l.Number}), nil)
}

// end yields the jobs about the order as a whole. It returns false when no more
// are wanted.
func (p *Plan) end(b block, yield func(Job, error) bool) bool {
	if b.lines == 0 {
		return true // there was none, or nothing but lines of no units
	}
	if !yield(p.job(b.first, tasks.AuditOrder{Order: b.number, Lines: b.order.lines}), nil) {
		return false
	}
	switch {
	case b.order.customer == "":
		p.counts.Skipped.NoCustomer++
		return true
	case b.value == 0:
		p.counts.Skipped.ZeroValue++
		return true
	}
	return yield(p.job(b.first, tasks.DebitBalance{Customer: b.order.customer, Order: b.number, Amount: b.value}), nil)
}

func allocation(l Line) tasks.AllocateLine {
	return tasks.AllocateLine{Order: l.Order, Line: l.Number, SKU: l.SKU, Quantity: l.Quantity, Price: l.Price}
}

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

// addValue returns the sum with the value of a line that has been found valid;
// ok is false when it is out of range.
func addValue(sum tasks.Money, l Line) (tasks.Money, bool) {
	value := l.Price * tasks.Money(l.Quantity)
	total := sum + value
	return total, (total > sum) == (value > 0)
}
