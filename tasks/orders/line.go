package orders

import (
	"fmt"
	"strings"
	"time"

	"github.com/sidingq/siding/tasks"
)

// A Line is one line of an order, as the file has it: nothing is corrected.
type Line struct {
	// Number is where the line begins in the file; the header is line 1. A
	// description may hold line ends, so the next line may be further on.
	Number int
	// Order is the order's number, never empty; a leading C marks a cancellation.
	Order string
	// SKU is the stock code or the code of a service, never empty; case as it stands.
	SKU string
	// Description may be empty and may have trailing blanks.
	Description string
	// Quantity is negative on cancellations and on write-offs.
	Quantity int64
	// Time is when the order was made. Files give no zone: it is kept as UTC.
	Time time.Time
	// Price is that of one unit.
	Price tasks.Money
	// Customer is empty when it is not known.
	Customer string
	Country  string
}

// Cancellation reports whether the line belongs to a cancellation.
func (l Line) Cancellation() bool { return strings.HasPrefix(l.Order, "C") }

// Goods reports whether the line is about goods, whose codes begin with five
// digits; all others are services such as postage (POST) and have no stock.
func (l Line) Goods() bool {
	const digits = 5
	if len(l.SKU) < digits {
		return false
	}
	for _, c := range []byte(l.SKU[:digits]) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// A LineError says why one line of a file was refused. The lines behind it can
// still be read.
type LineError struct {
	Line  int    // where the line begins; the header is line 1
	Field string // what is wrong, such as "quantity"; empty for the line as a whole
	Value string // what stands there, shortened
	Want  string // what is wanted instead
}

// Error reads like: line 14: quantity: want a whole number, have "six".
func (e *LineError) Error() string {
	text := fmt.Sprintf("line %d: ", e.Line)
	if e.Field != "" {
		text += e.Field + ": "
	}
	text += e.Want
	if e.Value != "" {
		text += fmt.Sprintf(", have %q", e.Value)
	}
	return text
}

// clip shortens a value for an error text, between characters.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
