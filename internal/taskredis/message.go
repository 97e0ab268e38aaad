package taskredis

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Message is a task as asynq encodes it: its TaskMessage.
type Message struct {
	Type         string
	Payload      []byte
	Headers      map[string]string
	ID           string
	Queue        string
	Retry        int // how often it may be retried in all
	Retried      int // how often it was
	ErrorMsg     string
	LastFailedAt int64 // Unix seconds, 0 for never
	Timeout      int64 // of an attempt, seconds; 0 for none
	Deadline     int64 // Unix seconds, 0 for none
	UniqueKey    string
	GroupKey     string
	Retention    int64 // seconds, 0 for none
	CompletedAt  int64 // Unix seconds, 0 for not

	unknown []byte // fields of a later asynq, kept as they are
}

// Field numbers of asynq's TaskMessage, v0.26.0. Number 4 is its queue.
const (
	fieldType         protowire.Number = 1
	fieldPayload      protowire.Number = 2
	fieldID           protowire.Number = 3
	fieldQueue        protowire.Number = 4
	fieldRetry        protowire.Number = 5
	fieldRetried      protowire.Number = 6
	fieldErrorMsg     protowire.Number = 7
	fieldTimeout      protowire.Number = 8
	fieldDeadline     protowire.Number = 9
	fieldUniqueKey    protowire.Number = 10
	fieldLastFailedAt protowire.Number = 11
	fieldRetention    protowire.Number = 12
	fieldCompletedAt  protowire.Number = 13
	fieldGroupKey     protowire.Number = 14
	fieldHeaders      protowire.Number = 15
)

// ErrMessage says that an encoded task cannot be read.
var ErrMessage = errors.New("taskredis: a task cannot be read")

// DecodeMessage reads an encoded task. As for asynq, the last of a repeated field counts, and texts must be
// UTF-8. The payload and the fields that are not known share the memory of encoded.
func DecodeMessage(encoded []byte) (*Message, error) {
	m := &Message{}
	for rest := encoded; len(rest) > 0; {
		number, kind, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			return nil, fmt.Errorf("%w: %w", ErrMessage, protowire.ParseError(tag))
		}
		size := protowire.ConsumeFieldValue(number, kind, rest[tag:])
		if size < 0 {
			return nil, fmt.Errorf("%w: field %d: %w", ErrMessage, number, protowire.ParseError(size))
		}
		known, err := m.set(number, kind, rest[tag:tag+size])
		if err != nil {
			return nil, err
		}
		if !known {
			m.unknown = append(m.unknown, rest[:tag+size]...)
		}
		rest = rest[tag+size:]
	}
	return m, nil
}

// set reads the value of one field. A field of another type than asynq's counts as not known.
func (m *Message) set(number protowire.Number, kind protowire.Type, value []byte) (known bool, err error) {
	switch kind {
	case protowire.VarintType:
		n, _ := protowire.ConsumeVarint(value)
		return m.setNumber(number, int64(n)), nil //nolint:gosec // asynq's numbers are signed
	case protowire.BytesType:
		text, _ := protowire.ConsumeBytes(value)
		return m.setText(number, text)
	default:
		return false, nil
	}
}

func (m *Message) setNumber(number protowire.Number, n int64) bool {
	switch number {
	case fieldRetry:
		m.Retry = int(int32(n)) //nolint:gosec // asynq's is an int32
	case fieldRetried:
		m.Retried = int(int32(n)) //nolint:gosec // asynq's is an int32
	case fieldTimeout:
		m.Timeout = n
	case fieldDeadline:
		m.Deadline = n
	case fieldLastFailedAt:
		m.LastFailedAt = n
	case fieldRetention:
		m.Retention = n
	case fieldCompletedAt:
		m.CompletedAt = n
	default:
		return false
	}
	return true
}

func (m *Message) setText(number protowire.Number, text []byte) (known bool, err error) {
	switch number {
	case fieldPayload:
		m.Payload = text
		return true, nil
	case fieldHeaders:
		return true, m.addHeader(text)
	}
	field := m.textField(number)
	if field == nil {
		return false, nil
	}
	if !utf8.Valid(text) {
		return true, fmt.Errorf("%w: field %d is not UTF-8", ErrMessage, number)
	}
	*field = string(text)
	return true, nil
}

func (m *Message) textField(number protowire.Number) *string {
	switch number {
	case fieldType:
		return &m.Type
	case fieldID:
		return &m.ID
	case fieldQueue:
		return &m.Queue
	case fieldErrorMsg:
		return &m.ErrorMsg
	case fieldUniqueKey:
		return &m.UniqueKey
	case fieldGroupKey:
		return &m.GroupKey
	default:
		return nil
	}
}

// addHeader reads an entry of the map of headers, which is a message of a name and a value.
func (m *Message) addHeader(entry []byte) error {
	var pair [2]string
	for len(entry) > 0 {
		number, kind, tag := protowire.ConsumeTag(entry)
		if tag < 0 {
			return fmt.Errorf("%w: headers: %w", ErrMessage, protowire.ParseError(tag))
		}
		size := protowire.ConsumeFieldValue(number, kind, entry[tag:])
		if size < 0 {
			return fmt.Errorf("%w: headers: %w", ErrMessage, protowire.ParseError(size))
		}
		if kind == protowire.BytesType && (number == 1 || number == 2) {
			text, _ := protowire.ConsumeBytes(entry[tag:])
			if !utf8.Valid(text) {
				return fmt.Errorf("%w: a header is not UTF-8", ErrMessage)
			}
			pair[number-1] = string(text)
		}
		entry = entry[tag+size:]
	}
	if m.Headers == nil {
		m.Headers = make(map[string]string)
	}
	m.Headers[pair[0]] = pair[1]
	return nil
}

// Encode returns the task as asynq reads it, with the fields that were not known. A byte that is not
// UTF-8 in a text becomes U+FFFD, as asynq would refuse the whole task.
func (m *Message) Encode() []byte {
	e := make([]byte, 0, 128+len(m.Payload)+len(m.ErrorMsg)+len(m.unknown))
	e = appendText(e, fieldType, m.Type)
	if len(m.Payload) > 0 {
		e = protowire.AppendBytes(protowire.AppendTag(e, fieldPayload, protowire.BytesType), m.Payload)
	}
	e = appendText(e, fieldID, m.ID)
	e = appendText(e, fieldQueue, m.Queue)
	e = appendNumber(e, fieldRetry, int64(m.Retry))
	e = appendNumber(e, fieldRetried, int64(m.Retried))
	e = appendText(e, fieldErrorMsg, m.ErrorMsg)
	e = appendNumber(e, fieldTimeout, m.Timeout)
	e = appendNumber(e, fieldDeadline, m.Deadline)
	e = appendText(e, fieldUniqueKey, m.UniqueKey)
	e = appendNumber(e, fieldLastFailedAt, m.LastFailedAt)
	e = appendNumber(e, fieldRetention, m.Retention)
	e = appendNumber(e, fieldCompletedAt, m.CompletedAt)
	e = appendText(e, fieldGroupKey, m.GroupKey)
	names := make([]string, 0, len(m.Headers))
	for name := range m.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		pair := appendText(appendText(nil, 1, name), 2, m.Headers[name])
		e = protowire.AppendBytes(protowire.AppendTag(e, fieldHeaders, protowire.BytesType), pair)
	}
	return append(e, m.unknown...)
}

func appendText(e []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return e
	}
	return protowire.AppendString(protowire.AppendTag(e, number, protowire.BytesType), strings.ToValidUTF8(text, "\uFFFD"))
}

func appendNumber(e []byte, number protowire.Number, n int64) []byte {
	if n == 0 {
		return e
	}
	return protowire.AppendVarint(protowire.AppendTag(e, number, protowire.VarintType), uint64(n)) //nolint:gosec // as protobuf has it
}

// EndsBy returns when an attempt that starts now has to end: after the task's timeout, and by its
// deadline. A task of a client that set neither has 30 minutes, as in asynq. asynq keeps whole seconds.
func (m *Message) EndsBy(now time.Time) time.Time {
	const defaultTimeout = 30 * time.Minute
	switch {
	case m.Timeout == 0 && m.Deadline == 0:
		return now.Add(defaultTimeout)
	case m.Timeout == 0:
		return time.Unix(m.Deadline, 0)
	case m.Deadline == 0:
		return now.Add(time.Duration(min(m.Timeout, math.MaxInt64/int64(time.Second))) * time.Second)
	default:
		return time.Unix(min(now.Unix()+m.Timeout, m.Deadline), 0)
	}
}
