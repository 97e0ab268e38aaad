package main

import (
	"strings"

	"github.com/rivo/uniseg"

	"github.com/sidingq/siding/internal/cli"
)

// A column of a table.
type column struct {
	title string
	right bool // for numbers
}

func left(title string) column  { return column{title: title} }
func right(title string) column { return column{title: title, right: true} }

// A table has rows of cells, one for each column.
type table struct {
	columns []column
	rows    [][]string
}

const (
	gap     = "  " // between two columns
	longest = 64   // a cell that is wider does not widen its column
)

func newTable(columns ...column) *table { return &table{columns: columns} }

func (t *table) add(cells ...string) {
	for i, cell := range cells {
		cells[i] = cli.Plain(cell)
	}
	t.rows = append(t.rows, cells)
}

// text returns the table as text. No cell is cut: names are there to be copied.
func (t *table) text() string {
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	rows := append([][]string{titles}, t.rows...)
	widths := make([]int, len(t.columns))
	for _, row := range rows {
		for i, cell := range row {
			if width := uniseg.StringWidth(cell); width <= longest {
				widths[i] = max(widths[i], width)
			}
		}
	}
	var text strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString(gap)
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
