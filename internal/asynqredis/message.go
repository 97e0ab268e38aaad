package asynqredis

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of asynq's TaskMessage.
const (
	fieldType         = 1
	fieldPayload      = 2
	fieldID           = 3
	fieldRetry        = 5
	fieldRetried      = 6
	fieldDeadline     = 9
	fieldErrorMsg     = 7
	fieldUniqueKey    = 10
	fieldLastFailedAt = 11
	fieldRetention    = 12
	fieldCompletedAt  = 13
	fieldHeaders      = 15
	// fieldOwnFailure is not one of asynq's; see encoded.lua.
	fieldOwnFailure = 7007
)

// ErrEncoding says that what should be an encoded task, or the answer of a script, cannot be read.
var ErrEncoding = errors.New("an encoded task, or the answer of a script, cannot be read")

// field returns a text field of an encoded task, "" if the task lacks the field.
func field(encoded []byte, number protowire.Number) (string, error) {
	var text string
	err := fields(encoded, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num == number && typ == protowire.BytesType {
			text = textOf(value)
		}
	})
	return text, err
}

// A Message is what is read of an encoded task.
type Message struct {
	Kind      string
	ID        string
	Headers   map[string]string
	Retries   int    // how often it may be retried in all
	Retried   int    // how often it was
	Unique    string // its key of uniqueness, or ""
	Retention uint64 // for how many seconds asynq keeps the task once it is done
	Failure   string // the task's own last failure, if its last error is a reason of the guard's
	Waited    bool   // the last error is such a reason

	FailedAt  int64 // when it failed last, Unix seconds, 0 for never
	LastError string

	deadline uint64 // Unix seconds, 0 for none
}

// ParseMessage reads an encoded task.
func ParseMessage(encoded string) (m Message, err error) {
	err = fields([]byte(encoded), func(num protowire.Number, typ protowire.Type, value []byte) {
		switch {
		case typ == protowire.VarintType && num == fieldRetry:
			n, _ := protowire.ConsumeVarint(value)
			m.Retries = int(n) //nolint:gosec // asynq's is an int32
		case typ == protowire.VarintType && num == fieldRetried:
			n, _ := protowire.ConsumeVarint(value)
			m.Retried = int(n) //nolint:gosec // asynq's is an int32
		case typ == protowire.VarintType && num == fieldLastFailedAt:
			n, _ := protowire.ConsumeVarint(value)
			m.FailedAt = int64(n) //nolint:gosec // asynq's is an int64
		case typ == protowire.VarintType && num == fieldDeadline:
			m.deadline, _ = protowire.ConsumeVarint(value)
		case typ == protowire.VarintType && num == fieldRetention:
			m.Retention, _ = protowire.ConsumeVarint(value)
		case typ != protowire.BytesType:
		case num == fieldType:
			m.Kind = textOf(value)
		case num == fieldID:
			m.ID = textOf(value)
		case num == fieldErrorMsg:
			m.LastError = textOf(value)
		case num == fieldUniqueKey:
			m.Unique = textOf(value)
		case num == fieldHeaders:
			m.addHeader(value)
		case num == fieldOwnFailure:
			m.Failure, m.Waited = textOf(value), true
		}
	})
	return m, err
}

// WaitedFor reports whether the task was parked last because resource was busy, and who held its lock
// then.
func (m Message) WaitedFor(resource string) (holder string, waited bool) {
	if !m.Waited {
		return "", false
	}
	return busyHolder(m.LastError, resource)
}

func (m *Message) addHeader(value []byte) {
	pair, _ := protowire.ConsumeBytes(value) // a map is a list of pairs
	key, err1 := field(pair, 1)
	text, err2 := field(pair, 2)
	if err1 != nil || err2 != nil {
		return
	}
	if m.Headers == nil {
		m.Headers = make(map[string]string)
	}
	m.Headers[key] = text
}

func textOf(value []byte) string {
	v, _ := protowire.ConsumeBytes(value)
	return string(v)
}

// Overdue reports whether the task's deadline has passed.
func (m Message) Overdue(now time.Time) bool {
	return m.deadline != 0 && m.deadline <= math.MaxInt64 && now.Unix() >= int64(m.deadline)
}

// Deadline returns when the task is given up, zero for never.
func (m Message) Deadline() time.Time {
	if m.deadline == 0 || m.deadline > math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(int64(m.deadline), 0)
}

// WithFailure returns the encoded task with a failure of its own as its last error. An empty failure
// leaves the task without a last error.
func WithFailure(encoded, failure string) (string, error) {
	var kept []byte
	err := fields([]byte(encoded), func(num protowire.Number, typ protowire.Type, value []byte) {
		if num != fieldErrorMsg && num != fieldOwnFailure {
			kept = append(protowire.AppendTag(kept, num, typ), value...)
		}
	})
	if failure != "" {
		kept = protowire.AppendString(protowire.AppendTag(kept, fieldErrorMsg, protowire.BytesType), failure)
	}
	return string(kept), err
}

// EndOverdue is for a task that has waited until its deadline had passed. EndOverdue returns the
// task as it is archived, and the task as asynq reads it. asynq never calls the handler of such a
// task. For asynq the task has failed and has no retries, so asynq archives it.
func EndOverdue(encoded string, m Message, now time.Time) (archived, read string) {
	at := time.Unix(int64(m.deadline), 0).UTC().Format(time.DateTime) //nolint:gosec // it has passed
	archived, err := WithFailure(encoded, "its deadline, "+at+" UTC, passed while it waited: "+m.LastError)
	if err != nil {
		return "", encoded
	}
	archived = withNumber(archived, fieldLastFailedAt, uint64(now.Unix())) //nolint:gosec // after 1970
	return archived, withNumber(encoded, fieldRetry, 0)
}

// Completed returns the encoded task as asynq keeps it once it is done.
func (m Message) Completed(encoded string, now time.Time) string {
	if m.Waited {
		if own, err := WithFailure(encoded, m.Failure); err == nil {
			encoded = own
		}
	}
	return withNumber(encoded, fieldCompletedAt, uint64(now.Unix())) //nolint:gosec // after 1970
}

// withNumber returns the encoded task with another number. The last of a repeated field counts.
func withNumber(encoded string, which protowire.Number, n uint64) string {
	return string(protowire.AppendVarint(protowire.AppendTag([]byte(encoded), which, protowire.VarintType), n))
}

// fields calls visit for each field of an encoded task, with the encoded value.
func fields(encoded []byte, visit func(protowire.Number, protowire.Type, []byte)) error {
	for len(encoded) > 0 {
		num, typ, value := protowire.ConsumeTag(encoded)
		if value < 0 {
			return fmt.Errorf("%w: %w", ErrEncoding, protowire.ParseError(value))
		}
		length := protowire.ConsumeFieldValue(num, typ, encoded[value:])
		if length < 0 {
			return fmt.Errorf("%w: %w", ErrEncoding, protowire.ParseError(length))
		}
		end := value + length
		visit(num, typ, encoded[value:end])
		encoded = encoded[end:]
	}
	return nil
}
