package store

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckText returns an error that names the text by which an operator says who does something, or why, if it is empty, longer
// than most bytes, or not a line of UTF-8.
func CheckText(name, value string, most int) error {
	switch {
	case strings.TrimSpace(value) == "":
		return fmt.Errorf("%s: want a text, have nothing", name)
	case len(value) > most:
		return fmt.Errorf("%s: want at most %d bytes, have %d", name, most, len(value))
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Errorf("%s: want text without control characters, have %q", name, value)
	}
	return nil
}
