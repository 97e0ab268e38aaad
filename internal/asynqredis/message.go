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
	fieldDeadline     = 9
	fieldErrorMsg     = 7
	fieldUniqueKey    = 10
	fieldLastFailedAt = 11
	fieldRetention    = 12
	fieldCompletedAt  = 13
	fieldHeaders      = 15
	// fieldOwnFailure is none of asynq's: see encoded.lua.
	fieldOwnFailure = 7007
)

var errMessage = errors.New("asynqredis: not an encoded task")

// field returns a text field of an encoded task, "" when it has none.
func field(encoded []byte, number protowire.Number) (string, error) {
	var text string
	err := fields(encoded, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num == number && typ == protowire.BytesType {
			text = textOf(value)
		}
	})
	return text, err
}

// number returns a number of an encoded task, 0 when it has none.
func number(encoded []byte, which protowire.Number) (uint64, error) {
	var n uint64
	err := fields(encoded, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num == which && typ == protowire.VarintType {
			n, _ = protowire.ConsumeVarint(value)
		}
	})
	return n, err
}

// headers returns the headers of an encoded task.
func headers(encoded []byte) (map[string]string, error) {
	found := map[string]string{}
	err := fields(encoded, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num != fieldHeaders || typ != protowire.BytesType {
			return
		}
		entry, _ := protowire.ConsumeBytes(value) // a map is a list of pairs
		key, err1 := field(entry, 1)
		text, err2 := field(entry, 2)
		if err1 == nil && err2 == nil {
			found[key] = text
		}
	})
	return found, err
}

// A message is what the hook reads of an encoded task.
type message struct {
	id        string
	deadline  uint64 // Unix seconds, 0 for none
	unique    string // its key of uniqueness, or ""
	retention uint64 // for how many seconds asynq keeps it once it is done
	lastError string
	failure   string // its own last failure, where the last error is a reason of the guard's
	waited    bool   // it is
}

func messageOf(encoded string) (m message, err error) {
	err = fields([]byte(encoded), func(num protowire.Number, typ protowire.Type, value []byte) {
		switch {
		case typ == protowire.VarintType && num == fieldDeadline:
			m.deadline, _ = protowire.ConsumeVarint(value)
		case typ == protowire.VarintType && num == fieldRetention:
			m.retention, _ = protowire.ConsumeVarint(value)
		case typ != protowire.BytesType:
		case num == fieldID:
			m.id = textOf(value)
		case num == fieldErrorMsg:
			m.lastError = textOf(value)
		case num == fieldUniqueKey:
			m.unique = textOf(value)
		case num == fieldOwnFailure:
			m.failure, m.waited = textOf(value), true
		}
	})
	return m, err
}

func textOf(value []byte) string {
	v, _ := protowire.ConsumeBytes(value)
	return string(v)
}

// overdue reports whether the task's deadline has passed.
func (m message) overdue(now time.Time) bool {
	return m.deadline != 0 && m.deadline <= math.MaxInt64 && now.Unix() >= int64(m.deadline)
}

// withFailure returns the encoded task with a failure of its own as its last error; with none
// if it is "".
func withFailure(encoded, failure string) (string, error) {
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

// withNumber returns the encoded task with another number. Of a field given twice the later one
// counts.
func withNumber(encoded string, which protowire.Number, n uint64) string {
	return string(protowire.AppendVarint(protowire.AppendTag([]byte(encoded), which, protowire.VarintType), n))
}

// fields calls visit for each field of an encoded task, with its value as encoded.
func fields(encoded []byte, visit func(protowire.Number, protowire.Type, []byte)) error {
	for len(encoded) > 0 {
		num, typ, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return fmt.Errorf("%w: %w", errMessage, protowire.ParseError(n))
		}
		encoded = encoded[n:]
		if n = protowire.ConsumeFieldValue(num, typ, encoded); n < 0 {
			return fmt.Errorf("%w: %w", errMessage, protowire.ParseError(n))
		}
		visit(num, typ, encoded[:n])
		encoded = encoded[n:]
	}
	return nil
}
