package cli

import (
	"fmt"
	"io"
	"time"

	"golang.org/x/term"
)

// lineColumns is how wide a terminal must be for a [Line]. On a narrower one each drawing would take lines of its own.
const lineColumns = 80

// A Line shows in one line of a terminal how far something is. A nil one shows nothing.
type Line struct {
	w     io.Writer
	drawn time.Time
}

// NewLine returns a line on w; nil if that is no terminal that has room for it. A terminal of unknown width has.
func NewLine(w io.Writer) *Line {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return nil
	}
	if columns, _, err := term.GetSize(int(f.Fd())); err != nil || columns != 0 && columns < lineColumns {
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
	_, _ = fmt.Fprintf(l.w, "\r%-*.*s", lineColumns-1, lineColumns-1, text)
}
