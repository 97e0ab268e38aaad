package main

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

// A figure is one thing that is measured.
type figure struct {
	what, name, unit string
}

// results are the values of all figures, in the order in which they came.
type results struct {
	figures []figure
	values  map[figure]map[string][]float64 // by contender
}

func (r *results) add(contender string, f figure, value float64) {
	if r.values == nil {
		r.values = make(map[figure]map[string][]float64)
	}
	if r.values[f] == nil {
		r.figures = append(r.figures, f)
		r.values[f] = make(map[string][]float64)
	}
	r.values[f][contender] = append(r.values[f][contender], value)
}

// summary is what is told of the values of one figure.
type summary struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"`
}

func summarize(values []float64) summary {
	return summary{
		Median: percentile(values, 50),
		Min:    slices.Min(values),
		Max:    slices.Max(values),
		Values: values,
	}
}

// percentile returns the smallest value that p percent do not exceed.
func percentile[T cmp.Ordered](values []T, p float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// writeJSON writes one line for each figure of each contender.
func (r *results) writeJSON(w io.Writer, contenders []contender) error {
	encoder := json.NewEncoder(w)
	for _, f := range r.figures {
		for _, name := range append([]string{nobody}, names(contenders)...) {
			values := r.values[f][name]
			if values == nil {
				continue
			}
			line := struct {
				Contender string `json:"contender,omitempty"`
				Case      string `json:"case"`
				Figure    string `json:"figure"`
				Unit      string `json:"unit"`
				summary
			}{name, f.what, f.name, f.unit, summarize(values)}
			if err := encoder.Encode(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeTable writes a block for each case, with a column for each contender.
func (r *results) writeTable(w io.Writer, contenders []contender) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	what := ""
	for _, f := range r.figures {
		if f.what != what {
			what = f.what
			header := []string{"\n" + what}
			if r.values[f][nobody] == nil {
				header = append(header, names(contenders)...)
			}
			_, _ = fmt.Fprintln(table, strings.Join(header, "\t"))
		}
		cells := []string{fmt.Sprintf("  %s, %s", f.name, f.unit)}
		for _, name := range append([]string{nobody}, names(contenders)...) {
			if values := r.values[f][name]; values != nil {
				s := summarize(values)
				cells = append(cells, fmt.Sprintf("%s (%s-%s)", short(s.Median), short(s.Min), short(s.Max)))
			}
		}
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return table.Flush() // tells of the errors of the lines before, too
}

// short writes three digits, or all before the point.
func short(v float64) string {
	digits := 2
	if v != 0 {
		digits = min(max(0, 2-int(math.Floor(math.Log10(math.Abs(v))))), 3)
	}
	return fmt.Sprintf("%.*f", digits, v)
}
