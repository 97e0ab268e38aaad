package tasks

import (
	"context"

	"github.com/sidingq/siding/tasks/ledger"
)

// OpeningStock is how many units of a new stock code are on hand. The number is
// made up: order files do not tell stock levels.
const OpeningStock int64 = 1000

// DeductStock takes units of one stock code from the shelf. The shelf never goes
// below zero: missing units become back-orders.
type DeductStock struct {
	// SKU is the stock code; its case does not matter.
	SKU string `json:"sku"`
	// Quantity is never zero. A negative one is goods that come back: they serve
	// the back-orders first, and the rest goes to the shelf.
	Quantity int64 `json:"quantity"`
	// Order and Line say where the deduction comes from.
	Order string `json:"order"`
	Line  int    `json:"line"`
}

// Kind returns "stock:deduct".
func (DeductStock) Kind() string { return "stock:deduct" }

// Resource returns "sku:" and the stock code in upper case.
func (t DeductStock) Resource() string { return "sku:" + foldSKU(t.SKU) }

// Validate refuses bad identifiers and a quantity of zero.
func (t DeductStock) Validate() error {
	c := checker{kind: t.Kind()}
	c.identifier("sku", t.SKU)
	c.quantity("quantity", t.Quantity)
	c.identifier("order", t.Order)
	c.line("line", t.Line)
	return c.err
}

func (t DeductStock) run(ctx context.Context, b *Book) error {
	stock := ledger.Stock{SKU: foldSKU(t.SKU), OnHand: OpeningStock}
	if err := b.read(ctx, &stock); err != nil {
		return err
	}
	// Goods leave from the shelf first, and then become back-orders. Goods that return serve
	// back-orders first. So several deductions have the same end in any order.
	if t.Quantity >= 0 {
		taken := min(t.Quantity, stock.OnHand)
		stock.OnHand -= taken
		stock.BackOrdered += t.Quantity - taken
	} else {
		served := min(-t.Quantity, stock.BackOrdered)
		stock.BackOrdered -= served
		stock.OnHand += -t.Quantity - served
	}
	e := effect(ctx, t)
	e.Order, e.Line, e.SKU, e.Quantity = trim(t.Order), t.Line, stock.SKU, t.Quantity
	return b.ledger.Write(ctx, &stock, e)
}
