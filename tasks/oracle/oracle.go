// Package oracle checks the ledger of a finished run against the orders that went into it. The
// oracle works from the order lines and the database alone, and shares no code with the tasks. It
// has the business rules a second time, so that a mistake in one shows.
//
// The oracle checks that
//
//   - each line has been applied exactly once: one allocation per line, one
//     deduction per line of goods, one debit per order with a customer and a
//     value, one audit per order, one order per submission, one task per transfer
//     and fulfilment;
//   - replaying the journal in the order of the fencing tokens gives every
//     after-value that it recorded, and in the end every row of the database;
//   - no two effects on one resource have the same fencing token;
//   - a task of several resources has changed all of them if it could, and else
//     none.
//
// A lost update shows as an after-value that differs from the replay. A lost task shows as a
// missing effect, and a task with two effects as a surplus one.
package oracle

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// A Line is one line of an order file that was accepted.
type Line struct {
	Number   int // in the file
	Order    string
	SKU      string
	Quantity int64
	Price    int64 // of a unit, in ten-thousandths of a pound
	Customer string
}

// A Placement is a submission that makes an order. A double submission makes one
// order, too.
type Placement struct {
	User       string
	Submission string
}

// A Transfer moves an amount between the accounts of two customers.
type Transfer struct {
	From, To string
	Amount   int64 // in ten-thousandths of a pound
}

// A Fulfilment takes the goods of an order from the shelf.
type Fulfilment struct {
	Order string
	Units map[string]int64 // of each stock code
}

// Input is what went into the run.
type Input struct {
	// Lines are the order lines.
	Lines iter.Seq[Line]
	// Placements are the submissions.
	Placements []Placement
	// Transfers and Fulfilments are the tasks of several resources.
	Transfers   []Transfer
	Fulfilments []Fulfilment
	// OpeningStock is how many units of every stock code there were at first.
	OpeningStock int64
}

// A Report is the outcome of a check.
type Report struct {
	Lines       int // that went in
	Orders      int // that they belong to
	Placements  int // different submissions that went in
	Effects     int // in the journal
	Differences []string
}

// OK reports whether the ledger is what it should be.
func (r Report) OK() bool { return len(r.Differences) == 0 }

// String is the report as text: one difference a line, and at most 20 of them.
func (r Report) String() string {
	text := fmt.Sprintf("%d lines of %d orders, %d placements, %d effects: ", r.Lines, r.Orders, r.Placements, r.Effects)
	if r.OK() {
		return text + "no differences"
	}
	shown := r.Differences[:min(20, len(r.Differences))]
	text += fmt.Sprintf("%d differences\n  %s", len(r.Differences), strings.Join(shown, "\n  "))
	if more := len(r.Differences) - len(shown); more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return text
}

// Check compares the ledger in db with in. Nobody may write to the ledger
// meanwhile. The error is one of the database; differences are no error.
func Check(ctx context.Context, db *sql.DB, in Input) (Report, error) {
	c := &check{
		opening:     in.OpeningStock,
		lines:       map[string]*line{},
		orders:      map[string]*order{},
		submissions: map[Placement]int{},
		numbers:     map[string]int{},
		resources:   map[string]*resource{},
		sets:        map[string]*set{},
		wanted:      map[string]int{},
	}
	c.expect(in)
	for _, step := range []struct {
		query string
		row   func(*sql.Rows) error
	}{{journal, c.replay}, {stored, c.compare}, {placements, c.place}} {
		if err := each(ctx, db, step.query, step.row); err != nil {
			return c.report, fmt.Errorf("oracle: %w", err)
		}
	}
	c.complete()
	return c.report, nil
}

// each calls row for every row of query.
func each(ctx context.Context, db *sql.DB, query string, row func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// A check is one run of Check: what should be, and what was found.
type check struct {
	opening     int64
	lines       map[string]*line // by lineName
	orders      map[string]*order
	submissions map[Placement]int    // with the number of orders each has made
	numbers     map[string]int       // of each user's last order
	resources   map[string]*resource // by name, such as sku:85123A
	sets        map[string]*set      // by the id of their task
	wanted      map[string]int       // how many sets of each name went in
	report      Report
}

type line struct {
	Line
	allocations, deductions int // found
}

type order struct {
	customer       string
	lines, value   int64 // expected
	audits, debits int   // found
}

func (c *check) differ(format string, args ...any) {
	c.report.Differences = append(c.report.Differences, fmt.Sprintf(format, args...))
}

// lineName names a line, also where several files went into one ledger: their
// orders differ.
func lineName(number int, order string) string {
	return fmt.Sprintf("line %d of order %s", number, order)
}

// expect makes the expected lines, orders and submissions.
func (c *check) expect(in Input) {
	for l := range in.Lines {
		l.Order, l.Customer = strings.TrimSpace(l.Order), strings.TrimSpace(l.Customer)
		l.SKU = strings.ToUpper(strings.TrimSpace(l.SKU))
		name := lineName(l.Number, l.Order)
		if c.lines[name] != nil {
			c.differ("%s: given twice", name)
			continue
		}
		c.lines[name] = &line{Line: l}
		o := c.orders[l.Order]
		if o == nil {
			o = &order{customer: l.Customer}
			c.orders[l.Order] = o
		}
		if o.customer != l.Customer {
			c.differ("%s: want the order's customer %q, have %q", name, o.customer, l.Customer)
		}
		o.lines++
		o.value += l.Quantity * l.Price
	}
	for _, p := range in.Placements {
		c.submissions[Placement{strings.TrimSpace(p.User), strings.TrimSpace(p.Submission)}] = 0
	}
	for _, t := range in.Transfers {
		c.wanted[setName("balance:transfer", []string{
			part("account:"+strings.TrimSpace(t.From), t.Amount), part("account:"+strings.TrimSpace(t.To), -t.Amount),
		})]++
	}
	for _, f := range in.Fulfilments {
		var parts []string
		total := int64(0)
		for sku, units := range f.Units {
			parts = append(parts, part("sku:"+strings.ToUpper(strings.TrimSpace(sku)), units))
			total += units
		}
		c.wanted[setName("order:fulfil", append(parts, part("order:"+strings.TrimSpace(f.Order), total)))]++
	}
	c.report.Lines, c.report.Orders, c.report.Placements = len(c.lines), len(c.orders), len(c.submissions)
}

const placements = "SELECT user_id, submission, number FROM placements ORDER BY user_id, number"

// place checks that each submission makes one order, and that a user's orders
// are numbered from 1 without gaps.
func (c *check) place(rows *sql.Rows) error {
	var p Placement
	var number int
	if err := rows.Scan(&p.User, &p.Submission, &number); err != nil {
		return err
	}
	c.numbers[p.User]++
	if want := c.numbers[p.User]; number != want {
		c.differ("user %s: want order number %d, have %d", p.User, want, number)
	}
	if _, known := c.submissions[p]; !known {
		c.differ("user %s: no such submission %s went in", p.User, p.Submission)
		return nil
	}
	c.submissions[p]++
	return nil
}

// complete checks that nothing is missing and nothing was done twice.
func (c *check) complete() {
	before := len(c.report.Differences)
	for name, l := range c.lines {
		c.count(name+": allocations", true, l.allocations)
		c.count(name+": deductions", isGoods(l.SKU), l.deductions)
	}
	for number, o := range c.orders {
		c.count("order "+number+": audits", true, o.audits)
		c.count("order "+number+": debits", o.customer != "" && o.value != 0, o.debits)
	}
	for p, orders := range c.submissions {
		c.count("user "+p.User+": orders of submission "+p.Submission, true, orders)
		c.resource("user:" + p.User) // so that its row is looked for
	}
	found := map[string]int{}
	for task, s := range c.sets {
		name, want := setName(s.kind, s.parts), 0
		if s.able {
			want = len(s.parts)
		}
		if s.changed != want {
			c.differ("task %s, %s: want %d resources changed, have %d", task, name, want, s.changed)
		}
		found[name]++
		c.wanted[name] += 0 // so that it is looked at
	}
	for name, want := range c.wanted {
		if found[name] != want {
			c.differ("%s: want %d, have %d", name, want, found[name])
		}
	}
	for name, r := range c.resources {
		if !r.stored {
			c.differ("%s: want a row, have none", name)
		}
		if user, ok := strings.CutPrefix(name, "user:"); ok && r.row.Placed != c.numbers[user] {
			c.differ("%s: want %d orders placed, have %d", name, c.numbers[user], r.row.Placed)
		}
	}
	slices.Sort(c.report.Differences[before:])
}

// count checks that something was done once, or not at all.
func (c *check) count(what string, once bool, have int) {
	want := 0
	if once {
		want = 1
	}
	if have != want {
		c.differ("%s: want %d, have %d", what, want, have)
	}
}
