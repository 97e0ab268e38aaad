package orders

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Limits of a record. A real one has about 90 bytes and one line. They bound the
// memory, and the lines that one open quote can swallow.
const (
	maxRecord      = 64 << 10 // bytes of a record, and of a line
	maxRecordLines = 32
)

// A scanner splits a file into records. In contrast to encoding/csv it bounds
// their length. After a broken quote it goes on with the next line, not behind the
// lines that the quote has swallowed.
type scanner struct {
	in *bufio.Reader
	// read is how many lines have been read from in.
	read int
	// again holds the lines that a broken record has swallowed. They are read again.
	again []textLine
}

// A textLine is one line of the file without its end, cut off after maxRecord bytes.
type textLine struct {
	number int
	text   string
}

// record returns the fields of the next record that is not blank, and the line
// it begins on. The error is io.EOF, a *LineError (the next call goes on), or a
// fault of the input.
func (s *scanner) record() (fields []string, number int, err error) {
	first, err := s.line()
	for err == nil && strings.TrimSpace(first.text) == "" {
		first, err = s.line()
	}
	if err != nil {
		return nil, 0, err
	}
	text := first.text
	var more []textLine // an odd number of quotes so far means that one is open
	for len(text) < maxRecord && len(more) < maxRecordLines && strings.Count(text, `"`)%2 == 1 {
		next, err := s.line()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		more = append(more, next)
		text += "\n" + next.text
	}
	fields, want := split(text)
	if want != "" {
		// Only the first line of a broken record counts as read.
		s.again = append(more, s.again...)
		return nil, first.number, &LineError{Line: first.number, Want: want, Value: first.text}
	}
	return fields, first.number, nil
}

// split cuts a record into its fields. want is not empty when the quotes are wrong. Nobody then
// knows where the fields end, and a guess could put a number into the wrong column.
func split(text string) (fields []string, want string) {
	if strings.Count(text, `"`)%2 == 1 {
		return nil, fmt.Sprintf("want a quote that is closed within %d lines and %d bytes", maxRecordLines, maxRecord)
	}
	if len(text) >= maxRecord {
		return nil, fmt.Sprintf("want a line of less than %d bytes, which ends with LF or CR LF", maxRecord)
	}
	r := csv.NewReader(strings.NewReader(text))
	fields, err := r.Read()
	switch {
	case errors.Is(err, csv.ErrBareQuote):
		return nil, "want a field that holds a quote to be in quotes, and the quote doubled"
	case err != nil:
		return nil, "want a comma after a closing quote, and quotes within a field doubled"
	}
	for i, field := range fields {
		fields[i] = toUTF8(field)
	}
	return fields, ""
}

// line returns the next line of the file, or io.EOF behind the last.
func (s *scanner) line() (textLine, error) {
	if len(s.again) > 0 {
		l := s.again[0]
		s.again = s.again[1:]
		return l, nil
	}
	slice, err := s.in.ReadSlice('\n')
	text := string(slice)
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = s.in.ReadSlice('\n')
	}
	if err != nil && (!errors.Is(err, io.EOF) || text == "") {
		if !errors.Is(err, io.EOF) {
			err = fmt.Errorf("line %d: %w", s.read+1, err)
		}
		return textLine{}, err
	}
	s.read++
	if s.read == 1 {
		text = strings.TrimPrefix(text, "\ufeff") // a byte order mark
	}
	return textLine{s.read, strings.TrimRight(strings.TrimSuffix(text, "\n"), "\r")}, nil
}

// toUTF8 returns s, decoded as Latin-1 if it is not UTF-8: spreadsheet programs
// save in either.
func toUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}
