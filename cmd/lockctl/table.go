package main

import (
	"slices"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/sidingq/siding/internal/cli"
)

// A column of a table.
type column struct {
	title string
	right bool // for numbers
	cut   bool // its cells may be shortened to fit a terminal
}

func left(title string) column  { return column{title: title} }
func right(title string) column { return column{title: title, right: true} }
func cut(title string) column   { return column{title: title, cut: true} }

// A table has rows of cells, one for each column.
type table struct {
	columns []column
	rows    [][]string
}

const (
	gap      = "  " // between two columns
	shortest = 12   // a cell is not cut to less
	// Without a terminal, a cell that is wider than this does not widen its column.
	longest = 64
)

func newTable(columns ...column) *table { return &table{columns: columns} }

func (t *table) add(cells ...string) {
	for i, cell := range cells {
		cells[i] = cli.Plain(cell)
	}
	t.rows = append(t.rows, cells)
}

// text returns the table as text. Cells are cut in the middle so that the table fits into a
// terminal of so many columns. With 0 there is no terminal, and cells are as they are.
func (t *table) text(columns int) string {
	widths := t.widths(columns)
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	var text strings.Builder
	for _, row := range append([][]string{titles}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString(gap)
			}
			if columns > 0 {
				cell = middle(cell, widths[i])
			}
			pad := strings.Repeat(" ", max(0, widths[i]-uniseg.StringWidth(cell)))
			if t.columns[i].right {
				cell, pad = pad, cell
			}
			line.WriteString(cell + pad)
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return text.String()
}

// widths returns how wide the columns are.
func (t *table) widths(columns int) []int {
	widths := make([]int, len(t.columns))
	total := -len(gap)
	for i, c := range t.columns {
		widths[i] = uniseg.StringWidth(c.title)
		for _, row := range t.rows {
			if width := uniseg.StringWidth(row[i]); columns > 0 || width <= longest {
				widths[i] = max(widths[i], width)
			}
		}
		total += widths[i] + len(gap)
	}
	for ; columns > 0 && total > columns; total-- {
		widest := -1
		for i, c := range t.columns {
			if c.cut && widths[i] > shortest && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// middle returns a text that is no wider than width, and lacks its middle if the whole is.
func middle(text string, width int) string {
	if uniseg.StringWidth(text) <= width {
		return text
	}
	const dots = "…"
	all, half := clusters(text), (width-1)/2
	tail := fitting(slices.Backward(all), half)
	head := fitting(slices.All(all), width-1-half)
	return strings.Join(all[:head], "") + dots + strings.Join(all[len(all)-tail:], "")
}

// clusters returns the characters of a text as people see them.
func clusters(text string) (all []string) {
	for g := uniseg.NewGraphemes(text); g.Next(); {
		all = append(all, g.Str())
	}
	return all
}

// fitting returns how many clusters are no wider than width together.
func fitting(clusters func(yield func(int, string) bool), width int) (n int) {
	for _, cluster := range clusters {
		if width -= uniseg.StringWidth(cluster); width < 0 {
			break
		}
		n++
	}
	return n
}

// fields are lines of a label and a value. Those without a value are left out.
type fields [][2]string

func (f *fields) add(label, value string) {
	if value != "" {
		*f = append(*f, [2]string{label, cli.Plain(value)})
	}
}

func (f *fields) text() string {
	width := 0
	for _, field := range *f {
		width = max(width, len(field[0]))
	}
	var b strings.Builder
	for _, field := range *f {
		b.WriteString(field[0] + strings.Repeat(" ", width-len(field[0])) + gap + field[1] + "\n")
	}
	return b.String()
}
