package taskredis

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// asynq keeps tasks, servers and workers as protobuf messages. Its generated code is internal to it and would
// drop the fields of a later asynq, so this package reads and writes the few messages by hand.

// fields walks over the fields of a message:
//
//	for f := walk(encoded); f.next(); {
//		switch f.number { ... }
//	}
//
// and f.err says at the end whether all of it could be read.
type fields struct {
	all      []byte
	pos, end int // all[pos:end] is still to be read
	err      error
	copied   string // all, once it was copied for the sake of its texts

	number   protowire.Number
	kind     protowire.Type
	start    int    // the field is all[start:pos], with its tag
	varint   uint64 // its value if kind is a varint
	from, to int    // its value is all[from:to] if kind is bytes: a text, or a message in the message
}

func walk(message []byte) fields { return fields{all: message, end: len(message)} }

// within walks over the message that is the value of the field.
func (f *fields) within() fields {
	return fields{all: f.all, pos: f.from, end: f.to, copied: f.copied}
}

// text is the value of a field of text, in memory of its own. A text that is not UTF-8 is an error.
//
// A task has some ten short texts. All of a small task copied once takes less time than ten of them; of a large one the
// payload would be most of the copy.
func (f *fields) text() string {
	if !utf8.Valid(f.all[f.from:f.to]) && f.err == nil {
		f.err = fmt.Errorf("field %d: a text is not UTF-8", f.number)
	}
	if len(f.all) > 1024 {
		return string(f.all[f.from:f.to])
	}
	if f.copied == "" {
		f.copied = string(f.all)
	}
	return f.copied[f.from:f.to]
}

// value is that of a field of bytes, and shares their memory. Appending to it copies it, so that nobody writes
// over the fields behind it.
func (f *fields) value() []byte { return f.all[f.from:f.to:f.to] }

// next reads one field. False means the end of the message, or an error.
func (f *fields) next() bool {
	if f.pos >= f.end || f.err != nil {
		return false
	}
	f.start = f.pos
	number, kind, size := protowire.ConsumeTag(f.all[f.pos:f.end])
	if size < 0 {
		return f.fail(size)
	}
	if number > protowire.MaxValidNumber { // protowire lets it pass, the decoder that asynq uses does not
		f.err = fmt.Errorf("field number %d is too large", number)
		return false
	}
	f.number, f.kind = number, kind
	f.pos += size
	rest := f.all[f.pos:f.end]
	switch kind {
	case protowire.VarintType:
		f.varint, size = protowire.ConsumeVarint(rest)
	case protowire.BytesType:
		var value []byte
		if value, size = protowire.ConsumeBytes(rest); size >= 0 {
			f.from, f.to = f.pos+size-len(value), f.pos+size
		}
	default:
		size = protowire.ConsumeFieldValue(number, kind, rest)
	}
	if size < 0 {
		return f.fail(size)
	}
	f.pos += size
	return true
}

func (f *fields) fail(code int) bool {
	f.err = protowire.ParseError(code)
	return false
}

// The functions below append a field as asynq does: one of no value is left out.

func appendText(e []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return e
	}
	return protowire.AppendString(protowire.AppendTag(e, number, protowire.BytesType), utf8Text(text))
}

func appendBytes(e []byte, number protowire.Number, value []byte) []byte {
	if len(value) == 0 {
		return e
	}
	return appendMessage(e, number, value)
}

func appendNumber(e []byte, number protowire.Number, n int64) []byte {
	if n == 0 {
		return e
	}
	return protowire.AppendVarint(protowire.AppendTag(e, number, protowire.VarintType), uint64(n)) //nolint:gosec // as protobuf has it
}

// appendInt32 appends a number of which asynq keeps 32 bits.
func appendInt32(e []byte, number protowire.Number, n int) []byte {
	return appendNumber(e, number, int64(int32(n))) //nolint:gosec // as asynq does
}

func appendBool(e []byte, number protowire.Number, value bool) []byte {
	if !value {
		return e
	}
	return appendNumber(e, number, 1)
}

// appendTime appends a Timestamp of protobuf.
func appendTime(e []byte, number protowire.Number, t time.Time) []byte {
	return appendMessage(e, number, appendNumber(appendNumber(nil, fieldSeconds, t.Unix()), fieldNanos, int64(t.Nanosecond())))
}

// appendMessage appends a message in the message, also an empty one.
func appendMessage(e []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(e, number, protowire.BytesType), message)
}

// utf8Text returns a text that may stand in a message. protobuf refuses a message, and asynq so a whole task, for
// one text that is not UTF-8.
func utf8Text(text string) string {
	if utf8.ValidString(text) { // faster than the other, which finds it valid as well
		return text
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// readTime reads a Timestamp. Of one that is there twice each field counts that is there: messages are merged.
func readTime(f fields, seconds, nanos *int64) error {
	for f.next() {
		switch {
		case f.kind != protowire.VarintType: // not known
		case f.number == fieldSeconds:
			*seconds = int64(f.varint) //nolint:gosec // it is signed
		case f.number == fieldNanos:
			*nanos = int64(int32(f.varint)) //nolint:gosec // it is an int32
		}
	}
	return f.err
}

// Field numbers of a Timestamp, and of an entry of a map: both are messages in the message.
const (
	fieldSeconds protowire.Number = 1
	fieldNanos   protowire.Number = 2

	fieldKey   protowire.Number = 1
	fieldValue protowire.Number = 2
)
