// Package labels makes the words by which metrics and the profile sort tasks: classes of resources, kinds
// of tasks and of holders, and outcomes. They are few, and none is the name of a resource.
package labels

import "strings"

// Other is the word of all that has no word of its own.
const Other = "other"

// longest is the length of the longest word in bytes.
const longest = 64

// Class returns the class of a resource: the part before the first ":", such as order in
// order:536365. It is [Other] for a resource without a class, or with one of more than 64 bytes.
func Class(resource string) string {
	i := strings.IndexByte(resource, ':')
	if i <= 0 || i > longest {
		return Other
	}
	return resource[:i]
}

// program is the kind of a holder whose label has no word that may be shown.
const program = "a program"

// Holder returns the kind of a holder from its label. For a task that is the kind of the task. For
// others it is the first words of the label that have only ASCII letters: those of "invoices of
// 2026-11" are "invoices of". A word with another character may be a name.
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

// cutProcess cuts an end like " (pid 4121)" off a label. ok is false if the label has none.
func cutProcess(label string) (rest string, ok bool) {
	if !strings.HasSuffix(label, ")") {
		return label, false
	}
	return before(label, " (pid ")
}

// before returns the part of s before the last sep. ok is false if s has none.
func before(s, sep string) (head string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, false
	}
	return s[:i], true
}

// plain reports whether a word has only ASCII letters.
func plain(word string) bool {
	for i := range len(word) {
		if c := word[i] | 0x20; c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// short returns s, or Other if s is empty or too long.
func short(s string) string {
	if s == "" || len(s) > longest {
		return Other
	}
	return s
}

// Word returns a copy of s that can be the value of a label: valid UTF-8 of at most 64 bytes. It is
// [Other] if s is empty or longer.
func Word(s string) string {
	return strings.ToValidUTF8(strings.Clone(short(s)), "?")
}
