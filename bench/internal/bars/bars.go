// Package bars draws bar charts of what several contenders reached.
package bars

import (
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/sidingq/siding/bench/internal/report"
)

// A Chart has a row for each contender, with a bar for each series.
type Chart struct {
	Title, Axis string
	// Log makes the axis logarithmic. Values have to be above 0 then.
	Log    bool
	Rows   []string
	Series []Series
}

// A Series is one figure of all contenders.
type Series struct {
	Name string
	Bars []Bar // by row
}

// A Bar is a value with the lowest and the highest that were seen. One with a Note
// has no value, and shows the note instead.
type Bar struct {
	Value, Low, High float64
	Note             string
}

// Measures of the picture, light and without decoration.
const (
	width     = 20 * vg.Centimeter
	barHeight = 0.42 * vg.Centimeter
	frame     = 2.6 * vg.Centimeter // above and below the bars
	border    = 0.3 * vg.Centimeter
	textSize  = vg.Length(9)
	titleSize = vg.Length(11)
)

var (
	fills = []color.Color{color.RGBA{R: 0x2b, G: 0x6c, B: 0xb0, A: 0xff}, color.RGBA{R: 0xf0, G: 0xa2, B: 0x4a, A: 0xff}}
	dark  = color.RGBA{R: 0x33, G: 0x33, B: 0x33, A: 0xff}
	faint = color.RGBA{R: 0xe4, G: 0xe4, B: 0xe4, A: 0xff}
)

// WriteSVG draws the chart. Without rows it has a title and an axis only.
func (c Chart) WriteSVG(w io.Writer) error {
	p := plot.New()
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	for _, of := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		*of = font.From(sans, textSize)
	}
	p.Title.Text, p.X.Label.Text = c.Title, c.Axis
	p.Title.TextStyle.Font.Size = titleSize
	p.Title.Padding = vg.Points(6)
	if len(c.Rows) > 0 { // NominalY panics without names
		p.NominalY(reversed(c.Rows)...)
	}
	bars := &rows{Chart: c, text: p.X.Tick.Label}
	p.Add(bars)
	p.X.Min, p.X.Max = bars.axis()
	p.Y.Min, p.Y.Max = -0.6, float64(len(c.Rows))-0.4
	if c.Log {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if len(c.Series) > 1 {
		for i, s := range c.Series {
			p.Legend.Add(s.Name, thumbnail{fills[i%len(fills)]})
		}
		p.Legend.Top, p.Legend.Padding = true, vg.Points(3)
		p.Y.Max += 1.2 // room for it
	}
	height := frame + vg.Length(len(c.Rows)*max(2, len(c.Series)+1))*barHeight
	canvas := vgsvg.New(width, height)
	p.Draw(draw.Crop(draw.New(canvas), border, -border, border, -border))
	_, err := canvas.WriteTo(w)
	return err
}

// rows draws the bars, the first row on top.
type rows struct {
	Chart

	text draw.TextStyle
}

// axis returns the range of the axis, with room for what is written behind the
// longest bar.
func (r *rows) axis() (from, to float64) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range r.Series {
		for _, b := range s.Bars {
			if b.Note == "" {
				low, high = min(low, b.Low), max(high, b.High)
			}
		}
	}
	switch {
	case high <= 0 || math.IsInf(high, 0): // nothing to show
		return 1, 10
	case r.Log:
		from = math.Pow(10, math.Floor(math.Log10(low)-0.05))
		return from, high * math.Pow(high/from, 0.15)
	default:
		return 0, high * 1.12
	}
}

// Plot fits [plot.Plotter].
func (r *rows) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	r.grid(canvas, p)
	thick := 0.8 / float64(len(r.Series))
	for i, s := range r.Series {
		for row, b := range s.Bars {
			middle := float64(len(r.Rows)-1-row) + 0.4 - thick*(float64(i)+0.5)
			r.bar(canvas, b, x, y(middle), 0.45*(y(middle+thick)-y(middle)), fills[i%len(fills)])
		}
	}
}

// grid draws a line for each labelled tick, behind the bars.
func (r *rows) grid(canvas draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&canvas)
	style := draw.LineStyle{Color: faint, Width: vg.Points(0.7)}
	for _, tick := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if !tick.IsMinor() {
			canvas.StrokeLine2(style, x(tick.Value), canvas.Min.Y, x(tick.Value), canvas.Max.Y)
		}
	}
}

// bar draws one at height y, half as high as half says to either side.
func (r *rows) bar(canvas draw.Canvas, b Bar, x func(float64) vg.Length, y, half vg.Length, fill color.Color) {
	style := r.text
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	gap := vg.Points(4)
	if b.Note != "" {
		style.Color = dark
		canvas.FillText(style, vg.Point{X: canvas.Min.X + gap, Y: y}, b.Note)
		return
	}
	end := x(b.Value)
	canvas.FillPolygon(fill, []vg.Point{
		{X: canvas.Min.X, Y: y - half}, {X: end, Y: y - half}, {X: end, Y: y + half}, {X: canvas.Min.X, Y: y + half},
	})
	canvas.StrokeLine2(draw.LineStyle{Color: dark, Width: vg.Points(1)}, x(b.Low), y, x(b.High), y)
	canvas.FillText(style, vg.Point{X: x(b.High) + gap, Y: y}, report.Short(b.Value))
}

// thumbnail is a patch of colour in the legend.
type thumbnail struct{ fill color.Color }

// Thumbnail fits [plot.Thumbnailer].
func (t thumbnail) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(t.fill, []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}})
}

func reversed(names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[len(names)-1-i] = name
	}
	return all
}
