package asynqredis

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of asynq's TaskMessage.
const (
	fieldID        = 3
	fieldRetried   = 6
	fieldUniqueKey = 10
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

// retried returns how often an encoded task has been charged.
func retried(encoded []byte) (uint64, error) {
	var count uint64
	err := fields(encoded, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num == fieldRetried && typ == protowire.VarintType {
			count, _ = protowire.ConsumeVarint(value)
		}
	})
	return count, err
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
