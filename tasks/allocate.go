package tasks

import (
	"context"
)

// KindAllocateLine is the kind of [AllocateLine].
const KindAllocateLine = "warehouse:allocate"

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
	// Price is that of one unit; zero on samples and write-offs.
	Price Money `json:"price"`
}

// Kind returns "warehouse:allocate".
func (AllocateLine) Kind() string { return KindAllocateLine }

// Resource returns "order:" and the order's number.
func (t AllocateLine) Resource() string { return "order:" + trim(t.Order) }

// Validate refuses bad identifiers, a quantity of zero, and a value out of range.
func (t AllocateLine) Validate() error {
	c := checker{kind: KindAllocateLine}
	c.identifier("order", t.Order)
	c.line("line", t.Line)
	c.identifier("sku", t.SKU)
	c.quantity("quantity", t.Quantity)
	if _, ok := t.Price.times(t.Quantity); !ok {
		c.refuse("price", "is out of range: its product with the quantity has no place in an integer")
	}
	return c.err
}

// AllocateLine runs the allocation t.
func (b *Book) AllocateLine(ctx context.Context, t AllocateLine) error {
	order, err := b.ledger.ReadOrder(ctx, trim(t.Order))
	if err != nil {
		return err
	}
	if err := b.think(ctx); err != nil {
		return err
	}
	amount, fits := t.Price.times(t.Quantity)
	units, fitsUnits := add(order.Units, t.Quantity)
	value, fitsValue := add(order.Value, int64(amount))
	if !fits || !fitsUnits || !fitsValue {
		return outOfRange(t, "value")
	}
	order.Lines++
	order.Units = units
	order.Value = value

	e := effect(ctx, t)
	e.Order, e.Line, e.SKU = order.Number, t.Line, foldSKU(t.SKU)
	e.Quantity, e.Amount = t.Quantity, int64(amount)
	return settle(b.ledger.WriteOrder(ctx, order, e))
}
