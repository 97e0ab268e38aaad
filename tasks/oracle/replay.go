package oracle

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// A resource is the state of a resource in the replay.
type resource struct {
	row    row
	fence  int64 // of the last effect
	stored bool  // the database has a row of it
}

// A row has the columns of all tables. A resource uses those of its own table.
type row struct {
	Lines        int64  `json:"lines,omitempty"`
	Units        int64  `json:"units,omitempty"`
	Value        int64  `json:"value,omitempty"`
	Audits       int64  `json:"audits,omitempty"`
	AuditedLines int64  `json:"audited_lines,omitempty"`
	Verdict      string `json:"verdict,omitempty"`
	Fulfilment   string `json:"fulfilment,omitempty"`
	OnHand       int64  `json:"on_hand,omitempty"`
	BackOrdered  int64  `json:"back_ordered,omitempty"`
	Balance      int64  `json:"balance,omitempty"`
	Declined     int64  `json:"declined,omitempty"`
	Placed       int    `json:"placed,omitempty"`
}

// String writes what is not zero, like the after-values of the journal.
func (r row) String() string {
	text, _ := json.Marshal(r) // numbers and text: no error
	return string(text)
}

// resource returns the resource of a name. A new one is as the shop opened.
func (c *check) resource(name string) *resource {
	r := c.resources[name]
	if r == nil {
		r = &resource{}
		if strings.HasPrefix(name, "sku:") {
			r.row.OnHand = c.opening
		}
		c.resources[name] = r
	}
	return r
}

const stored = `
	SELECT 'order:' || order_no, lines, units, value, audits, audited_lines, verdict, fulfilment, 0, 0, 0, 0, 0 FROM orders UNION ALL
	SELECT 'sku:' || sku, 0, 0, 0, 0, 0, '', '', on_hand, back_ordered, 0, 0, 0 FROM stock UNION ALL
	SELECT 'account:' || customer, 0, 0, 0, 0, 0, '', '', 0, 0, balance, declined, 0 FROM accounts UNION ALL
	SELECT 'user:' || user_id, 0, 0, 0, 0, 0, '', '', 0, 0, 0, 0, placed FROM users ORDER BY 1`

// compare compares a row of the database with the end of the replay.
func (c *check) compare(rows *sql.Rows) error {
	var name string
	var have row
	if err := rows.Scan(&name, &have.Lines, &have.Units, &have.Value, &have.Audits, &have.AuditedLines, &have.Verdict, &have.Fulfilment,
		&have.OnHand, &have.BackOrdered, &have.Balance, &have.Declined, &have.Placed); err != nil {
		return err
	}
	r := c.resources[name]
	switch {
	case r == nil:
		c.differ("%s: want no row, as no task wrote it, have %v", name, have)
		return nil
	case r.row != have:
		c.differ("%s: want %v after the replay, have %v", name, r.row, have)
	}
	r.stored = true
	return nil
}

// An effect is one row of the journal.
type effect struct {
	task, kind, subject, order, sku, after string
	fence, quantity, amount                int64
	line                                   int
}

// String names an effect.
func (e effect) String() string {
	return fmt.Sprintf("task %s, %s on %s, fence %d", e.task, e.kind, e.subject, e.fence)
}

// The fences give the order in which the holders of each resource held its lock.
const journal = `SELECT task_id, kind, subject, fence, order_no, line, sku, quantity, amount, row_after FROM journal ORDER BY fence, task_id, subject`

// replay applies one effect and compares the outcome with the after-value in the journal. The
// replay goes on from the after-value, so one lost update is one difference.
func (c *check) replay(rows *sql.Rows) error {
	var e effect
	if err := rows.Scan(&e.task, &e.kind, &e.subject, &e.fence, &e.order, &e.line, &e.sku, &e.quantity, &e.amount, &e.after); err != nil {
		return err
	}
	c.report.Effects++
	r := c.resource(e.subject)
	if e.fence == r.fence {
		c.differ("%v: another effect on it has the same fence", e)
	}
	r.fence = e.fence
	var after row
	err := json.Unmarshal([]byte(e.after), &after)
	c.apply(e, &r.row, after)
	if err != nil {
		c.differ("%v: after-value %q: %v", e, e.after, err)
	} else if after != r.row {
		c.differ("%v: want %v afterwards, have %v", e, r.row, after)
		r.row = after
	}
	return nil
}

// apply changes the row of an effect by the rules of the business, and counts the
// effect where it belongs. Whether a task of several resources has changed them is
// seen in the after-value, since the replay comes to the others at another time.
func (c *check) apply(e effect, r *row, after row) {
	o, l := c.orders[e.order], c.lines[lineName(e.line, e.order)]
	switch e.kind {
	case "warehouse:allocate":
		r.Lines++
		r.Units += e.quantity
		r.Value += e.amount
		if l == nil || e.subject != "order:"+e.order {
			c.differ("%v: no such line", e)
			return
		}
		l.allocations++
		if e.sku != l.SKU || e.quantity != l.Quantity || e.amount != l.Quantity*l.Price {
			c.differ("%v: want %d of %s for %d, have %d of %s for %d", e, l.Quantity, l.SKU, l.Quantity*l.Price, e.quantity, e.sku, e.amount)
		}
	case "order:audit":
		r.Audits++
		r.AuditedLines, r.Verdict = r.Lines, verdict(r.Lines, e.quantity)
		if o == nil || e.subject != "order:"+e.order {
			c.differ("%v: no such order", e)
			return
		}
		o.audits++
		if e.quantity != 0 && e.quantity != o.lines {
			c.differ("%v: want %d lines to be expected, have %d", e, o.lines, e.quantity)
		}
	case "stock:deduct":
		// A sale beyond the shelf makes back-orders, and goods that come in serve them first:
		// never both are above zero.
		free := r.OnHand - r.BackOrdered - e.quantity
		r.OnHand, r.BackOrdered = max(free, 0), max(-free, 0)
		if l == nil || !isGoods(l.SKU) || e.subject != "sku:"+l.SKU {
			c.differ("%v: no such line of goods", e)
			return
		}
		l.deductions++
		if e.sku != l.SKU || e.quantity != takes(l.Line) {
			c.differ("%v: want %d of %s, have %d of %s", e, takes(l.Line), l.SKU, e.quantity, e.sku)
		}
	case "balance:debit":
		r.Balance -= e.amount
		if o == nil || o.customer == "" || e.subject != "account:"+o.customer {
			c.differ("%v: no such order of the customer", e)
			return
		}
		o.debits++
		if e.amount != o.value {
			c.differ("%v: want the order's value %d, have %d", e, o.value, e.amount)
		}
	case "order:place":
		r.Placed++
	case "balance:transfer":
		changed := after.Balance != r.Balance
		c.join(e, e.amount, e.amount < 0 || r.Balance >= e.amount, changed)
		switch {
		case changed:
			r.Balance -= e.amount
		case e.amount > 0:
			r.Declined++
		}
	case "order:fulfil":
		if e.sku == "" {
			able := r.Fulfilment != "fulfilled"
			changed := able && after.Fulfilment == "fulfilled"
			c.join(e, e.quantity, able, changed)
			switch {
			case changed:
				r.Fulfilment = "fulfilled"
			case able:
				r.Fulfilment = "short"
			}
			return
		}
		changed := after.OnHand != r.OnHand
		c.join(e, e.quantity, r.OnHand >= e.quantity, changed)
		if changed {
			r.OnHand -= e.quantity
		}
	default:
		c.differ("%v: kind %q is not known", e, e.kind)
	}
}

// A set is what a task of several resources did to them.
type set struct {
	kind    string
	parts   []string // one for each resource
	able    bool     // each resource allowed the change
	changed int      // resources
}

// join adds an effect to the set of its task.
func (c *check) join(e effect, n int64, able, changed bool) {
	s := c.sets[e.task]
	if s == nil {
		s = &set{kind: e.kind, able: true}
		c.sets[e.task] = s
	}
	s.parts = append(s.parts, part(e.subject, n))
	s.able = s.able && able
	if changed {
		s.changed++
	}
}

// part names a resource, and what is taken from it.
func part(resource string, n int64) string { return fmt.Sprintf("%s %d", resource, n) }

// setName names a set. Equal tasks have one name.
func setName(kind string, parts []string) string {
	slices.Sort(parts)
	return kind + ": " + strings.Join(parts, ", ")
}

// isGoods: product codes begin with five digits. POST, DOT, M and the like are
// services, which have no stock.
func isGoods(sku string) bool {
	return len(sku) >= 5 && strings.Trim(sku[:5], "0123456789") == ""
}

// takes returns the units that a line of goods takes from the shelf. The goods of
// a cancellation, whose number begins with C, come back. Other negative quantities
// are write-offs, which leave the shelf like sales.
func takes(l Line) int64 {
	if l.Quantity < 0 && !strings.HasPrefix(l.Order, "C") {
		return -l.Quantity
	}
	return l.Quantity
}

// verdict is that of an audit that finds have lines and expects want; 0 expects
// nothing.
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
