package orders

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"strings"
)

// Unpack returns the text of the file that r reads, and unpacks one that gzip has
// compressed, whatever its name. A workbook is refused with a hint. A damaged
// archive is an error of the returned reader.
func Unpack(r io.Reader) (io.Reader, error) {
	text, begins, err := peek(r)
	if err == nil && strings.HasPrefix(begins, "\x1f\x8b") {
		var unpacked io.Reader
		if unpacked, err = gzip.NewReader(text); err == nil {
			text, begins, err = peek(unpacked)
		}
	}
	if err != nil {
		return nil, err
	}
	const (
		saveAs = ": open it in a spreadsheet program and save it as CSV"
		utf16  = "not a CSV file in UTF-8 or Latin-1 but UTF-16 text: save it as CSV (UTF-8)"
	)
	for magic, why := range map[string]string{
		"PK\x03\x04":       "not a CSV file but a workbook (.xlsx) or another zip archive" + saveAs,
		"\xd0\xcf\x11\xe0": "not a CSV file but a workbook (.xls)" + saveAs,
		"\x1f\x8b":         "not a CSV file but one that gzip has compressed twice: unpack it once",
		"\xff\xfe":         utf16,
		"\xfe\xff":         utf16,
	} {
		if strings.HasPrefix(begins, magic) {
			return nil, errors.New(why)
		}
	}
	return text, nil
}

// peek returns r buffered, and its first bytes.
func peek(r io.Reader) (*bufio.Reader, string, error) {
	buffered := bufio.NewReaderSize(r, maxRecord)
	begins, err := buffered.Peek(4)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return buffered, string(begins), err
}
