package inspect

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// whileAway is the advice where no server is known. The entries of servers expire while Redis is away.
const whileAway = "if Redis was just away, look again in 10 s, as the servers register again"

// run is the command that runs the task now.
func (j judge) run() string {
	return fmt.Sprintf("`lockctl run --queue=%s %s`", ShellWord(j.x.Queue), ShellArg(j.x.ID))
}

// lockEnd says when the lock expires.
func (j judge) lockEnd() string { return j.at(j.x.Now.Add(j.x.lock.Left)) }

// at says when a time is, and by that something has happened by then.
func (j judge) at(t time.Time) string { return "at " + j.when(t) }
func (j judge) by(t time.Time) string { return "by " + j.when(t) }

func (j judge) when(t time.Time) string {
	d := t.Sub(j.x.Now)
	if d < 0 {
		return fmt.Sprintf("%s (%s ago)", j.clock(t), Duration(-d))
	}
	return fmt.Sprintf("%s (in %s)", j.clock(t), Duration(d))
}

// clock is a time of day with its zone, and with its date if that is not today's.
func (j judge) clock(t time.Time) string {
	t, now := t.In(j.cfg.Zone), j.x.Now.In(j.cfg.Zone)
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05 MST")
	}
	return t.Format("2006-01-02 15:04:05 MST")
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// ShellArg returns s as the last argument of a command in a shell, which does not take it for a flag: flags come before. A [Verdict]
// has its commands so.
func ShellArg(s string) string {
	if strings.HasPrefix(s, "-") {
		return "-- " + ShellWord(s)
	}
	return ShellWord(s)
}

// shellSafe are words that a shell takes as they are.
var shellSafe = regexp.MustCompile(`^[-a-zA-Z0-9_./:@%+=,]+$`)

// ShellWord returns s as one word of a command in a shell.
func ShellWord(s string) string {
	if shellSafe.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// runs says that the task runs, and since when if that is known.
func (j judge) runs() string {
	if j.x.started.IsZero() {
		return "runs" + j.onWorker()
	}
	return fmt.Sprintf("has run%s since %s", j.onWorker(), j.clock(j.x.started))
}
