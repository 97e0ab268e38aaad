// Package report keeps what a benchmark measured and writes it as tables and as
// JSON lines.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// nobody stands for the contender where a figure is none's.
const nobody = ""

// A Figure is one thing that is measured.
type Figure struct {
	Case, Name, Unit string
}

// Results are the values of all figures, in the order in which they came. The
// zero value is ready to use.
type Results struct {
	// RTT is what a network added to each round trip. Each line of JSON says so, unless it is 0.
	RTT time.Duration

	figures []Figure
	cells   map[Figure]map[string]*cell // by contender
}

// A cell is what is known of a figure of a contender.
type cell struct {
	values []float64
	note   string
}

// Add adds one value.
func (r *Results) Add(contender string, f Figure, value float64) {
	c := r.at(contender, f)
	c.values = append(c.values, value)
}

// AddPercentiles adds the median and the 99th percentile of durations, in milliseconds.
func (r *Results) AddPercentiles(contender, what, name string, took []time.Duration) {
	for _, p := range []int{50, 99} {
		r.Add(contender, Figure{Case: what, Name: fmt.Sprintf("%s p%d", name, p), Unit: "ms"}, MS(Percentile(took, float64(p))))
	}
}

// AddRoundTrip adds how long a round trip takes that does nothing, which is a yardstick for the others.
func (r *Results) AddRoundTrip(took time.Duration) {
	r.Add(nobody, Figure{Case: "an empty script", Name: "round trip p50", Unit: "ms"}, MS(took))
}

// Note says why there is no value, in place of it.
func (r *Results) Note(contender string, f Figure, text string) { r.at(contender, f).note = text }

func (r *Results) at(contender string, f Figure) *cell {
	if r.cells == nil {
		r.cells = make(map[Figure]map[string]*cell)
	}
	if r.cells[f] == nil {
		r.figures = append(r.figures, f)
		r.cells[f] = make(map[string]*cell)
	}
	if r.cells[f][contender] == nil {
		r.cells[f][contender] = &cell{}
	}
	return r.cells[f][contender]
}

// summary is what is told of the values of one figure.
type summary struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"`
}

func summarize(values []float64) *summary {
	if len(values) == 0 {
		return nil
	}
	return &summary{
		Median: Percentile(values, 50),
		Min:    slices.Min(values),
		Max:    slices.Max(values),
		Values: values,
	}
}

// Percentile returns the smallest value that p percent do not exceed. There has
// to be one.
func Percentile[T cmp.Ordered](values []T, p float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

// MS returns d in milliseconds.
func MS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Write writes the figures of all contenders, as lines of JSON or as tables.
func (r *Results) Write(w io.Writer, asJSON bool, contenders []string) error {
	if asJSON {
		return r.writeJSON(w, contenders)
	}
	return r.writeTables(w, contenders)
}

// writeJSON writes one line for each figure of each contender.
func (r *Results) writeJSON(w io.Writer, contenders []string) error {
	encoder := json.NewEncoder(w)
	for _, f := range r.figures {
		for _, name := range append([]string{nobody}, contenders...) {
			c := r.cells[f][name]
			if c == nil {
				continue
			}
			line := struct {
				Contender string  `json:"contender,omitempty"`
				Case      string  `json:"case"`
				Figure    string  `json:"figure"`
				Unit      string  `json:"unit"`
				RTT       float64 `json:"rtt_ms,omitempty"`
				Note      string  `json:"note,omitempty"`
				*summary
			}{name, f.Case, f.Name, f.Unit, MS(r.RTT), c.note, summarize(c.values)}
			if err := encoder.Encode(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// abreast is how many figures a table puts side by side, at most.
const abreast = 5

// writeTables writes blocks for each case, with a row for each contender that took part.
func (r *Results) writeTables(w io.Writer, contenders []string) error {
	for figures := r.figures; len(figures) > 0; {
		n := 1
		for n < min(len(figures), abreast) && figures[n].Case == figures[0].Case {
			n++
		}
		if err := r.writeRows(w, contenders, figures[:n]); err != nil {
			return err
		}
		figures = figures[n:]
	}
	return nil
}

func (r *Results) writeRows(w io.Writer, contenders []string, figures []Figure) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	header := []string{"\n" + figures[0].Case}
	for _, f := range figures {
		header = append(header, f.Name+", "+f.Unit)
	}
	_, _ = fmt.Fprintln(table, strings.Join(header, "\t"))
	for _, name := range append([]string{nobody}, contenders...) {
		row := []string{"  " + name}
		known := false
		for _, f := range figures {
			text := "-"
			if c := r.cells[f][name]; c != nil {
				text, known = c.String(), true
			}
			row = append(row, text)
		}
		if known {
			_, _ = fmt.Fprintln(table, strings.Join(row, "\t"))
		}
	}
	return table.Flush()
}

// String reads like 3.14 (3.00-3.20), or is the note where there are no values.
func (c *cell) String() string {
	s := summarize(c.values)
	switch {
	case s == nil:
		return c.note
	case len(s.Values) == 1:
		return Short(s.Median)
	}
	return fmt.Sprintf("%s (%s-%s)", Short(s.Median), Short(s.Min), Short(s.Max))
}

// Short writes three digits, or all before the point.
func Short(v float64) string {
	digits := 2
	if v != 0 {
		digits = min(max(0, 2-int(math.Floor(math.Log10(math.Abs(v))))), 3)
	}
	return fmt.Sprintf("%.*f", digits, v)
}
