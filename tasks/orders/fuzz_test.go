package orders_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/tasks/orders"
)

// FuzzReader feeds anything. The reader comes to an end, its line numbers only grow and stay within
// the file, and its results are bounded.
func FuzzReader(f *testing.F) {
	const line = "536365,85123A,x,6,2010-12-01T08:26:00,2.55,17850,UK\n"
	for _, seed := range []string{
		"", "\xff", line, "\ufeff" + line, strings.Repeat(line, 3), "\"", "\"\n\"\n\"", "1,2,\"x\n\n" + line, "\"\"\"\n" + line,
		strings.Repeat("\"a\n", 70), strings.Repeat("x", 70<<10), ",,,,,,,\n", "\xa3,\r\n", strings.Repeat("1,\"2\n", 40) + line,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := orders.NewReader(bytes.NewReader(append([]byte(header), body...)))
		expect.Need(t, err == nil, "want a reader behind a good header, have %v", err)
		most := 2 + bytes.Count(body, []byte("\n"))
		for last := 1; ; {
			line, err := r.Next()
			number := line.Number
			var bad *orders.LineError
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.As(err, &bad):
				number = bad.Line
				expect.Need(t, len(bad.Error()) <= 1000, "line %d: want a short error, have %d bytes", number, len(bad.Error()))
			case err != nil:
				t.Fatalf("want lines to the end, have %v", err)
			case line.Order == "" || line.SKU == "":
				t.Fatalf("line %d: want an order and a stock code, have %q and %q", number, line.Order, line.SKU)
			}
			expect.Need(t, number > last && number <= most, "want a line number of %d to %d, have %d", last+1, most, number)
			last = number
		}
	})
}

var lineEnd = regexp.MustCompile("\r+\n")

// FuzzDescription writes a description with encoding/csv and reads it back.
func FuzzDescription(f *testing.F) {
	for _, seed := range []string{"", "x ", `a "big" one`, "a,b", "a\nb", "\"", "\"\"", " \"x\"", "£", "a\r\nb\r", `\.`, "\r\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, description string) {
		if strings.Count(description, "\n") > 20 || len(description) > 10_000 || strings.ToValidUTF8(description, "") != description {
			return // beyond the limits, or not UTF-8
		}
		var file bytes.Buffer
		w := csv.NewWriter(&file)
		record := []string{"1", "2", description, "1", "2010-12-01T08:26:00", "1", "", "UK"}
		for _, r := range [][]string{strings.Split(strings.TrimSpace(header), ","), record, record} {
			expect.OK(t, w.Write(r))
		}
		w.Flush()
		lines, refused := read(t, file.String())
		want := lineEnd.ReplaceAllString(description, "\n") // also one of several CR, as some editors make
		expect.That(t, len(lines) == 2 && refused == nil && lines[0].Description == want && lines[1].Description == want, "want %q twice, have %+v and refused %q", want, lines, refused)
	})
}
