package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/sidingq/siding/queue"
)

// Kinds lists, in alphabetical order, the kinds of task that [Decode] knows and
// [Register] registers.
func Kinds() []string {
	return []string{KindDebitBalance, KindAuditOrder, KindPlaceOrder, KindDeductStock, KindAllocateLine}
}

// Decode reads the JSON payload of a task and checks it. It takes nothing on
// trust: an unknown field, a value of the wrong type, anything after the object,
// and a payload that is not valid are errors that name the kind and the field.
func Decode(kind string, payload []byte) (queue.Task, error) {
	switch kind {
	case KindAuditOrder:
		return decode[AuditOrder](payload)
	case KindAllocateLine:
		return decode[AllocateLine](payload)
	case KindDeductStock:
		return decode[DeductStock](payload)
	case KindDebitBalance:
		return decode[DebitBalance](payload)
	case KindPlaceOrder:
		return decode[PlaceOrder](payload)
	default:
		return nil, fmt.Errorf("tasks: kind: want one of %s, have %q", strings.Join(Kinds(), ", "), clip(kind))
	}
}

func decode[T interface {
	queue.Task
	queue.Validator
}](payload []byte) (queue.Task, error) {
	var t T
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return nil, payloadError(t.Kind(), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: payload: want one JSON object, have more after it", t.Kind())
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return t, nil
}

// payloadError says in the payload's own terms what the decoder says in Go's, and no value.
func payloadError(kind string, err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want, have := wanted(e.Type), e.Value
		if strings.HasPrefix(have, "number ") { // and the number
			have = "another number"
		}
		if e.Field == "" {
			return fmt.Errorf("%s: payload: want %s, have %s", kind, want, have)
		}
		return &FieldError{Kind: kind, Field: e.Field, Problem: fmt.Sprintf("is of the wrong type: want %s, have %s", want, have)}
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%s: payload: want a JSON object, have no JSON at byte %d", kind, e.Offset)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s: payload: want a JSON object, have one that is cut short", kind)
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: payload is empty: want a JSON object", kind)
	}
	// The decoder has no type for an unknown field, only this text.
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &FieldError{Kind: kind, Field: strings.Trim(field, `"`), Problem: "is not known"}
	}
	return fmt.Errorf("%s: payload: %w", kind, err)
}

func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Money]():
		return `an amount as a string, such as "2.55"`
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Slice:
		return "an array"
	case t.Kind() == reflect.Struct:
		return "an object"
	default:
		return fmt.Sprintf("a whole number (%s)", t)
	}
}
