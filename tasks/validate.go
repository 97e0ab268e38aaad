package tasks

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of what a payload may hold.
const (
	// MaxIdentifier is the most bytes an order number, stock code, customer,
	// user or submission may have: they become lock names and database keys.
	MaxIdentifier = 128
	// MaxQuantity is the largest quantity of one line, either way.
	MaxQuantity = 1_000_000_000
)

// A FieldError says which field of a payload is not acceptable, and why. No
// retry mends it.
type FieldError struct {
	Kind    string // the task's kind
	Field   string // the field's name in JSON, such as "order" or "items[2].sku"
	Problem string // what is wrong, such as "is empty"; not the value, as a worker logs it
}

// Error reads like: order:audit: payload field "order" is empty.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: payload field %q %s", e.Kind, e.Field, e.Problem)
}

// A checker collects the first fault of a payload.
type checker struct {
	kind string
	err  error
}

func (c *checker) refuse(field, format string, args ...any) {
	if c.err == nil {
		c.err = &FieldError{Kind: c.kind, Field: field, Problem: fmt.Sprintf(format, args...)}
	}
}

// identifier checks a name that ends up in a lock's name and in a key of the
// database: what two systems might read in two ways must not get that far.
// Braces would change the slot of a Redis key.
func (c *checker) identifier(field, given string) {
	value := trim(given)
	switch {
	case value == "":
		c.refuse(field, "is empty")
	case len(value) > MaxIdentifier:
		c.refuse(field, "is too long: want at most %d bytes, have %d", MaxIdentifier, len(value))
	case !c.without(field, given, "a brace", func(r rune) bool { return r == '{' || r == '}' }):
	default:
		c.without(field, given, "a character that cannot be printed", unprintable)
	}
}

// without reports whether a value holds no character that is bad. Otherwise it refuses the value:
// the error says what the character is called, which one it is, and where. Those at the ends that
// trim takes away may be any.
func (c *checker) without(field, given, what string, bad func(rune) bool) bool {
	value := trim(given)
	i := strings.IndexFunc(value, bad)
	if i < 0 {
		return true
	}
	r, _ := utf8.DecodeRuneInString(value[i:])
	c.refuse(field, "holds %s, %U at byte %d", what, r, strings.Index(given, value)+i+1)
	return false
}

// quantity checks a signed quantity of a line; a line of none does nothing and
// is a mistake of whoever made it.
func (c *checker) quantity(field string, q int64) {
	switch {
	case q == 0:
		c.refuse(field, "is zero")
	case q > MaxQuantity || q < -MaxQuantity:
		c.refuse(field, "is out of range: want -%d to %d", MaxQuantity, MaxQuantity)
	}
}

// line checks the number of a line in its file; 0 means that there was no file.
func (c *checker) line(field string, n int) {
	if n < 0 {
		c.refuse(field, "is negative")
	}
}

// unprintable also holds for U+FFFD, which decoders put where bytes were not
// UTF-8: two broken names could come out as one.
func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// trim is applied to every identifier, so that " 536365" and "536365" are one
// order with one lock and one row.
func trim(s string) string { return strings.TrimSpace(s) }

// foldSKU makes stock codes that differ only in case one product: 85049A and
// 85049a are the same candles. Lock and row must agree about it, or two holders
// of two locks would write one row.
func foldSKU(s string) string { return strings.ToUpper(trim(s)) }
