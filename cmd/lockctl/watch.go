package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/sleep"
)

// A watched is a list that is drawn again and again.
type watched struct {
	*app
	listing

	list  inspect.List
	read  time.Time // when list was read
	away  string    // why Redis does not answer; empty while it does
	since time.Time // when Redis has not answered for the first time
}

// watch lists the locks again and again until ctx ends, which is no fault. While Redis does not answer,
// watch says so and goes on.
func (a *app) watch(ctx context.Context, c *connection, l listing) error {
	w := &watched{app: a, listing: l}
	for ctx.Err() == nil {
		list, err := a.locks(ctx, c, l)
		if ctx.Err() == nil { // else that is why there is no list
			w.note(list, err, c.settings.Redis)
			err = w.draw()
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		_ = sleep.For(ctx, l.watch) // the end of ctx is that of the loop
	}
	return nil
}

// note takes in what Redis has answered.
func (w *watched) note(list inspect.List, err error, asked config.Redis) {
	now := w.now()
	columns, _ := w.size(w.stdout)
	if err == nil {
		if w.away != "" && columns == 0 {
			w.say("lockctl: redis answers again, after %s\n", inspect.Duration(now.Sub(w.since)))
		}
		w.list, w.read, w.away = list, now, ""
		return
	}
	first := w.away == ""
	w.away = plain(asked.Failed("", err).Error())
	if !first {
		return
	}
	w.since = now
	if columns == 0 {
		w.say("lockctl: %s\n", w.away)
	}
}

// draw draws the list: over the old one on a terminal, elsewhere after it.
func (w *watched) draw() error {
	columns, rows := w.size(w.stdout)
	switch {
	case columns > 0:
		return w.print(w.list.Locks, func() string { return w.frame(columns, rows) })
	case w.away != "":
		return nil // it has been said
	}
	return w.print(w.list.Locks, func() string {
		return w.title() + "\n" + w.lockTable(w.list.Locks).text(0) + "\n"
	})
}

// frame is the list on a terminal.
func (w *watched) frame(columns, rows int) string {
	lines := []string{w.title()}
	if w.away != "" {
		lines = append(lines,
			fmt.Sprintf("Redis is away since %s (%s), and is asked again:", w.moment(w.since), inspect.Duration(w.now().Sub(w.since))),
			middle(w.away, columns))
	}
	lines = append(lines, w.lockTable(w.list.Locks).lines(columns)...)
	if room := max(1, rows-1); len(lines) > room {
		more := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("... and %s", count(more, "more lock")))
	}
	var frame strings.Builder
	frame.WriteString("\x1b[H") // to the upper left corner
	for _, line := range lines {
		frame.WriteString(ending(line, columns) + "\x1b[K\n") // without what was behind it
	}
	frame.WriteString("\x1b[J") // without what was below it
	return frame.String()
}

// title is the first line of a list.
func (w *watched) title() string {
	waiters := 0
	for _, l := range w.list.Locks {
		waiters += l.Waiting
	}
	title := fmt.Sprintf("%s  %s, %s", w.moment(w.read), count(len(w.list.Locks), "lock"), count(waiters, "waiter"))
	if w.list.LeftOut > 0 {
		title += "; " + leftOut(w.list.LeftOut)
	}
	return title
}

// ending returns a line without an end that would wrap.
func ending(line string, columns int) string {
	all := clusters(line)
	return strings.Join(all[:fitting(slices.All(all), columns)], "")
}
