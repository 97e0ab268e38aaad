package orders

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// The first bytes of what a file may be by mistake.
const (
	magicGzip     = "\x1f\x8b"
	magicZip      = "PK\x03\x04"       // .xlsx, .ods, .zip
	magicOLE      = "\xd0\xcf\x11\xe0" // .xls
	magicUTF16LE  = "\xff\xfe"
	magicUTF16BE  = "\xfe\xff"
	magicUTF8     = "\xef\xbb\xbf"
	longestMagic  = 4
	unpackedAhead = 64 << 10 // also the longest line, see scanner
)

// ErrFormat is wrapped by the errors about a file that is no CSV at all.
var ErrFormat = errors.New("not a CSV file")

// Unpack returns the text of the file that r reads: what gzip has compressed is
// unpacked, everything else is as it is, whatever the file is called. A
// workbook is refused with [ErrFormat] and a hint. The reader returned reports
// a damaged or truncated archive when it gets there.
func Unpack(r io.Reader) (io.Reader, error) {
	text, head, err := peek(r)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte(magicGzip)) {
		unpacked, err := gzip.NewReader(text)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		if text, head, err = peek(archive{unpacked}); err != nil {
			return nil, err
		}
	}
	begins := func(magic string) bool { return bytes.HasPrefix(head, []byte(magic)) }
	switch {
	case begins(magicZip):
		return nil, fmt.Errorf("%w but a workbook (.xlsx) or another zip archive: open it in a spreadsheet program and save it as CSV", ErrFormat)
	case begins(magicOLE):
		return nil, fmt.Errorf("%w but a workbook (.xls): open it in a spreadsheet program and save it as CSV", ErrFormat)
	case begins(magicUTF16LE), begins(magicUTF16BE):
		return nil, fmt.Errorf("%w in UTF-8 or Latin-1 but UTF-16 text: save it as CSV (UTF-8)", ErrFormat)
	}
	return text, nil
}

// An archive says of its errors that they are about the compression: what is
// read behind it is named by its lines.
type archive struct{ unpacked io.Reader }

func (a archive) Read(p []byte) (int, error) {
	n, err := a.unpacked.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("gzip: %w", err)
	}
	return n, err
}

// peek returns r buffered, and its first bytes.
func peek(r io.Reader) (*bufio.Reader, []byte, error) {
	buffered := bufio.NewReaderSize(r, unpackedAhead)
	head, err := buffered.Peek(longestMagic)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	return buffered, head, nil
}
