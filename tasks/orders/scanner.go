package orders

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Limits of a record. A real one has about 90 bytes and one line. They bound
// the memory, and what one quote that is never closed can take along.
const (
	maxLine        = 64 << 10 // bytes of a line
	maxRecord      = 64 << 10 // bytes of a record
	maxRecordLines = 32
)

// A scanner splits a file into records. In contrast to encoding/csv it bounds
// their length, and after a broken quote it goes on with the very next line
// rather than behind whatever the quote swallowed.
type scanner struct {
	in *bufio.Reader
	// read is how many lines have been read from in.
	read int
	// again holds lines that a broken record had swallowed, to be read again.
	again []textLine
}

// wantLineEnds refuses the line ends of old Macintoshes, with which a file is one long line.
const wantLineEnds = "want lines that end with LF or CR LF, have a CR alone; save the file as CSV with other line ends"

// A textLine is one line of the file without its end.
type textLine struct {
	number int
	text   string
	long   bool // longer than maxLine; text is its beginning
}

func newScanner(text io.Reader) (*scanner, error) {
	in := bufio.NewReaderSize(text, maxLine)
	// Before the first quote of a header, the mark would make it a stray one.
	mark, err := in.Peek(len(magicUTF8))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(mark) == magicUTF8 {
		if _, err := in.Discard(len(mark)); err != nil {
			return nil, err
		}
	}
	return &scanner{in: in}, nil
}

// record returns the fields of the next record that is not blank, and the line
// it begins on. The error is io.EOF, a *LineError (the next call goes on), or a
// fault of the input.
func (s *scanner) record() (fields []string, number int, err error) {
	first, err := s.line()
	for err == nil && !first.long && strings.TrimSpace(first.text) == "" {
		first, err = s.line()
	}
	if err != nil {
		return nil, 0, err
	}
	if first.long {
		want := fmt.Sprintf("want a line of at most %d bytes", maxLine)
		if strings.Contains(first.text, "\r") {
			want = wantLineEnds
		}
		return nil, first.number, &LineError{Line: first.number, Want: want}
	}
	text, taken, want, err := s.join(first)
	if err != nil {
		return nil, 0, err
	}
	if want == "" {
		fields, want = split(text)
	}
	if want != "" {
		// Only the first line of a broken record counts as read.
		s.again = append(taken, s.again...)
		return nil, first.number, &LineError{Line: first.number, Want: want, Value: clip(toUTF8(first.text))}
	}
	for i := range fields {
		fields[i] = toUTF8(fields[i])
	}
	return fields, first.number, nil
}

// join appends the lines that belong to the record which begins with first: an
// odd number of quotes so far means that one is open. It returns them, taken,
// also apart. want is not empty when the record does not end where it must.
func (s *scanner) join(first textLine) (text string, taken []textLine, want string, err error) {
	parts := []string{first.text}
	size, open := len(first.text), oddQuotes(first.text)
	for open {
		next, err := s.line()
		if errors.Is(err, io.EOF) {
			return "", taken, "want a quote that is closed", nil
		}
		if err != nil {
			return "", nil, "", err
		}
		taken = append(taken, next)
		parts = append(parts, next.text)
		size += 1 + len(next.text)
		if next.long || size > maxRecord || len(taken) == maxRecordLines {
			return "", taken, fmt.Sprintf("want a quote that is closed within %d lines and %d bytes", maxRecordLines, maxRecord), nil
		}
		open = !oddQuotes(next.text)
	}
	return strings.Join(parts, "\n"), taken, "", nil
}

// line returns the next line of the file, or io.EOF behind the last.
func (s *scanner) line() (textLine, error) {
	if len(s.again) > 0 {
		l := s.again[0]
		s.again = s.again[1:]
		return l, nil
	}
	slice, err := s.in.ReadSlice('\n')
	l := textLine{number: s.read + 1}
	for errors.Is(err, bufio.ErrBufferFull) {
		if !l.long {
			l.long, l.text = true, string(slice)
		}
		_, err = s.in.ReadSlice('\n')
	}
	atEnd := errors.Is(err, io.EOF)
	if err != nil && !atEnd {
		return textLine{}, fmt.Errorf("line %d: %w", l.number, err)
	}
	if atEnd && len(slice) == 0 && !l.long {
		return textLine{}, io.EOF
	}
	s.read++
	if !l.long {
		// The slice is the buffer's own and gone with the next read: copied here.
		l.text = strings.TrimRight(strings.TrimSuffix(string(slice), "\n"), "\r")
	}
	return l, nil
}

func oddQuotes(s string) bool { return strings.Count(s, `"`)%2 == 1 }

// split cuts a record into its fields by RFC 4180. want is not empty when the
// quotes are wrong: then nobody knows where the fields end, and guessing could
// put a number into the wrong column.
func split(text string) (fields []string, want string) {
	for {
		var field, rest string
		var more bool
		if quoted, ok := strings.CutPrefix(text, `"`); ok {
			end := closingQuote(quoted)
			if end < 0 {
				return nil, "want a quote that is closed"
			}
			field, rest = strings.ReplaceAll(quoted[:end], `""`, `"`), quoted[end+1:]
			if rest, more = strings.CutPrefix(rest, ","); !more && rest != "" {
				return nil, "want a comma after a closing quote, and quotes within a field doubled"
			}
		} else {
			field, rest, more = strings.Cut(text, ",")
			if strings.Contains(field, "\r") {
				return nil, wantLineEnds
			}
			if strings.Contains(field, `"`) {
				return nil, "want a field that holds a quote to be in quotes, and the quote doubled"
			}
		}
		fields = append(fields, field)
		if !more {
			return fields, ""
		}
		text = rest
	}
}

// closingQuote returns the index of the first quote in s that is not doubled, or -1.
func closingQuote(s string) int {
	for i := 0; i < len(s); i++ {
		if s[i] != '"' {
			continue
		}
		if i+1 == len(s) || s[i+1] != '"' {
			return i
		}
		i++ // the pair is one quote of the text
	}
	return -1
}

// toUTF8 returns s, decoded as Latin-1 if it is not UTF-8: spreadsheet programs
// save in either. In this data that is about the pound sign in a description.
func toUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}
