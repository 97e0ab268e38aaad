package asynqredis

import (
	"errors"
	"fmt"
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
	fieldHeaders      = 15
)

var errMessage = errors.New("asynqredis: not an encoded task")

// field returns a text field of an encoded task, "" when it has none.
func field(encoded []byte, number protowire.Number) (string, error) {
	var text string
	err := fields(encoded, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num == number && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(value)
			text = string(v)
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

// retried returns how often an encoded task has been charged.
func retried(encoded []byte) (uint64, error) { return number(encoded, fieldRetried) }

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

// withError returns the encoded task with another last error, as of now.
func withError(encoded, reason string, now time.Time) (string, error) {
	var kept []byte
	err := fields([]byte(encoded), func(num protowire.Number, typ protowire.Type, value []byte) {
		if num != fieldErrorMsg && num != fieldLastFailedAt {
			kept = append(protowire.AppendTag(kept, num, typ), value...)
		}
	})
	kept = protowire.AppendString(protowire.AppendTag(kept, fieldErrorMsg, protowire.BytesType), reason)
	kept = protowire.AppendVarint(protowire.AppendTag(kept, fieldLastFailedAt, protowire.VarintType), uint64(now.Unix())) //nolint:gosec // after 1970
	return string(kept), err
}

// withRetried returns the encoded task with another count of charges. Of a
// field given twice the later one counts.
func withRetried(encoded string, count uint64) string {
	if have, err := retried([]byte(encoded)); err != nil || have == count {
		return encoded
	}
	changed := protowire.AppendTag([]byte(encoded), fieldRetried, protowire.VarintType)
	return string(protowire.AppendVarint(changed, count))
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
