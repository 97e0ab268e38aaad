package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A progress shows how far some tasks are: a bar on a terminal, else a plain line
// every other second.
type progress struct {
	out   io.Writer
	total int
	bar   *progressbar.ProgressBar // nil without a terminal
	drawn *bytes.Buffer            // what the bar wants written: all at once, lest it flickers
	said  time.Time
}

func newProgress(out io.Writer, total int) *progress {
	p := &progress{out: out, total: total, drawn: new(bytes.Buffer), said: time.Now()}
	if f, ok := out.(*os.File); ok && wide(f) {
		p.bar = progressbar.NewOptions(
			total,
			progressbar.OptionSetWriter(p.drawn),
			progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(30),
			progressbar.OptionSetPredictTime(false),
		)
	}
	return p
}

// barColumns is how wide a terminal must be for the bar. On a narrower one each drawing of the
// bar would take new lines.
const barColumns = 80

// wide reports whether f is a terminal that has room for the bar. A terminal of unknown width
// has.
func wide(f *os.File) bool {
	columns, _, err := term.GetSize(int(f.Fd()))
	return err == nil && (columns == 0 || columns >= barColumns)
}

// show shows how many tasks are done, and a text. A failed write is no error.
func (p *progress) show(done int, text string) {
	if p.bar != nil {
		p.bar.Describe(text)
		_ = p.bar.Set(done)
		_, _ = p.drawn.WriteTo(p.out)
		return
	}
	if now := time.Now(); now.Sub(p.said) >= 2*time.Second {
		p.said = now
		_, _ = fmt.Fprintf(p.out, "demo: %d of %d tasks done, %s\n", done, p.total, text)
	}
}

// clear takes the bar away.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
		_, _ = p.drawn.WriteTo(p.out)
	}
}
