package orders_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/tasks/orders"
)

const header = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n"

// readerOf returns a reader of the lines of a file.
func readerOf(file io.Reader) (*orders.Reader, error) {
	text, err := orders.Unpack(file)
	if err != nil {
		return nil, err
	}
	return orders.NewReader(text)
}

// read reads a whole file: its lines, and what was refused.
func read(t *testing.T, file string) (lines []orders.Line, refused []string) {
	t.Helper()
	r, err := readerOf(strings.NewReader(file))
	expect.Need(t, err == nil, "want a reader, have %v", err)
	for {
		line, err := r.Next()
		var bad *orders.LineError
		switch {
		case errors.Is(err, io.EOF):
			return lines, refused
		case errors.As(err, &bad):
			refused = append(refused, bad.Error())
		case err != nil:
			t.Fatalf("want lines to the end, have %v", err)
		default:
			lines = append(lines, line)
		}
	}
}

// heart is the first line of the data set, which all dialects tell.
func heart() orders.Line {
	return orders.Line{
		Number: 2, Order: "536365", SKU: "85123A", Description: "WHITE HANGING HEART T-LIGHT HOLDER", Quantity: 6,
		Price: 25500, Customer: "17850",
	}
}

func TestDialects(t *testing.T) {
	t.Parallel()
	const description = "WHITE HANGING HEART T-LIGHT HOLDER"
	plain := header + "536365,85123A," + description + ",6,2010-12-01T08:26:00,2.55,17850,United Kingdom\n"
	for name, file := range map[string]string{
		"this project's extract":        plain,
		"spark, by day":                 header + "536365,85123A," + description + ",6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom\n",
		"spreadsheet, US, CRLF":         strings.ReplaceAll(header+"536365,85123A,"+description+",6,12/1/2010 8:26,2.55,17850,United Kingdom\n", "\n", "\r\n"),
		"second edition":                "Invoice,StockCode,Description,Quantity,InvoiceDate,Price,Customer ID,Country\n536365,85123A," + description + ",6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom\n",
		"byte order mark":               "\ufeff" + plain,
		"byte order mark before quotes": "\ufeff" + `"InvoiceNo"` + strings.TrimPrefix(plain, "InvoiceNo"),
		"all in quotes":                 strings.ReplaceAll(`"`+strings.ReplaceAll(strings.TrimSuffix(plain, "\n"), "\n", "\"\n\""), ",", `","`) + "\"\n",
		"other order, more columns":     "Country,ignored,customerid,UNITPRICE, InvoiceDate ,Quantity,Description,StockCode,Invoice No\nUnited Kingdom,x,17850,2.55,2010-12-01T08:26:00,6," + description + ",85123A,536365\n",
		"blanks around":                 header + " 536365 , 85123A ," + description + ", 6 , 2010-12-01T08:26:00 , 2.55 , 17850 , United Kingdom \n",
		"no line end at the end":        strings.TrimSuffix(plain, "\n"),
		"compressed":                    zipped(t, plain),
		"compressed in two members":     zipped(t, plain[:40]) + zipped(t, plain[40:]),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines, refused := read(t, file)
			expect.Same(t, "lines", lines, []orders.Line{heart()})
			expect.That(t, refused == nil, "want no line refused, have %q", refused)
		})
	}
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	expect.OK(t, errors.Join(err, w.Close()))
	return b.String()
}

func TestLeavesOptionalColumnsEmpty(t *testing.T) {
	t.Parallel()
	lines, refused := read(t, "Invoice,StockCode,Quantity,InvoiceDate,Price,CustomerID\n536365,85123A,6,2010-12-01T08:26:00,2.55,\n")
	want := heart()
	want.Description, want.Customer = "", ""
	expect.Same(t, "lines", lines, []orders.Line{want})
	expect.That(t, refused == nil, "want no line refused, have %q", refused)
}

// The dirt of the real data: all of it is read as it stands.
func TestReadsDirtAsItStands(t *testing.T) {
	t.Parallel()
	const at = ",2011-11-08T07:52:00,"
	for name, c := range map[string]struct {
		line string
		want orders.Line
	}{
		"no customer":          {"1,22222,x,1" + at + "1,,UK", orders.Line{Order: "1", SKU: "22222", Description: "x", Quantity: 1, Price: 10000}},
		"trailing blanks":      {"1,22222,x  ,1" + at + "1,,UK", orders.Line{Order: "1", SKU: "22222", Description: "x  ", Quantity: 1, Price: 10000}},
		"lower-case code":      {"1,85049a,x,1" + at + "1,,UK", orders.Line{Order: "1", SKU: "85049a", Description: "x", Quantity: 1, Price: 10000}},
		"comma and quotes":     {`1,22222,"a ""big"", one",1` + at + "1,,UK", orders.Line{Order: "1", SKU: "22222", Description: `a "big", one`, Quantity: 1, Price: 10000}},
		"line end in quotes":   {"1,22222,\"a\r\nb\",1" + at + "1,,UK", orders.Line{Order: "1", SKU: "22222", Description: "a\nb", Quantity: 1, Price: 10000}},
		"cancellation":         {"C1,22222,x,-3" + at + "1,,UK", orders.Line{Order: "C1", SKU: "22222", Description: "x", Quantity: -3, Price: 10000}},
		"write-off":            {"1,22222,check,-3" + at + "0,,UK", orders.Line{Order: "1", SKU: "22222", Description: "check", Quantity: -3}},
		"less than a penny":    {"1,22222,x,1" + at + "0.001,,UK", orders.Line{Order: "1", SKU: "22222", Description: "x", Quantity: 1, Price: 10}},
		"service":              {"1,POST,,1" + at + "18,,UK", orders.Line{Order: "1", SKU: "POST", Quantity: 1, Price: 180000}},
		"bad debt":             {"A1,B,Adjust bad debt,1" + at + "-11062.06,,UK", orders.Line{Order: "A1", SKU: "B", Description: "Adjust bad debt", Quantity: 1, Price: -110620600}},
		"pound sign, UTF-8":    {"1,gift_1,£10.00,1" + at + "8.33,,UK", orders.Line{Order: "1", SKU: "gift_1", Description: "£10.00", Quantity: 1, Price: 83300}},
		"pound sign, Latin-1":  {"1,gift_1,\xa310.00,1" + at + "8.33,,UK", orders.Line{Order: "1", SKU: "gift_1", Description: "£10.00", Quantity: 1, Price: 83300}},
		"a number not a whole": {"1,22222,x,1" + at + "1,x.0,UK", orders.Line{Order: "1", SKU: "22222", Description: "x", Quantity: 1, Price: 10000, Customer: "x.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines, refused := read(t, header+c.line+"\n")
			c.want.Number = 2
			expect.Same(t, "lines", lines, []orders.Line{c.want})
			expect.That(t, refused == nil, "want no line refused, have %q", refused)
		})
	}
}

func TestGoodsAndCancellations(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{
		"22222": true, "85123A": true, "85049a": true, "15056BL": true, "POST": false, "M": false, "C2": false,
		"DCGS0003": false, "gift_0001_10": false, "1234": false, "1234A": false, "": false,
	} {
		expect.Equal(t, fmt.Sprintf("goods %q", code), (orders.Line{SKU: code}).Goods(), want)
	}
	for number, want := range map[string]bool{"536365": false, "C536379": true, "A563185": false} {
		expect.Equal(t, fmt.Sprintf("cancellation %q", number), (orders.Line{Order: number}).Cancellation(), want)
	}
}

// Each bad line is refused by its number, and the good ones around it are read.
func TestRefusesBadLinesOnly(t *testing.T) {
	t.Parallel()
	const good = "536365,85123A,WHITE HANGING HEART T-LIGHT HOLDER,6,2010-12-01T08:26:00,2.55,17850,United Kingdom\n"
	long := strings.Repeat("x", 100<<10)
	for name, c := range map[string]struct{ bad, want string }{
		"no order":        {",2,x,1,2010-12-01T08:26:00,1,,UK\n", "order: is empty"},
		"blank code":      {"1, ,x,1,2010-12-01T08:26:00,1,,UK\n", "stock code: is empty"},
		"quantity":        {"1,2,x,six,2010-12-01T08:26:00,1,,UK\n", `quantity: want a whole number of at most 1000000000 either way, have "six"`},
		"huge quantity":   {"1,2,x,99999999999,2010-12-01T08:26:00,1,,UK\n", `quantity: want a whole number of at most 1000000000 either way, have "99999999999"`},
		"no quantity":     {"1,2,x,,2010-12-01T08:26:00,1,,UK\n", "quantity: want a whole number of at most 1000000000 either way"},
		"date":            {"1,2,x,1,2010-13-01T08:26:00,1,,UK\n", `date: want a date such as 2011-11-08T07:52:00, 2011-11-08 07:52:00 or 11/8/2011 7:52, have "2010-13-01T08:26:00"`},
		"price":           {"1,2,x,1,2010-12-01T08:26:00,£1,,UK\n", `price: want a decimal such as 2.55 with at most four decimals, have "£1"`},
		"first of faults": {"1,2,x,six,,,,UK\n", `quantity: want a whole number of at most 1000000000 either way, have "six"`},
		"long value":      {"1,2,x," + strings.Repeat("9é", 100) + ",2010-12-01T08:26:00,1,,UK\n", "quantity: want a whole number of at most 1000000000 either way, have \"" + strings.Repeat("9é", 30) + "\""},
		"too few fields":  {"1,2,x,1\n", "want 8 fields as in the header, have 4"},
		"too many fields": {"1,2,x, y,1,2010-12-01T08:26:00,1,,UK\n", "want 8 fields as in the header, have 9"},
		"stray quote":     {"1,2,6\" x,1,2010\n", "want a quote that is closed within 32 lines and 65536 bytes, have \"1,2,6\\\" x,1,2010\""},
		"two stray":       {"1,2,6\"x\",1,2010\n", "want a field that holds a quote to be in quotes, and the quote doubled, have \"1,2,6\\\"x\\\",1,2010\""},
		"text behind":     {"1,2,\"x\"y,1,2010\n", "want a comma after a closing quote, and quotes within a field doubled, have \"1,2,\\\"x\\\"y,1,2010\""},
		"never closed":    {"1,2,\"x,1,2010\n", "want a quote that is closed within 32 lines and 65536 bytes, have \"1,2,\\\"x,1,2010\""},
		"long line":       {"1,2," + long + ",1,2010-12-01T08:26:00,1,,UK\n", `want a line of less than 65536 bytes, which ends with LF or CR LF, have "1,2,` + strings.Repeat("x", 56) + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const before, after = 2, 50
			lines, refused := read(t, header+strings.Repeat(good, before)+c.bad+strings.Repeat(good, after))
			expect.Same(t, "refused", refused, []string{"line 4: " + c.want})
			var want []orders.Line
			for i := range before + after {
				l := heart()
				l.Number = 2 + i
				if i >= before {
					l.Number++
				}
				want = append(want, l)
			}
			expect.Same(t, "lines", lines, want)
		})
	}
}

// A quote that another line happens to close makes one record of what lies
// between. That record cannot be right, and only its first line must go.
func TestBrokenQuoteDoesNotSwallowLines(t *testing.T) {
	t.Parallel()
	lines, refused := read(t, header+
		"1,2,\"x,1,2010-12-01T08:26:00,1,,UK\n"+
		"2,2,x,1,2010-12-01T08:26:00,1,,UK\n"+
		"3,2,\"a, b\",1,2010-12-01T08:26:00,1,,UK\n"+
		"4,2,x\",1,2010-12-01T08:26:00,1,,UK\n"+
		"\r\n"+
		"5,2,x,1,2010-12-01T08:26:00,1,,UK\n"+
		"6,2,\"x")
	var have []string
	for _, l := range lines {
		have = append(have, fmt.Sprintf("%d: %s", l.Number, l.Order))
	}
	expect.Same(t, "lines", have, []string{"3: 2", "4: 3", "7: 5"})
	want := []string{
		`line 2: want a comma after a closing quote, and quotes within a field doubled, have "1,2,\"x,1,2010-12-01T08:26:00,1,,UK"`,
		`line 5: want a field that holds a quote to be in quotes, and the quote doubled, have "4,2,x\",1,2010-12-01T08:26:00,1,,UK"`,
		`line 8: want a quote that is closed within 32 lines and 65536 bytes, have "6,2,\"x"`,
	}
	expect.Same(t, "refused", refused, want)
}

func TestRefusesFiles(t *testing.T) {
	t.Parallel()
	const saveAs = "open it in a spreadsheet program and save it as CSV"
	for name, c := range map[string]struct{ file, want string }{
		"empty":           {"", "header: want a header line, have an empty file"},
		"blank":           {"\n\n \n", "header: want a header line, have an empty file"},
		"workbook":        {"PK\x03\x04rest", "not a CSV file but a workbook (.xlsx) or another zip archive: " + saveAs},
		"packed workbook": {zipped(t, "PK\x03\x04rest"), "not a CSV file but a workbook (.xlsx) or another zip archive: " + saveAs},
		"packed twice":    {zipped(t, zipped(t, header)), "not a CSV file but one that gzip has compressed twice: unpack it once"},
		"old workbook":    {"\xd0\xcf\x11\xe0rest", "not a CSV file but a workbook (.xls): " + saveAs},
		"UTF-16":          {"\xff\xfeI\x00n\x00", "not a CSV file in UTF-8 or Latin-1 but UTF-16 text: save it as CSV (UTF-8)"},
		"UTF-16, BE":      {"\xfe\xff\x00I\x00n", "not a CSV file in UTF-8 or Latin-1 but UTF-16 text: save it as CSV (UTF-8)"},
		"no header":       {"536365,85123A,x,6,2010-12-01T08:26:00,2.55,17850,UK\n", `header: want a column InvoiceNo or Invoice, have "536365,85123A,x,6,2010-12-01T08:26:00,2.55,17850,UK"`},
		"semicolons":      {strings.ReplaceAll(header, ",", ";"), `header: want a column InvoiceNo or Invoice, have "InvoiceNo;StockCode;Description;Quantity;InvoiceDate;UnitPri"`},
		"column missing":  {"InvoiceNo,StockCode,Quantity,InvoiceDate,UnitPrice\n", `header: want a column CustomerID, have "InvoiceNo,StockCode,Quantity,InvoiceDate,UnitPrice"`},
		"column twice":    {"InvoiceNo,Invoice,StockCode\n", `header: want one column InvoiceNo, have two: "InvoiceNo" and "Invoice"`},
		"CR line ends":    {strings.ReplaceAll(header+"536365,85123A,x,6,2010-12-01T08:26:00,2.55,17850,UK\n", "\n", "\r"), "header: want lines that end with LF or CR LF, have a CR alone; save the file as CSV with other line ends"},
		"many of them":    {strings.Repeat(strings.TrimSpace(header)+"\r", 2000), `header: line 1: want a line of less than 65536 bytes, which ends with LF or CR LF, have "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPri"`},
		"one long line":   {strings.Repeat("x", 1<<20), `header: line 1: want a line of less than 65536 bytes, which ends with LF or CR LF, have "` + strings.Repeat("x", 60) + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readerOf(strings.NewReader(c.file))
			expect.That(t, err != nil && err.Error() == c.want, "want the error\n%s, have\n%v", c.want, err)
		})
	}
}

// A fault of the input is final and told as such, not as the end of the file.
func TestInputFaults(t *testing.T) {
	t.Parallel()
	const line = "536365,85123A,x,6,2010-12-01T08:26:00,2.55,17850,UK\n"
	broken := errors.New("disk on fire")
	packed := zipped(t, header+strings.Repeat(line, 10))
	for name, c := range map[string]struct {
		file io.Reader
		want error
	}{
		"read error": {io.MultiReader(strings.NewReader(header+line), iotest.ErrReader(broken)), broken},
		"truncated":  {strings.NewReader(packed[:len(packed)-9]), io.ErrUnexpectedEOF},
		"damaged":    {strings.NewReader(packed[:len(packed)-8] + "\x00\x00\x00\x00" + packed[len(packed)-4:]), gzip.ErrChecksum},
		"in a quote": {io.MultiReader(strings.NewReader(header+"1,2,\"x\n"), iotest.ErrReader(broken)), broken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := readerOf(c.file)
			for err == nil {
				_, err = r.Next()
			}
			expect.Is(t, "a broken file", err, c.want)
		})
	}
}
