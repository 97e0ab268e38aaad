package orders

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sidingq/siding/tasks"
)

// The columns that the reader knows.
const (
	colOrder = iota
	colSKU
	colDescription
	colQuantity
	colTime
	colPrice
	colCustomer
)

// columns are the names of the columns in the editions of the data set. Case and
// blanks do not count.
var columns = [...]struct {
	names    []string
	optional bool
}{
	colOrder:       {names: []string{"InvoiceNo", "Invoice"}},
	colSKU:         {names: []string{"StockCode"}},
	colDescription: {names: []string{"Description"}, optional: true},
	colQuantity:    {names: []string{"Quantity"}},
	colTime:        {names: []string{"InvoiceDate"}},
	colPrice:       {names: []string{"UnitPrice", "Price"}},
	colCustomer:    {names: []string{"CustomerID"}},
}

// A Reader reads the lines of one order file. A Reader is not safe for concurrent use.
type Reader struct {
	scanner *scanner
	// at says in which field of a record each column is, or -1.
	at [len(columns)]int
	// width is how many fields the header has, and so must every record.
	width int
}

// NewReader reads the header of a text, as [Unpack] returns that of a file, and returns a reader of its lines:
// CSV in UTF-8 (with or without a byte order mark) or Latin-1. The columns may stand in any order and among
// others; Description may be missing.
func NewReader(text io.Reader) (*Reader, error) {
	reader := &Reader{scanner: &scanner{in: bufio.NewReaderSize(text, maxRecord)}}
	header, _, err := reader.scanner.record()
	if errors.Is(err, io.EOF) {
		err = errors.New("want a header line, have an empty file")
	}
	if err == nil {
		err = reader.header(header)
	}
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return reader, nil
}

// header finds the columns.
func (r *Reader) header(fields []string) error {
	r.width = len(fields)
	text := strings.Join(fields, ",")
	if strings.Contains(text, "\r") {
		return errors.New("want lines that end with LF or CR LF, have a CR alone; save the file as CSV with other line ends")
	}
	for c, column := range columns {
		r.at[c] = -1
		for i, field := range fields {
			same := func(name string) bool { return strings.EqualFold(name, strings.ReplaceAll(field, " ", "")) }
			if !slices.ContainsFunc(column.names, same) {
				continue
			}
			if r.at[c] >= 0 {
				return fmt.Errorf("want one column %s, have two: %q and %q", column.names[0], fields[r.at[c]], field)
			}
			r.at[c] = i
		}
		if r.at[c] < 0 && !column.optional {
			return fmt.Errorf("want a column %s, have %.60q", strings.Join(column.names, " or "), text)
		}
	}
	return nil
}

// Next returns the next line. A [*LineError] is about one line only, and the
// next call goes on behind it; io.EOF is the end; any other error is a fault of
// the input and final. Blank lines are skipped.
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
		Price:       p.price(),
		Customer:    p.customer(),
	}
	p.checkTime()
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
		p.err = &LineError{Line: p.number, Field: field, Value: value, Want: want}
	}
}

// text returns the field of a column as it stands; "" if the file has no such column.
func (p *lineParser) text(c int) string {
	if at := p.reader.at[c]; at >= 0 {
		return p.fields[at]
	}
	return ""
}

func (p *lineParser) trimmed(c int) string { return strings.TrimSpace(p.text(c)) }

func (p *lineParser) name(c int, field string) string {
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

// checkTime refuses a line whose time is none, as its other fields can hardly be right. No task needs the time.
func (p *lineParser) checkTime() {
	text := p.trimmed(colTime)
	// The formats of ISO, of pandas and Spark, and of a spreadsheet program in the
	// United States.
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "1/2/2006 15:04"} {
		if _, err := time.Parse(layout, text); err == nil {
			return
		}
	}
	p.refuse("date", text, "want a date such as 2011-11-08T07:52:00, 2011-11-08 07:52:00 or 11/8/2011 7:52")
}

func (p *lineParser) price() tasks.Money {
	text := p.trimmed(colPrice)
	price, err := tasks.ParseMoney(text)
	if err != nil {
		p.refuse("price", text, "want a decimal such as 2.55 with at most four decimals")
	}
	return price
}

// customer returns the customer's number. Programs add ".0" to whole numbers in a
// column with gaps: with it, one customer would have two accounts.
func (p *lineParser) customer() string {
	text := p.trimmed(colCustomer)
	if number, ok := strings.CutSuffix(text, ".0"); ok {
		if _, err := strconv.ParseUint(number, 10, 64); err == nil {
			return number
		}
	}
	return text
}
