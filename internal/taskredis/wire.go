package taskredis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// asynq keeps tasks, servers and workers as protobuf messages. Its generated code is internal to it and would
// drop the fields of a later asynq, so this package reads and writes the few messages by hand, each by a list of its fields.

// A field of a message is its number and where its value is: a pointer, whose type says how the value is encoded. An *int is an
// int32, and a *map[string]int one of them.
type field struct {
	number protowire.Number
	value  any
}

// A timestamp is protobuf's.
type timestamp struct {
	seconds int64
	nanos   int
}

func timestampOf(t time.Time) *timestamp { return &timestamp{t.Unix(), t.Nanosecond()} }

func (t *timestamp) fields() []field { return []field{{1, &t.seconds}, {2, &t.nanos}} }

// A decoder reads a message.
type decoder struct {
	all     []byte
	texts   string // a copy of all, for texts
	unknown []byte // fields that no list has
}

// decode reads a message into its fields, and returns those that are not among them. It reads what asynq reads, and refuses what
// asynq refuses, such as a text that is not UTF-8. The last of a repeated field counts. One of another wire type is not known: so
// protobuf has it. Bytes share the memory of the message; appending to them copies them.
func decode(message []byte, fields []field) (unknown []byte, err error) {
	d := decoder{all: message}
	err = d.read(0, len(message), fields)
	return d.unknown, err
}

// read reads the message from one position to another.
func (d *decoder) read(pos, end int, fields []field) error {
	for pos < end {
		start := pos
		number, kind, size := protowire.ConsumeTag(d.all[pos:end])
		if size < 0 {
			return protowire.ParseError(size)
		}
		if number > protowire.MaxValidNumber { // protowire lets it pass, the decoder that asynq uses does not
			return fmt.Errorf("field number %d is too large", number)
		}
		pos += size
		if size = protowire.ConsumeFieldValue(number, kind, d.all[pos:end]); size < 0 {
			return protowire.ParseError(size)
		}
		pos += size
		known := false
		if i := slices.IndexFunc(fields, func(f field) bool { return f.number == number }); i >= 0 {
			var err error
			if known, err = d.set(fields[i].value, kind, pos-size, pos); err != nil {
				return fmt.Errorf("field %d: %w", number, err)
			}
		}
		if !known {
			d.unknown = append(d.unknown, d.all[start:pos]...)
		}
	}
	return nil
}

// set sets a value. It returns false if that is of another wire type.
func (d *decoder) set(value any, kind protowire.Type, from, to int) (known bool, err error) {
	n, size := protowire.ConsumeVarint(d.all[from:to]) // the number, or the length of what follows
	from += size
	switch v := value.(type) {
	case *int:
		if known = kind == protowire.VarintType; known {
			*v = int(int32(n)) //nolint:gosec // asynq's is an int32
		}
	case *int64:
		if known = kind == protowire.VarintType; known {
			*v = int64(n) //nolint:gosec // it is signed
		}
	case *bool:
		if known = kind == protowire.VarintType; known {
			*v = n != 0
		}
	default:
		if known = kind == protowire.BytesType; known {
			err = d.setBytes(value, from, to)
		}
	}
	return known, err
}

func (d *decoder) setBytes(value any, from, to int) (err error) {
	switch v := value.(type) {
	case *string:
		*v, err = d.text(from, to)
	case *[]byte:
		*v = d.all[from:to:to]
	case *timestamp: // if it is there twice each of its fields counts that is there: messages are merged
		err = (&decoder{all: d.all}).read(from, to, v.fields())
	case *map[string]string:
		err = readEntry(d, from, to, v)
	case *map[string]int:
		err = readEntry(d, from, to, v)
	}
	return err
}

// text returns a text, in memory of its own.
//
// A task has some ten short texts. All of a small task copied once takes less time than ten of them; of a large one the
// payload would be most of the copy.
func (d *decoder) text(from, to int) (string, error) {
	if !utf8.Valid(d.all[from:to]) {
		return "", fmt.Errorf("a text is not UTF-8")
	}
	if len(d.all) > 1024 {
		return string(d.all[from:to]), nil
	}
	if d.texts == "" {
		d.texts = string(d.all)
	}
	return d.texts[from:to], nil
}

// readEntry reads an entry of a map, which is a message in the message.
func readEntry[V any](d *decoder, from, to int, entries *map[string]V) error {
	var key string
	var value V
	entry := decoder{all: d.all, texts: d.texts}
	if err := entry.read(from, to, []field{{1, &key}, {2, &value}}); err != nil {
		return err
	}
	if *entries == nil {
		*entries = make(map[string]V)
	}
	(*entries)[key] = value
	return nil
}

// encode returns a message as asynq encodes it, where a field of no value is left out, with fields that were not known at the end.
// Bytes that are not UTF-8 in a text become U+FFFD, as asynq would refuse the whole message. The same message has the same bytes.
func encode(fields []field, unknown []byte) []byte {
	const number = 12 // bytes of a tag and a number, mostly: append takes care of the rest
	room := len(unknown)
	for _, f := range fields {
		room += number
		switch v := f.value.(type) {
		case *string:
			room += len(*v)
		case *[]byte:
			room += len(*v)
		case *map[string]string:
			for name, value := range *v {
				room += number + len(name) + len(value)
			}
		}
	}
	e := make([]byte, 0, room)
	for _, f := range fields {
		e = f.appendTo(e)
	}
	return append(e, unknown...)
}

func (f field) appendTo(e []byte) []byte {
	switch v := f.value.(type) {
	case *string:
		if *v != "" {
			e = appendText(e, f.number, *v)
		}
	case *[]byte:
		if len(*v) > 0 {
			e = appendBytes(e, f.number, *v)
		}
	case *int:
		if *v != 0 {
			e = appendNumber(e, f.number, int64(int32(*v))) //nolint:gosec // as asynq does
		}
	case *int64:
		if *v != 0 {
			e = appendNumber(e, f.number, *v)
		}
	case *bool:
		if *v {
			e = appendNumber(e, f.number, 1)
		}
	case *timestamp:
		e = appendBytes(e, f.number, encode(v.fields(), nil))
	case *map[string]string:
		e = appendEntries(e, f.number, *v, func(e []byte, value string) []byte { return appendText(e, 2, value) })
	case *map[string]int:
		e = appendEntries(e, f.number, *v, func(e []byte, value int) []byte { return appendNumber(e, 2, int64(int32(value))) }) //nolint:gosec // as asynq does
	}
	return e
}

// appendEntries appends the entries of a map. Each has both fields even if they are empty.
func appendEntries[V any](e []byte, number protowire.Number, entries map[string]V, appendValue func([]byte, V) []byte) []byte {
	var few [8]string // on the stack
	var entry []byte
	names := slices.AppendSeq(few[:0], maps.Keys(entries))
	slices.Sort(names)
	for _, name := range names {
		entry = appendValue(appendText(entry[:0], 1, name), entries[name])
		e = appendBytes(e, number, entry)
	}
	return e
}

func appendText(e []byte, number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(e, number, protowire.BytesType), utf8Text(text))
}

func appendBytes(e []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(e, number, protowire.BytesType), value)
}

func appendNumber(e []byte, number protowire.Number, n int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(e, number, protowire.VarintType), uint64(n)) //nolint:gosec // as protobuf has it
}

func utf8Text(text string) string {
	if utf8.ValidString(text) { // faster than the other, which finds it valid as well
		return text
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
