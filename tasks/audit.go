package tasks

import (
	"context"

	"github.com/sidingq/siding/tasks/ledger"
)

// AuditOrder compares an order with what has been allocated to it so far. It saves the whole order
// with its findings, as an object-relational mapper would. So AuditOrder and [AllocateLine] on one
// order undo each other's work unless they run one after the other.
type AuditOrder struct {
	// Order is the order's number.
	Order string `json:"order"`
	// Lines is how many lines the order should have; 0 when that is not known.
	Lines int `json:"lines,omitempty"`
}

// Kind returns "order:audit".
func (AuditOrder) Kind() string { return "order:audit" }

// Resource returns "order:" and the order's number.
func (t AuditOrder) Resource() string { return "order:" + trim(t.Order) }

// Validate refuses a bad order number and a negative number of lines.
func (t AuditOrder) Validate() error {
	c := checker{kind: t.Kind()}
	c.identifier("order", t.Order)
	c.line("lines", t.Lines)
	return c.err
}

func (t AuditOrder) run(ctx context.Context, b *Book) error {
	order := ledger.Order{Number: trim(t.Order)}
	if err := b.read(ctx, &order); err != nil {
		return err
	}
	order.Audits++
	order.AuditedLines = order.Lines
	order.Verdict = verdict(order.Lines, int64(t.Lines))

	e := effect(ctx, t)
	e.Order, e.Quantity = order.Number, int64(t.Lines)
	return b.ledger.Write(ctx, &order, e)
}

// verdict is how an audit ends that finds have lines; 0 wanted lines are not known.
func verdict(have, want int64) string {
	switch {
	case want == 0:
		return "unchecked"
	case have < want:
		return "partial"
	case have > want:
		return "excess"
	default:
		return "complete"
	}
}
