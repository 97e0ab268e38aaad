// Package oracle checks the ledger of a finished run against the orders that
// went into it. It works from the order lines and the database alone and shares
// no code with the tasks that wrote it: the business rules are written down here
// a second time, so that a mistake in one place does not excuse itself in the
// other.
//
// It checks that
//
//   - each line has been applied exactly once: one allocation per line, one
//     deduction per line of goods, one debit per order with a customer and a
//     value, one audit per order, one order per submission;
//   - replaying the journal in the order of the fencing tokens gives every
//     after-value that it recorded, and in the end every row of the database;
//   - no two effects on one resource have the same fencing token;
//   - the sums that do not depend on any order are those of the lines.
//
// A lost update shows as an after-value that the replay does not arrive at, a
// lost task as a missing effect, a task that ran twice as a surplus one.
package oracle

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"iter"
	"strings"
)

// A Line is one line of an order file that was accepted; lines that were
// refused must not be given.
type Line struct {
	Number   int // in the file
	Order    string
	SKU      string
	Quantity int64
	Price    int64 // of a unit, in ten-thousandths of a pound
	Customer string
	// Cancellation and Goods are what the caller makes of the line. The oracle
	// decides for itself and reports where the two disagree.
	Cancellation bool
	Goods        bool
}

// A Placement is a submission that should have become an order. Giving one
// twice is giving it once, as a double submission makes one order.
type Placement struct {
	User       string
	Submission string
}

// Input is what went into the run.
type Input struct {
	// Lines are the order lines. A nil Lines has none.
	Lines iter.Seq[Line]
	// Placements are the submissions.
	Placements []Placement
	// OpeningStock is how many units of every stock code there were at first.
	OpeningStock int64
	// MostTexts is how many differences are described; all are counted.
	// Defaults to 20.
	MostTexts int
}

// A Report says what was checked and what was found.
type Report struct {
	Lines       int // that went in
	Orders      int // that they belong to
	Placements  int // different submissions that went in
	Effects     int // in the journal
	Differences int
	Texts       []string // the first differences
}

// OK reports whether the ledger is what it should be.
func (r Report) OK() bool { return r.Differences == 0 }

// String is the report as text, one difference a line.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d lines of %d orders, %d placements, %d effects: ", r.Lines, r.Orders, r.Placements, r.Effects)
	if r.OK() {
		b.WriteString("no differences")
		return b.String()
	}
	fmt.Fprintf(&b, "%d differences", r.Differences)
	for _, text := range r.Texts {
		b.WriteString("\n  " + text)
	}
	if more := r.Differences - len(r.Texts); more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return b.String()
}

// Check compares the ledger in db with what went into it. Nothing may be writing
// to it meanwhile. The error is one of the database; differences are no error.
func Check(ctx context.Context, db *sql.DB, in Input) (Report, error) {
	c := &check{
		opening:  in.OpeningStock,
		most:     cmp.Or(in.MostTexts, 20),
		lines:    map[lineKey]*line{},
		orders:   map[string]*order{},
		skus:     map[string]*stock{},
		accounts: map[string]*account{},
		users:    map[string]*user{},
	}
	c.expect(in)
	// The sums first: they say it in the plainest words.
	for _, step := range []func(context.Context, *sql.DB) error{c.readRows, c.comparePlacements, c.replay} {
		if err := step(ctx, db); err != nil {
			return c.report, fmt.Errorf("oracle: %w", err)
		}
	}
	c.compareRows()
	c.complete()
	return c.report, nil
}

// A check is one run of Check. Its maps hold, side by side, what should be and
// what the replay has come to.
type check struct {
	opening  int64
	most     int
	lines    map[lineKey]*line
	orders   map[string]*order
	skus     map[string]*stock
	accounts map[string]*account
	users    map[string]*user
	report   Report
}

func (c *check) differ(format string, args ...any) {
	c.report.Differences++
	if len(c.report.Texts) < c.most {
		c.report.Texts = append(c.report.Texts, fmt.Sprintf(format, args...))
	}
}

// A lineKey is unique in one file, and also where several files went into one
// ledger, as their orders differ.
type lineKey struct {
	order  string
	number int
}

type line struct {
	Line
	sku                   string // as the ledger knows it
	goods                 bool
	allocations, deducted int
}

type order struct {
	customer            string
	lines, units, value int64 // expected
	audits, debits      int   // found
	replayed            orderRow
	row                 *orderRow // in the database
	fence               int64
}

type stock struct {
	deducted int64 // expected, net
	replayed stockRow
	row      *stockRow
	fence    int64
}

type account struct {
	debited  int64 // expected, net
	replayed accountRow
	row      *accountRow
	fence    int64
}

type user struct {
	submissions map[string]int // expected, with how often each was found
	replayed    userRow
	row         *userRow
	fence       int64
}

// The rows as the journal's after-values and the tables hold them.
type (
	orderRow struct {
		Lines        int64  `json:"lines"`
		Units        int64  `json:"units"`
		Value        int64  `json:"value"`
		Audits       int64  `json:"audits"`
		AuditedLines int64  `json:"audited_lines"`
		Verdict      string `json:"verdict"`
	}
	stockRow struct {
		OnHand      int64 `json:"on_hand"`
		BackOrdered int64 `json:"back_ordered"`
	}
	accountRow struct {
		Balance int64 `json:"balance"`
	}
	userRow struct {
		Placed int64 `json:"placed"`
	}
)
