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

// newProgress returns a bar of so many lines on w, or nil if w is no terminal of
// 80 columns or more.
// When the number is not known, -1, it counts.
func newProgress(w io.Writer, lines int) *progress {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return nil
	}
	// On a narrower terminal each drawing would take lines of its own. One that does not tell its
	// width is wide enough.
	if columns, _, err := term.GetSize(int(f.Fd())); err != nil || columns != 0 && columns < 80 {
		return nil
	}
	return &progress{bar: progressbar.NewOptions(lines,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("lines"),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetRenderBlankState(true),
		// Otherwise a goroutine turns the spinner, and nobody waits for its end.
		progressbar.OptionSetSpinnerChangeInterval(0),
	)}
}

// set says that the lines up to this one have been dealt with.
func (p *progress) set(line int) {
	if p == nil {
		return
	}
	// The last lines may be more than was counted: one without a line end. The
	// bar refuses what is beyond it, and a bar that cannot be drawn is no fault.
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
