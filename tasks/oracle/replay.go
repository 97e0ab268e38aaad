package oracle

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
)

// An entry is one row of the journal.
type entry struct {
	task, kind, subject, order, sku, after string
	fence, quantity, amount                int64
	line                                   int
}

// replay goes through the journal by fence: that is the order in which the
// holders of each resource held it, whatever order they wrote in.
func (c *check) replay(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `SELECT task_id, kind, subject, fence, order_no, line, sku, quantity, amount, row_after
		FROM journal ORDER BY fence, task_id`)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var e entry
		if err := rows.Scan(&e.task, &e.kind, &e.subject, &e.fence, &e.order, &e.line, &e.sku, &e.quantity, &e.amount, &e.after); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		c.report.Effects++
		c.apply(e)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

func (c *check) apply(e entry) {
	switch e.kind {
	case "warehouse:allocate":
		c.applyAllocation(e)
	case "order:audit":
		c.applyAudit(e)
	case "stock:deduct":
		c.applyDeduction(e)
	case "balance:debit":
		c.applyDebit(e)
	case "order:place":
		c.applyPlacement(e)
	default:
		c.differ("%v: kind %q is not known", e, e.kind)
	}
}

func (c *check) applyAllocation(e entry) {
	o := c.orderOf(e)
	if o == nil {
		return
	}
	o.replayed.Lines++
	o.replayed.Units += e.quantity
	o.replayed.Value += e.amount
	follow(c, e, &o.fence, &o.replayed)

	l := c.lines[lineKey{e.order, e.line}]
	if l == nil {
		c.differ("%v: no such line", e)
		return
	}
	l.allocations++
	if e.sku != l.sku || e.quantity != l.Quantity || e.amount != l.Quantity*l.Price {
		c.differ("%v: want %d of %s for %d, have %d of %s for %d", e, l.Quantity, l.sku, l.Quantity*l.Price, e.quantity, e.sku, e.amount)
	}
}

func (c *check) applyAudit(e entry) {
	o := c.orderOf(e)
	if o == nil {
		return
	}
	o.audits++
	if e.quantity != 0 && e.quantity != o.lines {
		c.differ("%v: want %d lines to be expected, have %d", e, o.lines, e.quantity)
	}
	o.replayed.Audits++
	o.replayed.AuditedLines = o.replayed.Lines
	o.replayed.Verdict = verdict(o.replayed.Lines, e.quantity)
	follow(c, e, &o.fence, &o.replayed)
}

// orderOf returns the order that e is about, nil where there is none.
func (c *check) orderOf(e entry) *order {
	o := c.orders[e.order]
	if o == nil || e.subject != "order:"+e.order {
		c.differ("%v: no such order", e)
		return nil
	}
	return o
}

func (c *check) applyDeduction(e entry) {
	sku, ok := strings.CutPrefix(e.subject, "sku:")
	if !ok || sku != e.sku {
		c.differ("%v: want the resource sku:%s", e, e.sku)
		return
	}
	s := c.stock(sku)
	s.replayed = s.replayed.after(e.quantity)
	follow(c, e, &s.fence, &s.replayed)

	l := c.lines[lineKey{e.order, e.line}]
	if l == nil || !l.goods {
		c.differ("%v: no such line of goods", e)
		return
	}
	l.deducted++
	if e.sku != l.sku || e.quantity != takes(l.Line) {
		c.differ("%v: want %d of %s, have %d of %s", e, takes(l.Line), l.sku, e.quantity, e.sku)
	}
}

func (c *check) applyDebit(e entry) {
	customer, ok := strings.CutPrefix(e.subject, "account:")
	if !ok || customer == "" {
		c.differ("%v: want the resource account:<customer>", e)
		return
	}
	a := c.account(customer)
	a.replayed.Balance -= e.amount
	follow(c, e, &a.fence, &a.replayed)

	o := c.orders[e.order]
	if o == nil || o.customer != customer {
		c.differ("%v: no such order of the customer", e)
		return
	}
	o.debits++
	if e.amount != o.value {
		c.differ("%v: want the order's value %d, have %d", e, o.value, e.amount)
	}
}

func (c *check) applyPlacement(e entry) {
	id, ok := strings.CutPrefix(e.subject, "user:")
	if !ok || c.users[id] == nil {
		c.differ("%v: no such user", e)
		return
	}
	u := c.users[id]
	u.replayed.Placed++
	follow(c, e, &u.fence, &u.replayed)
}

// follow compares what the replay has come to with what the journal says, and
// goes on from there: one lost update is one difference, not one for every
// effect behind it. The end of the replay is compared apart.
func follow[R comparable](c *check, e entry, fence *int64, replayed *R) {
	if e.fence == *fence {
		c.differ("%v: another effect on it has the same fence", e)
	}
	*fence = e.fence
	var after R
	if err := json.Unmarshal([]byte(e.after), &after); err != nil {
		c.differ("%v: after-value %q: %v", e, e.after, err)
		return
	}
	if after != *replayed {
		c.differ("%v: want %+v afterwards, have %+v", e, *replayed, after)
		*replayed = after
	}
}

// String names an entry.
func (e entry) String() string {
	return fmt.Sprintf("task %s, %s on %s, fence %d", e.task, e.kind, e.subject, e.fence)
}
