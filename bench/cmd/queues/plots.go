package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sidingq/siding/bench/internal/bars"
	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/report"
)

// A picture is what one file shows: some figures of one scenario.
type picture struct {
	file, scenario string
	bars.Chart     // Series have names, but no bars yet

	figures []figure // one for each series
}

func pictures() []picture {
	return []picture{
		{
			"queues-makespan.svg", "H",
			bars.Chart{Title: "One hot key among many: time to finish", Axis: "times the ideal, less is better", Log: true, Series: make([]bars.Series, 1)},
			[]figure{toIdeal()},
		},
		{
			"queues-handoff.svg", "H",
			bars.Chart{
				Title: "One hot key among many: from the end of one task to the start of the next", Axis: "ms, less is better", Log: true,
				Series: []bars.Series{{Name: "p50"}, {Name: "p99"}},
			},
			[]figure{handOff(50, "p50"), handOff(99, "p99")},
		},
		{
			"queues-throughput.svg", "uncontended",
			bars.Chart{Title: "No two tasks want the same: throughput", Axis: "tasks per second, more is better", Series: make([]bars.Series, 1)},
			[]figure{throughput()},
		},
	}
}

// plot writes a picture of each scenario that was run and has one.
func (b *bench) plot(folder string) error {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	for _, p := range pictures() {
		if _, run := b.plans[p.scenario]; !run {
			continue
		}
		b.fill(&p)
		if b.rtt > 0 {
			p.file = strings.TrimSuffix(p.file, ".svg") + fmt.Sprintf("-rtt-%gms.svg", report.MS(b.rtt))
			p.Title += fmt.Sprintf(" (network: %v)", b.rtt)
		}
		file, err := os.Create(filepath.Join(folder, p.file))
		if err != nil {
			return err
		}
		if err := p.WriteSVG(file); err != nil {
			_ = file.Close()
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// fill gives the picture its bars. Contenders of whom the figures are not known, as they mean
// nothing for them, have none.
func (b *bench) fill(p *picture) {
	for _, name := range contest.Names(b.contenders, contender.called) {
		row := make([]bars.Bar, len(p.figures))
		known := false
		for i, f := range p.figures {
			of := report.Figure{Case: p.scenario, Name: f.name, Unit: f.unit}
			row[i].Note = b.results.NoteOf(name, of)
			var ok bool
			if row[i].Value, row[i].Low, row[i].High, ok = b.results.Range(name, of); ok {
				row[i].Note = ""
			}
			known = known || ok || row[i].Note != ""
		}
		if !known {
			continue
		}
		if b.unfinished[[2]string{name, p.scenario}] {
			name += " (unfinished)" // what is known is of a part
		}
		p.Rows = append(p.Rows, name)
		for i := range row {
			p.Series[i].Bars = append(p.Series[i].Bars, row[i])
		}
	}
}
