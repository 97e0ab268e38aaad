package cli

import (
	"strconv"
	"strings"
)

// harmless are the characters that strconv.Quote escapes although they cannot change the terminal.
var harmless = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// Plain returns a name or a text of Redis, or of an input, without what could change the terminal: control characters,
// bytes that are no UTF-8, and characters that nobody sees are written as in a Go string.
func Plain(s string) string {
	quoted := strconv.Quote(s)
	return harmless.Replace(quoted[1 : len(quoted)-1])
}
