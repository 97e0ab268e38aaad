package oracle

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
)

// readRows reads the rows of the database and compares the sums that do not
// depend on the order of the tasks with those of the lines.
func (c *check) readRows(ctx context.Context, db *sql.DB) error {
	for _, table := range []struct {
		query string
		row   func(*sql.Rows) error
	}{
		{"SELECT order_no, lines, units, value, audits, audited_lines, verdict FROM orders ORDER BY order_no", c.orderRow},
		{"SELECT sku, on_hand, back_ordered FROM stock ORDER BY sku", c.stockRow},
		{"SELECT customer, balance FROM accounts ORDER BY customer", c.accountRow},
		{"SELECT user_id, placed FROM users ORDER BY user_id", c.userRow},
	} {
		if err := each(ctx, db, table.query, table.row); err != nil {
			return err
		}
	}
	return nil
}

func (c *check) orderRow(rows *sql.Rows) error {
	var number string
	var r orderRow
	if err := rows.Scan(&number, &r.Lines, &r.Units, &r.Value, &r.Audits, &r.AuditedLines, &r.Verdict); err != nil {
		return err
	}
	o := c.orders[number]
	if o == nil {
		c.differ("order %s: no such order went in", number)
		return nil
	}
	o.row = &r
	if r.Lines != o.lines || r.Units != o.units || r.Value != o.value {
		c.differ("order %s: want %d lines, %d units, value %d as in the file, have %d, %d, %d",
			number, o.lines, o.units, o.value, r.Lines, r.Units, r.Value)
	}
	return nil
}

func (c *check) stockRow(rows *sql.Rows) error {
	var sku string
	var r stockRow
	if err := rows.Scan(&sku, &r.OnHand, &r.BackOrdered); err != nil {
		return err
	}
	s := c.stock(sku)
	s.row = &r
	if have := c.opening - r.OnHand + r.BackOrdered; have != s.deducted {
		c.differ("stock %s: want %d units deducted as in the file, have %d", sku, s.deducted, have)
	}
	return nil
}

func (c *check) accountRow(rows *sql.Rows) error {
	var customer string
	var r accountRow
	if err := rows.Scan(&customer, &r.Balance); err != nil {
		return err
	}
	a := c.account(customer)
	a.row = &r
	if r.Balance != -a.debited {
		c.differ("account %s: want balance %d as in the file, have %d", customer, -a.debited, r.Balance)
	}
	return nil
}

func (c *check) userRow(rows *sql.Rows) error {
	var id string
	var r userRow
	if err := rows.Scan(&id, &r.Placed); err != nil {
		return err
	}
	u := c.user(id)
	u.row = &r
	if want := int64(len(u.submissions)); r.Placed != want {
		c.differ("user %s: want %d orders, one for each submission, have %d", id, want, r.Placed)
	}
	return nil
}

// compareRows compares the rows with the ends of the replay. What the lines or
// the journal know must be there.
func (c *check) compareRows() {
	for number, o := range sorted(c.orders) {
		same(c, "order "+number, o.replayed, o.row)
	}
	for sku, s := range sorted(c.skus) {
		same(c, "stock "+sku, s.replayed, s.row)
	}
	for customer, a := range sorted(c.accounts) {
		same(c, "account "+customer, a.replayed, a.row)
	}
	for id, u := range sorted(c.users) {
		same(c, "user "+id, u.replayed, u.row)
	}
}

func same[R comparable](c *check, what string, replayed R, row *R) {
	switch {
	case row == nil:
		c.differ("%s: want a row, have none", what)
	case *row != replayed:
		c.differ("%s: want %+v after the replay, have %+v", what, replayed, *row)
	}
}

// complete checks that nothing is missing and nothing was done twice.
func (c *check) complete() {
	keys := slices.SortedFunc(maps.Keys(c.lines), func(a, b lineKey) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.order, b.order))
	})
	for _, key := range keys {
		l := c.lines[key]
		if l.allocations != 1 {
			c.differ("%v: want 1 allocation, have %d", key, l.allocations)
		}
		if want := btoi(l.goods); l.deducted != want {
			c.differ("%v: want %d deductions, have %d", key, want, l.deducted)
		}
	}
	for number, o := range sorted(c.orders) {
		if o.audits != 1 {
			c.differ("order %s: want 1 audit, have %d", number, o.audits)
		}
		if want := btoi(o.debited()); o.debits != want {
			c.differ("order %s: want %d debits, have %d", number, want, o.debits)
		}
	}
}

// comparePlacements checks that each submission made one order, and that each
// user's orders are numbered from 1 without gaps.
func (c *check) comparePlacements(ctx context.Context, db *sql.DB) error {
	last := map[string]int64{}
	err := each(ctx, db, "SELECT user_id, number, submission FROM placements ORDER BY user_id, number", func(rows *sql.Rows) error {
		var id, submission string
		var number int64
		if err := rows.Scan(&id, &number, &submission); err != nil {
			return err
		}
		if number != last[id]+1 {
			c.differ("user %s: want order number %d, have %d", id, last[id]+1, number)
		}
		last[id] = number
		u := c.user(id)
		if _, known := u.submissions[submission]; !known {
			c.differ("user %s: no such submission %s went in", id, submission)
			return nil
		}
		u.submissions[submission]++
		return nil
	})
	if err != nil {
		return err
	}
	for id, u := range sorted(c.users) {
		for submission, found := range sorted(u.submissions) {
			if found != 1 {
				c.differ("user %s: submission %s: want 1 order, have %d", id, submission, found)
			}
		}
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sorted goes through m by key, so that a report reads the same every time.
func sorted[V any](m map[string]V) func(func(string, V) bool) {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

// each calls row for every row of query.
func each(ctx context.Context, db *sql.DB, query string, row func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	return nil
}
