package tasks

import (
	"context"
	"fmt"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks/ledger"
)

// FulfilOrder takes all goods of an order from the shelf at once. If the shelf is short of one of
// them, all stay there. An order is fulfilled once.
type FulfilOrder struct {
	// Order is the order's number.
	Order string `json:"order"`
	// Items are the goods, at least one and no stock code twice.
	Items []Pick `json:"items"`
}

// A Pick is what a fulfilment takes of one stock code.
type Pick struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"` // at least 1
}

// maxPicks leaves one of a task's resources for the order.
const maxPicks = store.MaxResources - 1

// Kind returns "order:fulfil".
func (FulfilOrder) Kind() string { return "order:fulfil" }

// Resource returns "order:" and the order's number, and "sku:" and the stock code of each item.
func (t FulfilOrder) Resource() string {
	all := []string{"order:" + trim(t.Order)}
	for _, item := range t.Items {
		all = append(all, "sku:"+foldSKU(item.SKU))
	}
	return queue.AllOf(all...)
}

// Validate refuses bad identifiers, bad quantities, a stock code that comes twice, and no or too many items.
func (t FulfilOrder) Validate() error {
	c := checker{kind: t.Kind()}
	c.identifier("order", t.Order)
	if n := len(t.Items); n < 1 || n > maxPicks {
		c.refuse("items", "want 1 to %d, have %d", maxPicks, n)
	}
	seen := map[string]bool{}
	for i, item := range t.Items {
		c.item(i, item.SKU, item.Quantity)
		sku := foldSKU(item.SKU)
		if seen[sku] {
			c.refuse(fmt.Sprintf("items[%d].sku", i), "comes twice")
		}
		seen[sku] = true
	}
	return c.err
}

// How an attempt to fulfil an order ends.
const (
	fulfilled = "fulfilled"
	short     = "short"
)

func (t FulfilOrder) run(ctx context.Context, b *Book) error {
	order := ledger.Order{Number: trim(t.Order)}
	stocks := make([]ledger.Stock, len(t.Items))
	rows := []ledger.Row{&order}
	for i, item := range t.Items {
		stocks[i] = ledger.Stock{SKU: foldSKU(item.SKU), OnHand: OpeningStock}
		rows = append(rows, &stocks[i])
	}
	if err := b.read(ctx, rows...); err != nil {
		return err
	}
	if order.Fulfilment != fulfilled { // else the goods have left
		order.Fulfilment = t.take(stocks)
	}
	e := effect(ctx, t)
	e.Order = order.Number
	changes := []ledger.Change{{Row: &order}}
	for i, item := range t.Items {
		part := e
		part.SKU, part.Quantity = stocks[i].SKU, item.Quantity
		changes = append(changes, ledger.Change{Row: &stocks[i], Effect: part})
		e.Quantity += item.Quantity
	}
	changes[0].Effect = e
	return b.ledger.WriteAll(ctx, changes...)
}

// take takes all items from the shelf if there are enough of each, and returns how that ended.
func (t FulfilOrder) take(stocks []ledger.Stock) string {
	for i, item := range t.Items {
		if stocks[i].OnHand < item.Quantity {
			return short
		}
	}
	for i, item := range t.Items {
		stocks[i].OnHand -= item.Quantity
	}
	return fulfilled
}
