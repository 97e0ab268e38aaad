package oracle

import (
	"fmt"
	"strings"
)

// isGoods: product codes begin with five digits; POST, DOT, M and the like are
// services, of which there is no stock.
func isGoods(sku string) bool {
	if len(sku) < 5 {
		return false
	}
	for _, c := range []byte(sku[:5]) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// isCancellation: cancellations have numbers of their own, which begin with C.
func isCancellation(order string) bool { return strings.HasPrefix(order, "C") }

// takes is what a line of goods takes from the shelf. The goods of a
// cancellation come back; other negative quantities are write-offs, which leave
// the shelf like sales do.
func takes(l Line) int64 {
	if l.Quantity < 0 && !isCancellation(l.Order) {
		return -l.Quantity
	}
	return l.Quantity
}

// after is the stock once n units were taken: what is sold beyond the shelf is
// on back-order, and goods that come in go to the back-orders first, so that
// never both are above zero.
func (s stockRow) after(n int64) stockRow {
	free := s.OnHand - s.BackOrdered - n
	return stockRow{OnHand: max(free, 0), BackOrdered: max(-free, 0)}
}

// debited: an order is charged to its customer, unless nobody knows who that is
// or it comes to nothing.
func (o *order) debited() bool { return o.customer != "" && o.value != 0 }

// verdict is an audit's, which finds have lines where it expects want; 0 is
// expecting nothing.
func verdict(have, want int64) string {
	switch {
	case want == 0:
		return "unchecked"
	case have == want:
		return "complete"
	case have < want:
		return "partial"
	default:
		return "excess"
	}
}

// expect works out what should be from what went in.
func (c *check) expect(in Input) {
	if in.Lines != nil {
		for l := range in.Lines {
			c.expectLine(l)
		}
	}
	for _, o := range c.orders {
		if o.debited() {
			c.account(o.customer).debited += o.value
		}
	}
	for _, p := range in.Placements {
		u := c.user(strings.TrimSpace(p.User))
		submission := strings.TrimSpace(p.Submission)
		if _, again := u.submissions[submission]; !again {
			u.submissions[submission] = 0
			c.report.Placements++
		}
	}
	c.report.Lines, c.report.Orders = len(c.lines), len(c.orders)
}

func (c *check) expectLine(l Line) {
	l.Order, l.Customer = strings.TrimSpace(l.Order), strings.TrimSpace(l.Customer)
	sku := strings.ToUpper(strings.TrimSpace(l.SKU))
	key := lineKey{l.Order, l.Number}
	if c.lines[key] != nil {
		c.differ("%v: given twice", key)
		return
	}
	goods := isGoods(sku)
	if goods != l.Goods {
		c.differ("%v: %s: want goods %t, have %t from the reader", key, l.SKU, goods, l.Goods)
	}
	if cancelled := isCancellation(l.Order); cancelled != l.Cancellation {
		c.differ("%v: want cancellation %t, have %t from the reader", key, cancelled, l.Cancellation)
	}
	c.lines[key] = &line{Line: l, sku: sku, goods: goods}

	o := c.orders[l.Order]
	if o == nil {
		o = &order{customer: l.Customer}
		c.orders[l.Order] = o
	}
	if o.customer != l.Customer {
		c.differ("%v: want the order's customer %q, have %q", key, o.customer, l.Customer)
	}
	o.lines++
	o.units += l.Quantity
	o.value += l.Quantity * l.Price
	if goods {
		c.stock(sku).deducted += takes(l)
	}
}

// stock, account and user return the entry of a key, made where it is missing.

func (c *check) stock(sku string) *stock {
	if c.skus[sku] == nil {
		c.skus[sku] = &stock{replayed: stockRow{OnHand: c.opening}}
	}
	return c.skus[sku]
}

func (c *check) account(customer string) *account {
	if c.accounts[customer] == nil {
		c.accounts[customer] = &account{}
	}
	return c.accounts[customer]
}

func (c *check) user(id string) *user {
	if c.users[id] == nil {
		c.users[id] = &user{submissions: map[string]int{}}
	}
	return c.users[id]
}

// String names a line for a reader who has the file.
func (k lineKey) String() string { return fmt.Sprintf("line %d of order %s", k.number, k.order) }
