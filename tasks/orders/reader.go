package orders

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sidingq/siding/tasks"
)

// A column is one that the reader knows, with the names it goes by in the
// editions of the data set.
type column int

const (
	colOrder column = iota
	colSKU
	colDescription
	colQuantity
	colTime
	colPrice
	colCustomer
	colCountry
	columns // how many there are
)

// names returns how a header may call the column, whatever the case and with or
// without blanks.
func (c column) names() []string {
	switch c {
	case colOrder:
		return []string{"InvoiceNo", "Invoice"}
	case colSKU:
		return []string{"StockCode"}
	case colDescription:
		return []string{"Description"}
	case colQuantity:
		return []string{"Quantity"}
	case colTime:
		return []string{"InvoiceDate"}
	case colPrice:
		return []string{"UnitPrice", "Price"}
	case colCustomer:
		return []string{"CustomerID"}
	case colCountry:
		return []string{"Country"}
	default:
		return nil
	}
}

// optional reports whether a file may do without the column: no task needs it.
func (c column) optional() bool { return c == colDescription || c == colCountry }

// A Reader reads the lines of one order file. It is not safe for concurrent use.
type Reader struct {
	scanner *scanner
	// at says in which field of a record each column is, or -1.
	at [columns]int
	// width is how many fields the header has, and so must every record.
	width int
}

// NewReader reads the header of the file that r reads and returns a reader of
// its lines. It takes what [Unpack] takes: CSV in UTF-8 (with or without a byte
// order mark) or Latin-1, compressed with gzip or not. The columns may stand in
// any order and among others; Description and Country may be missing.
func NewReader(r io.Reader) (*Reader, error) {
	text, err := Unpack(r)
	if err != nil {
		return nil, err
	}
	lines, err := newScanner(text)
	if err != nil {
		return nil, err
	}
	reader := &Reader{scanner: lines}
	header, number, err := reader.scanner.record()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: the file is empty, want a header line", ErrFormat)
	case err != nil:
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := reader.header(header); err != nil {
		return nil, fmt.Errorf("%w: line %d: header: %w", ErrFormat, number, err)
	}
	return reader, nil
}

// header finds the columns.
func (r *Reader) header(fields []string) error {
	r.width = len(fields)
	for c := range columns {
		r.at[c] = -1
		for i, field := range fields {
			if !c.named(field) {
				continue
			}
			if r.at[c] >= 0 {
				return fmt.Errorf("want one column %s, have two: %q and %q", c.names()[0], fields[r.at[c]], field)
			}
			r.at[c] = i
		}
		if r.at[c] < 0 && !c.optional() {
			return fmt.Errorf("want a column %s, have %q", strings.Join(c.names(), " or "), clip(strings.Join(fields, ",")))
		}
	}
	return nil
}

func (c column) named(field string) bool {
	field = strings.ReplaceAll(field, " ", "")
	return slices.ContainsFunc(c.names(), func(name string) bool { return strings.EqualFold(name, field) })
}

// Next returns the next line. A [*LineError] is about one line only, and the
// next call goes on behind it; io.EOF is the end; any other error is a fault of
// the input and final. Blank lines are passed over.
func (r *Reader) Next() (Line, error) {
	fields, number, err := r.scanner.record()
	if err != nil {
		return Line{}, err
	}
	if len(fields) != r.width {
		return Line{}, &LineError{Line: number, Want: fmt.Sprintf("want %d fields as in the header, have %d", r.width, len(fields))}
	}
	p := lineParser{reader: r, fields: fields, number: number}
	line := Line{
		Number:      number,
		Order:       p.name(colOrder, "order"),
		SKU:         p.name(colSKU, "stock code"),
		Description: p.text(colDescription),
		Quantity:    p.quantity(),
		Time:        p.time(),
		Price:       p.price(),
		Customer:    p.customer(),
		Country:     strings.TrimSpace(p.text(colCountry)),
	}
	if p.err != nil {
		return Line{}, p.err
	}
	return line, nil
}

// A lineParser reads the fields of one record and keeps the first fault.
type lineParser struct {
	reader *Reader
	fields []string
	number int
	err    error
}

func (p *lineParser) refuse(field, value, want string) {
	if p.err == nil {
		p.err = &LineError{Line: p.number, Field: field, Value: clip(value), Want: want}
	}
}

// text returns the field of a column as it stands; "" if the file has no such column.
func (p *lineParser) text(c column) string {
	if at := p.reader.at[c]; at >= 0 {
		return p.fields[at]
	}
	return ""
}

func (p *lineParser) trimmed(c column) string { return strings.TrimSpace(p.text(c)) }

func (p *lineParser) name(c column, field string) string {
	value := p.trimmed(c)
	if value == "" {
		p.refuse(field, "", "is empty")
	}
	return value
}

func (p *lineParser) quantity() int64 {
	text := p.trimmed(colQuantity)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > tasks.MaxQuantity || n < -tasks.MaxQuantity {
		p.refuse("quantity", text, fmt.Sprintf("want a whole number of at most %d either way", tasks.MaxQuantity))
		return 0
	}
	return n
}

func (p *lineParser) time() time.Time {
	text := p.trimmed(colTime)
	// ISO as in this project's extract, as pandas and Spark write it, and as a
	// spreadsheet program in the United States does.
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "1/2/2006 15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	p.refuse("date", text, "want a date such as 2011-11-08T07:52:00, 2011-11-08 07:52:00 or 11/8/2011 7:52")
	return time.Time{}
}

func (p *lineParser) price() tasks.Money {
	text := p.trimmed(colPrice)
	price, err := tasks.ParseMoney(text)
	if err != nil {
		p.refuse("price", text, "want a decimal such as 2.55 with at most four decimals")
	}
	return price
}

// customer returns the customer's number. The ".0" at the end of some is what
// programs make of whole numbers in a column with gaps: it must go, or one
// customer would have two accounts.
func (p *lineParser) customer() string {
	text := p.trimmed(colCustomer)
	if number, ok := strings.CutSuffix(text, ".0"); ok {
		if _, err := strconv.ParseUint(number, 10, 64); err == nil {
			return number
		}
	}
	return text
}
