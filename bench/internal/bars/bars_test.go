package bars_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sidingq/siding/bench/internal/bars"
)

// TestWriteSVG: names, values and notes are there, in a picture that is well-formed.
func TestWriteSVG(t *testing.T) {
	t.Parallel()
	for _, log := range []bool{false, true} {
		chart := bars.Chart{
			Title: "A title", Axis: "ms", Log: log, Rows: []string{"first", "second"},
			Series: []bars.Series{
				{"p50", []bars.Bar{{Value: 0.25, Low: 0.2, High: 0.3}, {Note: "unfinished"}}},
				{"p99", []bars.Bar{{Value: 12.5, Low: 10, High: 20}, {Value: 1234, Low: 1234, High: 1234}}},
			},
		}
		texts := draw(t, chart)
		for _, want := range []string{"A title", "ms", "first", "second", "p50", "p99", "0.250", "unfinished", "12.5", "1234"} {
			if !strings.Contains(texts, "|"+want+"|") {
				t.Errorf("log %v: want %q in it, have %s", log, want, texts)
			}
		}
	}
}

// TestNothingToShow: a chart of notes alone is drawn, too.
func TestNothingToShow(t *testing.T) {
	t.Parallel()
	for _, log := range []bool{false, true} {
		texts := draw(t, bars.Chart{Log: log, Rows: []string{"only"}, Series: []bars.Series{{Bars: []bars.Bar{{Note: "skipped"}}}}})
		if !strings.Contains(texts, "|skipped|") {
			t.Errorf("log %v: want the note, have %s", log, texts)
		}
	}
}

// TestNoRows: a chart without rows is drawn, as when no contender has a figure.
func TestNoRows(t *testing.T) {
	t.Parallel()
	for _, log := range []bool{false, true} {
		texts := draw(t, bars.Chart{Title: "A title", Log: log, Series: []bars.Series{{Name: "p50"}, {Name: "p99"}}})
		if !strings.Contains(texts, "|A title|") {
			t.Errorf("log %v: want the title, have %s", log, texts)
		}
	}
}

// draw returns the texts of the picture, with | between.
func draw(t *testing.T, chart bars.Chart) string {
	t.Helper()
	var out strings.Builder
	if err := chart.WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	texts := "|"
	for decoder := xml.NewDecoder(strings.NewReader(out.String())); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
		if text, ok := token.(xml.CharData); ok && strings.TrimSpace(string(text)) != "" {
			texts += strings.TrimSpace(string(text)) + "|"
		}
	}
}
