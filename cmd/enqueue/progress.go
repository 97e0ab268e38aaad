package main

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A progress shows how far a run has got. A nil one shows nothing.
type progress struct {
	bar *progressbar.ProgressBar
}

// newProgress returns a bar of the lines of a content on w. If the content is not known, the bar
// counts. The result is nil if w is no terminal of 80 columns or more.
func newProgress(w io.Writer, of content) *progress {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return nil
	}
	// On a narrower terminal each drawing would take lines of its own. A terminal may not tell its
	// width.
	if columns, _, err := term.GetSize(int(f.Fd())); err != nil || columns != 0 && columns < 80 {
		return nil
	}
	lines := -1
	if of.hash != "" {
		lines = of.lines
	}
	return &progress{bar: progressbar.NewOptions(lines,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("lines"),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetRenderBlankState(true),
		// No goroutine for the spinner: nobody would wait for its end.
		progressbar.OptionSetSpinnerChangeInterval(0),
	)}
}

// set says that the lines up to this one are done.
func (p *progress) set(line int) {
	if p == nil {
		return
	}
	// A last line without a line end is beyond the count, and the bar refuses it. A
	// bar that cannot be drawn is no fault.
	if most := p.bar.GetMax(); most >= 0 {
		line = min(line, most)
	}
	_ = p.bar.Set(line)
}

// end takes the bar away.
func (p *progress) end() {
	if p != nil {
		_ = p.bar.Exit() // as in set
	}
}
