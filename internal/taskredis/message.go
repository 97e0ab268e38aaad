package taskredis

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

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

// HeaderUnique says how a task is unique: while it is unfinished, or always, which is for a time, whatever becomes of it. A task
// without it may be unique as asynq has it: for a time, but no longer than until it has succeeded.
const (
	HeaderUnique = "siding-unique"
	Unfinished   = "unfinished"
	Always       = "always"
)

// AlwaysUnique reports whether the task is unique for a time, whatever becomes of it.
func (m *Message) AlwaysUnique() bool { return m.Headers[HeaderUnique] == Always }

// Frees returns the key of uniqueness that is deleted when the task ends so, "" for none.
func (m *Message) Frees(end Kind) string {
	if m.AlwaysUnique() || end == Archive && m.Headers[HeaderUnique] != Unfinished {
		return ""
	}
	return m.UniqueKey
}

// Field numbers of asynq's TaskMessage, v0.26.0.
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

// DecodeMessage reads an encoded task. It reads what asynq reads, and refuses what asynq refuses, such as a text
// that is not UTF-8. The last of a repeated field counts, and fields that are not known are kept for
// [Message.Encode]. The payload shares the memory of encoded; nothing else does.
func DecodeMessage(encoded []byte) (*Message, error) {
	m := &Message{}
	f := walk(encoded)
	for f.next() {
		if !m.set(&f) {
			m.unknown = append(m.unknown, encoded[f.start:f.pos]...)
		}
	}
	if f.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, f.err)
	}
	return m, nil
}

// set returns false for a field that is not known. One of another wire type than asynq's is not known either: so protobuf
// has it.
func (m *Message) set(f *fields) bool {
	switch f.kind {
	case protowire.VarintType:
		return m.setNumber(f.number, int64(f.varint)) //nolint:gosec // asynq's numbers are signed
	case protowire.BytesType:
		return m.setBytes(f)
	default:
		return false
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

func (m *Message) setBytes(f *fields) bool {
	switch f.number {
	case fieldType:
		m.Type = f.text()
	case fieldPayload:
		m.Payload = f.value()
	case fieldID:
		m.ID = f.text()
	case fieldQueue:
		m.Queue = f.text()
	case fieldErrorMsg:
		m.ErrorMsg = f.text()
	case fieldUniqueKey:
		m.UniqueKey = f.text()
	case fieldGroupKey:
		m.GroupKey = f.text()
	case fieldHeaders:
		m.addHeader(f)
	default:
		return false
	}
	return true
}

func (m *Message) addHeader(f *fields) {
	var name, value string
	entry := f.within()
	for entry.next() {
		switch {
		case entry.kind != protowire.BytesType:
		case entry.number == fieldKey:
			name = entry.text()
		case entry.number == fieldValue:
			value = entry.text()
		}
	}
	if m.Headers == nil {
		m.Headers = make(map[string]string)
	}
	m.Headers[name] = value
	f.err = entry.err
}

// Encode returns the task as asynq encodes it, with the fields that were not known at the end. Bytes that are not
// UTF-8 in a text become U+FFFD, as asynq would refuse the whole task.
func (m *Message) Encode() []byte {
	// Room for a message of usual texts: seven numbers, each a tag and at most ten bytes, and the tags and lengths of
	// seven texts. append takes care of the rest.
	room := 7*11 + 7*3 + len(m.Type) + len(m.Payload) + len(m.ID) + len(m.Queue) + len(m.ErrorMsg) + len(m.UniqueKey) +
		len(m.GroupKey) + len(m.unknown)
	var few [8]string // on the stack
	names := few[:0]
	for name, value := range m.Headers {
		room += 3*3 + len(name) + len(value)
		names = append(names, name)
	}
	slices.Sort(names) // so the same task has the same bytes

	e := make([]byte, 0, room)
	e = appendText(e, fieldType, m.Type)
	e = appendBytes(e, fieldPayload, m.Payload)
	e = appendText(e, fieldID, m.ID)
	e = appendText(e, fieldQueue, m.Queue)
	e = appendInt32(e, fieldRetry, m.Retry)
	e = appendInt32(e, fieldRetried, m.Retried)
	e = appendText(e, fieldErrorMsg, m.ErrorMsg)
	e = appendNumber(e, fieldTimeout, m.Timeout)
	e = appendNumber(e, fieldDeadline, m.Deadline)
	e = appendText(e, fieldUniqueKey, m.UniqueKey)
	e = appendNumber(e, fieldLastFailedAt, m.LastFailedAt)
	e = appendNumber(e, fieldRetention, m.Retention)
	e = appendNumber(e, fieldCompletedAt, m.CompletedAt)
	e = appendText(e, fieldGroupKey, m.GroupKey)
	for _, name := range names {
		e = appendHeader(e, utf8Text(name), utf8Text(m.Headers[name]))
	}
	return append(e, m.unknown...)
}

// appendHeader appends an entry of the map of headers, which has both fields even if they are empty.
func appendHeader(e []byte, name, value string) []byte {
	const tag = 1
	size := tag + protowire.SizeBytes(len(name)) + tag + protowire.SizeBytes(len(value))
	e = protowire.AppendVarint(protowire.AppendTag(e, fieldHeaders, protowire.BytesType), uint64(size)) //nolint:gosec // not negative
	e = protowire.AppendString(protowire.AppendTag(e, fieldKey, protowire.BytesType), name)
	return protowire.AppendString(protowire.AppendTag(e, fieldValue, protowire.BytesType), value)
}

// EndsBy returns when an attempt that starts now has to end: after the task's timeout or at its deadline, whichever
// comes first. A task of a client that set neither has 30 minutes, as in asynq.
//
// asynq cuts off the fraction of a second if a task has both, so there an attempt with a timeout of a second has
// any time between none and a second. Here it has the second.
func (m *Message) EndsBy(now time.Time) time.Time {
	const (
		defaultTimeout = 30 * time.Minute
		longest        = math.MaxInt64 / int64(time.Second) // 292 years; more is no [time.Duration]
		latest         = 1 << 40                            // the year 36812; a [time.Time] of the largest number is before all others
	)
	if m.Timeout == 0 && m.Deadline == 0 {
		return now.Add(defaultTimeout)
	}
	deadline := time.Unix(max(-latest, min(m.Deadline, latest)), 0)
	if m.Timeout == 0 {
		return deadline
	}
	end := now.Add(time.Duration(max(-longest, min(m.Timeout, longest))) * time.Second)
	if m.Deadline != 0 && deadline.Before(end) {
		return deadline
	}
	return end
}
