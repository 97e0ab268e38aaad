package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sidingq/siding/queue"
)

// kinds are the kinds of task, and what is done with one of each.
var kinds = map[string]struct {
	decode func(payload []byte) (queue.Guarded, error)
	handle func(*queue.Server, *Book)
}{
	AuditOrder{}.Kind():      {decode[AuditOrder], handle[AuditOrder]},
	AllocateLine{}.Kind():    {decode[AllocateLine], handle[AllocateLine]},
	DeductStock{}.Kind():     {decode[DeductStock], handle[DeductStock]},
	DebitBalance{}.Kind():    {decode[DebitBalance], handle[DebitBalance]},
	PlaceOrder{}.Kind():      {decode[PlaceOrder], handle[PlaceOrder]},
	TransferBalance{}.Kind(): {decode[TransferBalance], handle[TransferBalance]},
	FulfilOrder{}.Kind():     {decode[FulfilOrder], handle[FulfilOrder]},
}

// Kinds lists, in alphabetical order, the kinds of task that [Decode] knows and
// [Register] registers.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// Decode reads the JSON payload of a task as [Unmarshal] does, and checks it. Errors name the kind
// and the field.
func Decode(kind string, payload []byte) (queue.Guarded, error) {
	known, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("kind: want one of %s, have %.40q", strings.Join(Kinds(), ", "), kind)
	}
	return known.decode(payload)
}

func decode[T task](payload []byte) (queue.Guarded, error) {
	var t T
	if err := Unmarshal(payload, &t); err != nil {
		return nil, fmt.Errorf("%s: payload: %w", t.Kind(), err)
	}
	return t, t.Validate()
}

// Unmarshal reads one JSON object into v and takes nothing on trust. An unknown field, a value of
// the wrong type and anything after the object are errors.
func Unmarshal(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return wrongType(e)
		}
		if _, ok := errors.AsType[*json.SyntaxError](err); ok || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("want a JSON object: %w", err)
		}
		return fmt.Errorf("%.100s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("want one JSON object, have more after it")
	}
	return nil
}

// wrongType says in the words of JSON what the decoder says in those of Go.
func wrongType(e *json.UnmarshalTypeError) error {
	want, ok := map[reflect.Kind]string{reflect.String: "a string", reflect.Slice: "an array", reflect.Struct: "an object", reflect.Bool: "true or false"}[e.Type.Kind()]
	if !ok {
		want = "a whole number"
	}
	if e.Type == reflect.TypeFor[Money]() {
		want = `a string such as "2.55"`
	}
	problem := fmt.Sprintf("want %s, have %s", want, e.Value)
	if _, refused, ok := strings.Cut(e.Value, "string: "); ok { // by ParseMoney
		problem = refused
	}
	if e.Field == "" {
		return errors.New(problem)
	}
	// The decoder names the structs on the way, too.
	return fmt.Errorf("%s: %s", e.Field[strings.LastIndexByte(e.Field, '.')+1:], problem)
}
