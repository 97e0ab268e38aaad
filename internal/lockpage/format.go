package lockpage

import (
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sidingq/siding/inspect"
)

// functions are what the templates call.
var functions = template.FuncMap{
	"resourceURL": resourceURL,
	"taskURL":     taskURL,
	"file":        FileURL,
	"ago":         ago,
	"moved":       moved,
	"clock":       clock,
	"thousands":   thousands,
	"things":      count,
	"asynqURL":    asynqURL,
	"lower":       strings.ToLower,
	"spans":       spans,
}

// A span is a part of a verdict: text, or a command.
type span struct {
	Text string
	Code bool
}

// spans splits a text into words and commands, which are between backquotes. It does not split a text
// with an odd number of backquotes: a name in the text has one.
func spans(text string) []span {
	parts := strings.Split(text, "`")
	if len(parts)%2 == 0 {
		return []span{{Text: text}}
	}
	list := make([]span, 0, len(parts))
	for i, part := range parts {
		if part != "" {
			list = append(list, span{Text: part, Code: i%2 == 1})
		}
	}
	return list
}

// thousands formats a number with a thin space between each three digits.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// count formats a number and its noun.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + one + "s"
}

// ago formats how long ago a time was, and a dash for the zero time.
func ago(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return inspect.Duration(time.Since(t)).String()
}

// moved returns when somebody got a lock last for which others wait. It is zero if nobody waits, if that is not known, and if the
// lock has one holder: then Since tells it. A fence is the time in us at which Redis granted it.
func moved(l inspect.Lock) time.Time {
	if l.Waiting == 0 || l.Fence == 0 || !l.Since.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(l.Fence)
}

// clock formats a time in UTC, with its date unless that is today's. A dash stands for the zero time.
func clock(t time.Time) string {
	switch t = t.UTC(); {
	case t.IsZero():
		return "–"
	case t.Format(time.DateOnly) == time.Now().UTC().Format(time.DateOnly):
		return t.Format("15:04:05") + " UTC"
	default:
		return t.Format("2006-01-02 15:04:05") + " UTC"
	}
}

// asynqURL returns the address of a task in asynq's dashboard. It returns "" without a dashboard, and
// for a queue or id that cannot be a part of a path: a browser would change it.
func asynqURL(dashboard string, t inspect.Task) string {
	for _, name := range []string{t.Queue, t.ID} {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/?#%\\\uFFFD") || strings.TrimSpace(name) != name {
			return ""
		}
	}
	if dashboard == "" {
		return ""
	}
	return dashboard + "/queues/" + url.PathEscape(t.Queue) + "/tasks/" + url.PathEscape(t.ID)
}
