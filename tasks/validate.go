package tasks

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sidingq/siding/queue"
)

// Limits of what a payload may hold.
const (
	// MaxIdentifier is the most bytes an order number, stock code, customer, user
	// or submission may have. These become names of locks and keys of rows.
	MaxIdentifier = 128
	// MaxQuantity is the largest quantity of one line, either way.
	MaxQuantity = 1_000_000_000
)

// A checker collects the first fault of a payload, as a [queue.TaskError]
// without the value: a worker logs it.
type checker struct {
	kind string
	err  error
}

func (c *checker) refuse(field, format string, args ...any) {
	if c.err == nil {
		c.err = &queue.TaskError{Kind: c.kind, Field: field, Want: fmt.Sprintf(format, args...)}
	}
}

// identifier checks a name that becomes part of a lock's name and a key of the
// database. Two systems must not read it in two ways. Braces would change the
// slot of a Redis key.
func (c *checker) identifier(field, value string) {
	value = trim(value)
	bad := strings.IndexFunc(value, func(r rune) bool {
		// Decoders put U+FFFD where bytes were not UTF-8: two broken names could become one.
		return r == '{' || r == '}' || r == utf8.RuneError || !unicode.IsPrint(r)
	})
	switch {
	case value == "":
		c.refuse(field, "is empty")
	case len(value) > MaxIdentifier:
		c.refuse(field, "want at most %d bytes, have %d", MaxIdentifier, len(value))
	case bad >= 0:
		r, _ := utf8.DecodeRuneInString(value[bad:])
		c.refuse(field, "want printable characters without braces, have %U at byte %d", r, bad+1)
	}
}

// quantity checks a signed quantity of a line. A line of none does nothing, and
// is a mistake of its maker.
func (c *checker) quantity(field string, q int64) {
	switch {
	case q == 0:
		c.refuse(field, "is zero")
	case q > MaxQuantity || q < -MaxQuantity:
		c.refuse(field, "want -%d to %d", MaxQuantity, MaxQuantity)
	}
}

// item checks an item of a list, which takes goods and brings none back.
func (c *checker) item(i int, sku string, quantity int64) {
	field := fmt.Sprintf("items[%d].", i)
	c.identifier(field+"sku", sku)
	c.quantity(field+"quantity", quantity)
	if quantity < 0 {
		c.refuse(field+"quantity", "is negative")
	}
}

// line checks the number of a line in its file; 0 means that there was no file.
func (c *checker) line(field string, n int) {
	if n < 0 {
		c.refuse(field, "is negative")
	}
}

// trim makes " 536365" and "536365" one order with one lock and one row.
func trim(s string) string { return strings.TrimSpace(s) }

// foldSKU makes stock codes that differ only in case one product: 85049A and
// 85049a are the same candles. Lock and row must agree, or the holders of two
// locks would write one row.
func foldSKU(s string) string { return strings.ToUpper(trim(s)) }
