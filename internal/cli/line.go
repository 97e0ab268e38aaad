package cli

import (
	"fmt"
	"io"
	"time"

	"golang.org/x/term"
)

// commonColumns is how wide a terminal is taken for that does not tell its size, and how wide one must be for a [Line]: on a narrower
// one each drawing would take lines of its own.
const commonColumns = 80

// columns returns how wide the terminal behind w is; 0 without a terminal.
func columns(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err == nil && width == 0 {
		return commonColumns
	}
	return width
}

// A Line shows in one line of a terminal how far something is. A nil one shows nothing.
type Line struct {
	w     io.Writer
	drawn time.Time
}

// NewLine returns a line on w; nil if that is no terminal that has room for it.
func NewLine(w io.Writer) *Line {
	if columns(w) < commonColumns {
		return nil
	}
	return &Line{w: w}
}

// Show shows a text in place of the one before it, at most ten times a second.
func (l *Line) Show(format string, args ...any) {
	if l != nil && time.Since(l.drawn) >= 100*time.Millisecond {
		l.draw(fmt.Sprintf(format, args...))
		l.drawn = time.Now()
	}
}

// Wipe takes the text away.
func (l *Line) Wipe() {
	if l != nil && !l.drawn.IsZero() {
		l.draw("")
		_, _ = io.WriteString(l.w, "\r")
	}
}

// draw fills the line but for its last column. A terminal that has gone is no fault.
func (l *Line) draw(text string) {
	_, _ = fmt.Fprintf(l.w, "\r%-*.*s", commonColumns-1, commonColumns-1, text)
}
