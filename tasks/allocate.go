package tasks

import (
	"context"

	"github.com/sidingq/siding/tasks/ledger"
)

// AllocateLine adds one line of an order to what the warehouse has allocated to
// it: its lines, units and value.
type AllocateLine struct {
	// Order is the order's number.
	Order string `json:"order"`
	// Line is the line's number in its file.
	Line int `json:"line"`
	// SKU is the stock code, or the code of a service such as postage.
	SKU string `json:"sku"`
	// Quantity is negative on cancellations and write-offs, never zero.
	Quantity int64 `json:"quantity"`
	// Price is the price of one unit; zero on samples and write-offs.
	Price Money `json:"price"`
}

// Kind returns "warehouse:allocate".
func (AllocateLine) Kind() string { return "warehouse:allocate" }

// Resource returns "order:" and the order's number.
func (t AllocateLine) Resource() string { return "order:" + trim(t.Order) }

// Validate refuses bad identifiers, a quantity of zero, and a value out of range.
func (t AllocateLine) Validate() error {
	c := checker{kind: t.Kind()}
	c.identifier("order", t.Order)
	c.line("line", t.Line)
	c.identifier("sku", t.SKU)
	c.quantity("quantity", t.Quantity)
	if _, ok := t.Price.Times(t.Quantity); !ok {
		c.refuse("price", "its product with the quantity is out of range")
	}
	return c.err
}

func (t AllocateLine) run(ctx context.Context, b *Book) error {
	order := ledger.Order{Number: trim(t.Order)}
	if err := b.read(ctx, &order); err != nil {
		return err
	}
	amount := t.Price * Money(t.Quantity)
	value, ok := Money(order.Value).Plus(amount)
	if !ok {
		return outOfRange(t, "value")
	}
	order.Lines++
	order.Units += t.Quantity
	order.Value = int64(value)

	e := effect(ctx, t)
	e.Order, e.Line, e.SKU = order.Number, t.Line, foldSKU(t.SKU)
	e.Quantity, e.Amount = t.Quantity, int64(amount)
	return b.ledger.Write(ctx, &order, e)
}
