package tasks

import (
	"context"
	"fmt"

	"github.com/sidingq/siding/tasks/ledger"
)

// PlaceOrder makes an order of a user's basket. A form that was submitted twice
// makes two tasks with one submission, and one order. A user's orders are
// numbered from 1 without gaps.
type PlaceOrder struct {
	// User is who orders.
	User string `json:"user"`
	// Submission identifies the filled-in form. The page makes it up.
	Submission string `json:"submission"`
	// Items is the basket, not empty.
	Items []Item `json:"items"`
}

// An Item is one position of a basket.
type Item struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"` // at least 1
	Price    Money  `json:"price"`    // of one unit, not negative
}

// Kind returns "order:place".
func (PlaceOrder) Kind() string { return "order:place" }

// Resource returns "user:" and the user.
func (t PlaceOrder) Resource() string { return "user:" + trim(t.User) }

// Validate refuses bad identifiers, an empty basket, and a total out of range.
func (t PlaceOrder) Validate() error {
	c := checker{kind: t.Kind()}
	c.identifier("user", t.User)
	c.identifier("submission", t.Submission)
	if len(t.Items) == 0 {
		c.refuse("items", "is empty")
	}
	for i, item := range t.Items {
		c.item(i, item.SKU, item.Quantity)
		if item.Price < 0 {
			c.refuse(fmt.Sprintf("items[%d].price", i), "is negative")
		}
	}
	if _, _, ok := t.total(); !ok {
		c.refuse("items", "the basket's value is out of range")
	}
	return c.err
}

// total returns the units and the value of the basket; ok is false when the value is out of range.
func (t PlaceOrder) total() (units int64, value Money, ok bool) {
	for _, item := range t.Items {
		price, fits := item.Price.Times(item.Quantity)
		if value, ok = value.Plus(price); !ok || !fits {
			return 0, 0, false
		}
		units += item.Quantity
	}
	return units, value, true
}

// run makes no other order of a submission that has made one already. That is no error.
func (t PlaceOrder) run(ctx context.Context, b *Book) error {
	submission := trim(t.Submission)
	user := ledger.User{ID: trim(t.User)}
	number, err := b.ledger.ReadUser(ctx, &user, submission)
	if err != nil || number > 0 {
		return err
	}
	if err := b.think(ctx); err != nil {
		return err
	}
	units, value, _ := t.total()
	user.Placed++
	placement := ledger.Placement{Number: user.Placed, Submission: submission, Items: len(t.Items), Units: units, Value: int64(value)}
	e := effect(ctx, t)
	e.Order, e.Quantity, e.Amount = submission, units, int64(value) // another form is another effect, also of an equal basket
	return b.ledger.WritePlacement(ctx, &user, placement, e)
}
