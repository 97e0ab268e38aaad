// Package words keeps one name for each thing in code, comments, settings, logs and
// documentation. docs/reference/glossary.md explains the names.
package words

import (
	"regexp"
	"slices"
	"strings"
)

// A Word is one that this project does not use.
type Word struct {
	Pattern string // of whole words, in text as spaced returns it
	Instead string
	Example string // a text with the word
	Unless  string // a pattern of texts in which it means something else
}

// Words are all that are refused. A common English word is refused only in a phrase
// that has one meaning here.
var Words = []Word{
	// The lock and those who wait for it.
	{`tenures?`, "lease", "newTenure()", ``},
	{`lock claim|type claim|store claim`, "request", "lock.Claim{}", ``},
	{`locker hold|locker with\(|lock hold`, "Locker.Do", "locker.Hold(ctx)", ``},
	{`lease keep|keep for\(|unkept`, "renew, retention or detached", "lease.Keep(ctx)", `lease keep alive`},
	{`lock linear`, "Fixed or Exponential", "lock.Linear(a, b)", ``},
	{`abandon(?:s|ed|ing)?`, "detach", "lease.Abandon()", ``},
	{`adopt(?:s|ed|ing|ion)?`, "lease.New, or take over", "locker.Adopt(ctx)", ``},
	{`margin`, "safety margin", "Margin time.Duration", `(?:safety|unique) margin`},
	{`grace`, "hand-off timeout", "Grace time.Duration", `(?:group|stop|termination) grace period`},
	{`laps(?:e|es|ed|ing)`, "expire", "the reservation lapsed", ``},
	{`in line`, "in the wait queue", "lock.InLine()", `in line (?:with|\d|%|n\b)`},
	{
		`(?:head|front) of (?:the|its|a) line|(?:joins?|joined|leaves?|left|out of) (?:the|its|a|no) line|stands? in (?:the|a|one|no) line`,
		"wait queue", "leaves the line", ``,
	},
	{`(?:at|to) the door`, "on arrival", "the next task at the door", ``},
	{`(?:whose|its|their|the) turn (?:it|is|has|was|comes|on)`, "reservation", "hands its turn on", ``},
	{`pass(?:es|ed)? on the lock|pass(?:es|ed)? (?:it|the lock|its turn) on to the (?:next|first)|(?:locker|g|l) pass on`, "hand off", "locker.PassOn(ctx)", ``},
	{`hand(?:s|ed|ing)? (?:it |them )?over`, "hand off", "lease.HandOver()", ``},
	{`desks?`, "contenders", "type desk struct", ``},
	{`ears?|earshot`, "listener, or subscription", "the ear of a process", ``},
	{`deaf`, "unreachable", "a deaf process", ``},
	{`doz(?:e|es|ed|ing)`, "wait", "the fetcher dozes", ``},

	// Tasks that wait, and workers that wait for tasks.
	{`summon(?:s|ed|ing)?`, "wake", "summonWaiter(key)", ``},
	{`call(?:s|ed|ing)? (?:back|(?:the|that|its|a) waiter|the next (?:waiter|one|task))|called lua`, "wake", "called back", ``},
	{`promotes?|promoting`, "wake", "promote.lua", ``},
	{`uncharged|at no charge|without charge`, "uses no retry", "runs again, uncharged", ``},
	{`unlined`, "not queued", "an unlined task", ``},
	{`aside`, "park", "puts the task aside", `payload aside|aside from`},
	{`put(?:s|ting)? (?:it |them |the task |a task )?back`, "requeue", "put_back.lua", `write off put back`},
	{`silent (?:tasks?|attempts?|lua|go)|task is silent`, "orphan", "silent.lua", ``},
	{`spare(?:s|d)`, "tolerated", "how many crashes a task is spared", ``},
	{`refused (?:tasks?|attempts?|waiters?)`, "busy", "a refused attempt", ``},
	{`(?:step|call|path|release|go|goes|hand off) by hand|by hand (?:path|true|false|bool)`, "stepwise", "ByHand bool", ``},
	{`ahead (?:lua|script|go)|(?:locker|taken|type|func|lock) ahead`, "locking dequeue", "locker.Ahead(keys)", ``},

	{`door ?bells?|bells?`, "notifier, or notify list", "NoDoorbell", ``},
	{`rings?|ringers?|ringing|rung`, "notify", "queue.Ringing(opt)", `(?:redis|new) ring`},
	{`new ?lane|lane struct|[a-z] \* ?lane|asynqredis lane`, "fetcher", "type Lane struct", ``},
	{`seats?`, "prefetched task", "a seat in the process", ``},
	{`learned (?:map|bool|struct|scripts?)`, "script cache", "learned map[string]bool", ``},
	{`new ?site|site struct|s \* ?site`, "testbed", "func newSite(t)", ``},
}

// A Found is a refused word, and what to write instead.
type Found struct {
	Line          int // from 1
	Word, Instead string
}

// A Finder finds Words.
type Finder struct{ words []finder }

type finder struct {
	pattern, unless *regexp.Regexp
	stems           []string // of the pattern
	instead         string
}

// NewFinder makes a Finder of all Words.
func NewFinder() Finder {
	f := Finder{words: make([]finder, 0, len(Words))}
	for _, w := range Words {
		one := finder{pattern: regexp.MustCompile(`\b(?:` + w.Pattern + `)\b`), stems: stemsOf(w.Pattern), instead: w.Instead}
		if w.Unless != "" {
			one.unless = regexp.MustCompile(w.Unless)
		}
		f.words = append(f.words, one)
	}
	return f
}

// In returns the refused words of a text.
func (f Finder) In(text string) []Found {
	text = spaced(text)
	likely := slices.DeleteFunc(slices.Clone(f.words), func(w finder) bool { return !w.likely(text) })
	if len(likely) == 0 {
		return nil
	}
	var found []Found
	for i, line := range strings.Split(text, "\n") {
		if !slices.ContainsFunc(likely, func(w finder) bool { return w.in(line) != "" }) {
			continue
		}
		for _, w := range f.words {
			rest := line
			if w.unless != nil {
				rest = w.unless.ReplaceAllString(line, "")
			}
			if hit := w.in(rest); hit != "" {
				found = append(found, Found{i + 1, hit, w.instead})
			}
		}
	}
	return found
}

// in returns the first hit in a text, "" for none. It looks for the stems first, which takes much less time.
func (w finder) in(text string) string {
	if !w.likely(text) {
		return ""
	}
	return w.pattern.FindString(text)
}

// likely reports whether a text has a stem of the word. Without one it does not have the word.
func (w finder) likely(text string) bool {
	return w.stems == nil || slices.ContainsFunc(w.stems, func(stem string) bool { return strings.Contains(text, stem) })
}

// spaced takes names apart: "NoDoorbell" and "no_doorbell" are "no doorbell".
func spaced(text string) string {
	letter := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	out := make([]byte, 0, len(text)+len(text)/8)
	for i := range len(text) {
		c := text[i]
		inside := i > 0 && i+1 < len(text)
		switch {
		case inside && (c == '_' || c == '.' || c == '-') && letter(text[i+1]) && text[i-1] != ' ' && text[i-1] != '\n':
			c = ' '
		case inside && c >= 'A' && c <= 'Z' && text[i-1] >= 'a' && text[i-1] <= 'z':
			out = append(out, ' ')
		}
		out = append(out, c)
	}
	return strings.ToLower(string(out))
}
