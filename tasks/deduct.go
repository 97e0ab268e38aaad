package tasks

import (
	"context"

	"github.com/sidingq/siding/tasks/ledger"
)

// KindDeductStock is the kind of [DeductStock].
const KindDeductStock = "stock:deduct"

// OpeningStock is how many units of a stock code are on hand when it is seen for
// the first time. The number is made up: order files do not tell stock levels.
const OpeningStock int64 = 1000

// DeductStock takes units of one stock code from the shelf. The shelf never goes
// below zero: what it lacks becomes a back-order.
type DeductStock struct {
	// SKU is the stock code; its case does not matter.
	SKU string `json:"sku"`
	// Quantity is what to take. A negative one is goods that come back: they
	// serve the back-orders first, and the rest goes to the shelf. Never zero.
	Quantity int64 `json:"quantity"`
	// Order and Line say where the deduction comes from.
	Order string `json:"order"`
	Line  int    `json:"line"`
}

// Kind returns "stock:deduct".
func (DeductStock) Kind() string { return KindDeductStock }

// Resource returns "sku:" and the stock code in upper case.
func (t DeductStock) Resource() string { return "sku:" + foldSKU(t.SKU) }

// Validate refuses bad identifiers and a quantity of zero.
func (t DeductStock) Validate() error {
	c := checker{kind: KindDeductStock}
	c.identifier("sku", t.SKU)
	c.quantity("quantity", t.Quantity)
	c.identifier("order", t.Order)
	c.line("line", t.Line)
	return c.err
}

// DeductStock runs the deduction t.
func (b *Book) DeductStock(ctx context.Context, t DeductStock) error {
	stock, err := b.ledger.ReadStock(ctx, foldSKU(t.SKU), OpeningStock)
	if err != nil {
		return err
	}
	if err := b.think(ctx); err != nil {
		return err
	}
	stock, ok := deduct(stock, t.Quantity)
	if !ok {
		return outOfRange(t, "stock")
	}
	e := effect(ctx, t)
	e.Order, e.Line, e.SKU, e.Quantity = trim(t.Order), t.Line, stock.SKU, t.Quantity
	return settle(b.ledger.WriteStock(ctx, stock, e))
}

// deduct takes quantity from s, or brings back as much when it is negative. As
// back-orders come before the shelf on the way in and after it on the way out,
// the end is the same whatever the order of several deductions. ok is false
// when a number is out of range.
func deduct(s ledger.Stock, quantity int64) (_ ledger.Stock, ok bool) {
	if quantity >= 0 {
		taken := min(quantity, s.OnHand)
		s.OnHand -= taken
		s.BackOrdered, ok = add(s.BackOrdered, quantity-taken)
		return s, ok
	}
	served := min(-quantity, s.BackOrdered)
	s.BackOrdered -= served
	s.OnHand, ok = add(s.OnHand, -quantity-served)
	return s, ok
}
