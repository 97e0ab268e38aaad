package lockpage

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The measures of a chart, in the units of its viewBox.
const (
	chartWidth  = 260
	chartHeight = 140
	plotLeft    = 42
	plotRight   = chartWidth - 6
	plotTop     = 10
	plotBottom  = chartHeight - 20
)

// charts are the four charts below the list of locks.
type charts struct {
	HandOff, Refusals, Waiting *chart
	Hot                        []hotBar
	HotText                    string
}

// A chart is a drawing of the last 15 minutes.
type chart struct {
	ID, Title, Scope string
	// Text says in words what the drawing shows.
	Text  string
	Keys  []key // what each line shows, if there are several
	Lines []line
	Grid  []tick
	Times []tick
	Empty string // what to say if there is nothing to draw
}

// A line is one line of a chart. The style sheet gives its Class a look.
type line struct{ Class, Path string }

// A key says what a line of a Class shows.
type key struct{ Class, Text string }

// A tick is a place on an axis.
type tick struct {
	At   float64
	Text string
}

// Places in a chart, for the template.
func (*chart) Width() int   { return chartWidth }
func (*chart) Height() int  { return chartHeight }
func (*chart) Left() int    { return plotLeft }
func (*chart) Right() int   { return plotRight }
func (*chart) Bottom() int  { return plotBottom }
func (*chart) TextY() int   { return chartHeight - 5 }
func (*chart) Middle() int  { return (plotLeft + plotRight) / 2 }
func (*chart) MiddleY() int { return (plotTop + plotBottom) / 2 }

// A hotBar is a resource with a bar. Width is in percent of the widest bar.
type hotBar struct {
	Resource string
	Waited   string
	Width    float64
}

const (
	thisWorker = "this worker"
	wholeFleet = "whole fleet"
)

// charts returns the charts as of now.
func (h *Handler) charts(now time.Time) *charts {
	r := h.cfg.History.read(now)
	waiting, hot := h.fleet.read(now)
	c := &charts{
		HandOff:  &chart{ID: "handoff", Title: "Hand-off time", Scope: thisWorker},
		Refusals: &chart{ID: "refusals", Title: "Refusals", Scope: thisWorker},
		Waiting:  &chart{ID: "waiting", Title: "Waiting tasks", Scope: wholeFleet},
	}
	if r.handOffs == 0 {
		c.HandOff.Empty = "no hand-off in 15 minutes"
	} else {
		c.HandOff.Keys = []key{{"p50", "p50 " + short(r.allP50)}, {"p99", "p99 " + short(r.allP99)}}
		c.HandOff.Text = c.HandOff.Keys[0].Text + ", " + c.HandOff.Keys[1].Text
		c.HandOff.draw(func(s float64) string { return short(time.Duration(s * float64(time.Second))) }, series{"p99", r.p99}, series{"p50", r.p50})
	}
	if r.refused == 0 {
		c.Refusals.Empty = "no refusal in 15 minutes"
	} else {
		c.Refusals.Text = fmt.Sprintf("%s in 15 minutes", count(r.refused, "refusal"))
		c.Refusals.draw(perSecond, series{"area", r.refusals})
	}
	if last, most, known := extremes(waiting); !known {
		c.Waiting.Empty = "no sample yet"
	} else {
		c.Waiting.Text = fmt.Sprintf("%s now, %s at most", thousands(int(last)), thousands(int(most)))
		c.Waiting.draw(plain, series{"area", waiting})
	}
	c.HotText = "no waiting tasks sampled"
	for i, one := range hot[:min(len(hot), 5)] {
		if i == 0 {
			c.HotText = "by waiting time, summed up"
		}
		c.Hot = append(c.Hot, hotBar{one.Resource, long(one.Waited), 100 * float64(one.Waited) / float64(hot[0].Waited)})
	}
	return c
}

// A series has the values of one line, one for each sample. NaN is a gap.
type series struct {
	class  string
	values []float64
}

// draw makes the lines and the axes. unit formats a value of the vertical axis.
func (c *chart) draw(unit func(float64) string, all ...series) {
	most := 0.0
	for _, s := range all {
		if _, m, _ := extremes(s.values); m > most {
			most = m
		}
	}
	most = ceiling(most)
	y := func(v float64) float64 { return plotBottom - v/most*(plotBottom-plotTop) }
	for _, s := range all {
		c.Lines = append(c.Lines, line{s.class, path(s.values, y, s.class == "area")})
	}
	for _, part := range []float64{0, 0.5, 1} {
		c.Grid = append(c.Grid, tick{y(part * most), unit(part * most)})
	}
	for _, minutes := range []int{15, 10, 5, 0} {
		text := fmt.Sprintf("−%d", minutes)
		switch minutes {
		case 15:
			text += " min"
		case 0:
			text = "now"
		}
		c.Times = append(c.Times, tick{x(samples - 1 - float64(minutes)/15*(samples-1)), text})
	}
}

// x is the horizontal place of a sample. The first sample is 0.
func x(sample float64) float64 { return plotLeft + sample/(samples-1)*(plotRight-plotLeft) }

// path returns the path of a line, which a NaN interrupts. With area each part of the line is closed
// along the axis.
func path(values []float64, y func(float64) float64, area bool) string {
	var b strings.Builder
	inside := false
	for i, v := range append(slices.Clip(values), math.NaN()) { // which ends the last part
		at := x(float64(i))
		switch {
		case math.IsNaN(v):
			if inside && area {
				fmt.Fprintf(&b, "V%dZ", plotBottom)
			}
			inside = false
			continue
		case inside:
			fmt.Fprintf(&b, "L%.1f %.1f", at, y(v))
		case area:
			fmt.Fprintf(&b, "M%.1f %dV%.1fh.5", at, plotBottom, y(v))
		default:
			fmt.Fprintf(&b, "M%.1f %.1fh.01", at, y(v)) // a dot, if nothing follows
		}
		inside = true
	}
	return b.String()
}

// extremes returns the last value and the largest one. known is false if all values are NaN.
func extremes(values []float64) (last, most float64, known bool) {
	for _, v := range values {
		if !math.IsNaN(v) {
			last, most, known = v, max(most, v), true
		}
	}
	return last, most, known
}

// ceiling rounds v up to 1, 2 or 5 times a power of ten, and 0 to 1.
func ceiling(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, digit := range []float64{1, 2, 5} {
		if v <= digit*power {
			return digit * power
		}
	}
	return 10 * power
}
