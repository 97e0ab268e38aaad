// Package labels makes the words by which metrics and profiles sort tasks: classes of resources, kinds
// of tasks and of holders. They are few, and none is the name of a resource.
package labels

import "strings"

// Other stands for all that has no word of its own.
const Other = "other"

// longest is the length of the longest word in bytes.
const longest = 64

// Class returns the class of a resource: what comes before the first ":", such as order in
// order:536365. It is [Other] for a resource without a class, or with a very long one.
func Class(resource string) string {
	i := strings.IndexByte(resource, ':')
	if i <= 0 || i > longest {
		return Other
	}
	return resource[:i]
}

// program is a holder whose label has no word that could be shown.
const program = "a program"

// Holder returns the kind of a holder from the label that its lock shows. For a task that is the kind
// of the task. For others it is the first words of the label, up to one with a digit or a mark in it,
// which may be a name: those of "invoices of 2026-11" are "invoices of".
func Holder(label string) string {
	if rest, ok := cutProcess(label); ok {
		who, ok := before(rest, " on ")
		if !ok {
			return program // the default label of a program that is no task: its host
		}
		if kind, _, ok := strings.Cut(who, " "); ok {
			return short(kind) // of a task, whose id follows
		}
		label = who
	}
	words := 0
	for words < len(label) {
		word, _, _ := strings.Cut(label[words:], " ")
		if !plain(word) {
			break
		}
		words += min(len(word)+1, len(label)-words)
	}
	if label = strings.TrimSpace(label[:words]); label == "" {
		return program
	}
	return short(label)
}

// cutProcess cuts " (pid 4121)" off the end of a label, if that is there.
func cutProcess(label string) (rest string, ok bool) {
	if !strings.HasSuffix(label, ")") {
		return label, false
	}
	return before(label, " (pid ")
}

// before returns what comes before the last sep in s.
func before(s, sep string) (head string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, false
	}
	return s[:i], true
}

// plain reports whether a word has nothing but ASCII letters.
func plain(word string) bool {
	for i := range len(word) {
		if c := word[i] | 0x20; c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// short returns s, or Other.
func short(s string) string {
	if s == "" || len(s) > longest {
		return Other
	}
	return s
}

// Word returns a copy of s that can be the value of a label: UTF-8, and not long. It is [Other] if s is
// empty or long.
func Word(s string) string {
	return strings.ToValidUTF8(strings.Clone(short(s)), "?")
}
