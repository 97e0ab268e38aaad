package cli

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain returns a name or a text of Redis, or of an input, without what could change the terminal: control characters,
// bytes that are no UTF-8, and characters that nobody sees are written as in a Go string.
func Plain(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r != utf8.RuneError && unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.Quote(s[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return b.String()
}
