package orders

import (
	"fmt"
	"strings"

	"github.com/sidingq/siding/tasks"
)

// A Line is one line of an order, as the file has it: nothing is corrected.
type Line struct {
	// Number is where the line begins in the file; the header is line 1. A
	// description with line ends takes several.
	Number int
	// Order is the order's number, never empty; a leading C marks a cancellation.
	Order string
	// SKU is the stock code or the code of a service, never empty.
	SKU string
	// Description may be empty and may have trailing blanks.
	Description string
	// Quantity is negative on cancellations and on write-offs.
	Quantity int64
	// Price is the price of one unit.
	Price tasks.Money
	// Customer is empty when it is not known.
	Customer string
}

// Cancellation reports whether the line belongs to a cancellation.
func (l Line) Cancellation() bool { return strings.HasPrefix(l.Order, "C") }

// Goods reports whether the line is about goods, whose codes begin with five
// digits; all others are services such as postage (POST) and have no stock.
func (l Line) Goods() bool {
	return len(l.SKU) >= 5 && strings.Trim(l.SKU[:5], "0123456789") == ""
}

// A LineError says why one line of a file was refused. The lines behind it can
// still be read.
type LineError struct {
	Line  int    // where the line begins; the header is line 1
	Field string // such as "quantity"; empty for the line as a whole
	Value string // of the field
	Want  string // such as "want a whole number"
}

// Error reads like: line 14: quantity: want a whole number, have "six".
func (e *LineError) Error() string {
	text := fmt.Sprintf("line %d: ", e.Line)
	if e.Field != "" {
		text += e.Field + ": "
	}
	text += e.Want
	if e.Value != "" {
		text += fmt.Sprintf(", have %.60q", e.Value)
	}
	return text
}
