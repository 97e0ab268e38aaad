package taskredis

import (
	"errors"
	"fmt"
	"math"
	"time"
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

// fields are those of asynq's TaskMessage, v0.26.0.
func (m *Message) fields() []field {
	return []field{
		{1, &m.Type},
		{2, &m.Payload},
		{3, &m.ID},
		{4, &m.Queue},
		{5, &m.Retry},
		{6, &m.Retried},
		{7, &m.ErrorMsg},
		{8, &m.Timeout},
		{9, &m.Deadline},
		{10, &m.UniqueKey},
		{11, &m.LastFailedAt},
		{12, &m.Retention},
		{13, &m.CompletedAt},
		{14, &m.GroupKey},
		{15, &m.Headers},
	}
}

// ErrMessage says that an encoded task cannot be read.
var ErrMessage = errors.New("taskredis: a task cannot be read")

// DecodeMessage reads an encoded task. It reads what asynq reads, and refuses what asynq refuses, such as a text
// that is not UTF-8. Fields that are not known are kept for [Message.Encode]. The payload shares the memory of encoded; nothing
// else does.
func DecodeMessage(encoded []byte) (*Message, error) {
	m := &Message{}
	var err error
	if m.unknown, err = decode(encoded, m.fields()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return m, nil
}

// Encode returns the task as asynq encodes it. Bytes that are not UTF-8 in a text become U+FFFD, as asynq would refuse the whole
// task.
func (m *Message) Encode() []byte { return encode(m.fields(), m.unknown) }

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
