package asynqredis

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// taskMessage describes the fields of asynq's message for which field is used. It does so to the
// protobuf library with which asynq decodes.
func taskMessage(tb testing.TB) protoreflect.MessageDescriptor {
	tb.Helper()
	text := func(name string, number int32) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{
			Name: &name, Number: &number,
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
			Type:  descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
		}
	}
	retry := text("retry", fieldRetry)
	retry.Type = descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("task.proto"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{
			Name:  new("Task"),
			Field: []*descriptorpb.FieldDescriptorProto{text("id", fieldID), text("unique_key", fieldUniqueKey), retry},
		}},
	}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return file.Messages().Get(0)
}

// encode appends text fields in the order of numbers.
func encode(fields ...any) []byte {
	var b []byte
	for i := 0; i < len(fields); i += 2 {
		number, _ := fields[i].(int)
		b = protowire.AppendTag(b, protowire.Number(number), protowire.BytesType)
		text, _ := fields[i+1].(string)
		b = protowire.AppendString(b, text)
	}
	return b
}

func TestField(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	other := protowire.AppendVarint(protowire.AppendTag(nil, fieldID, protowire.VarintType), 7)
	for name, c := range map[string]struct {
		encoded    []byte
		id, unique string
	}{
		"empty":                   {},
		"both":                    {encode(fieldID, "task-1", fieldUniqueKey, "u"), "task-1", "u"},
		"in another order":        {encode(fieldUniqueKey, "u", fieldID, "task-1"), "task-1", "u"},
		"after a payload":         {encode(1, "type", 2, long, fieldID, "task-1"), "task-1", ""},
		"a payload like a field":  {encode(2, "\x1a\x01x", fieldID, "task-1"), "task-1", ""},
		"empty text":              {encode(fieldID, "", fieldUniqueKey, "u"), "", "u"},
		"long text":               {encode(fieldID, long), long, ""},
		"twice: the last counts":  {encode(fieldID, "task-1", fieldID, "task-2"), "task-2", ""},
		"of another type":         {append(other, encode(fieldUniqueKey, "u")...), "", "u"},
		"of another type, beside": {append(encode(fieldID, "task-1"), other...), "task-1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for number, want := range map[protowire.Number]string{fieldID: c.id, fieldUniqueKey: c.unique} {
				if have, err := field(c.encoded, number); have != want || err != nil {
					t.Errorf("field %d: want %q, have %q, %v", number, want, have, err)
				}
			}
		})
	}
}

func TestFieldRefusesWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	whole := encode(1, "type", fieldID, "task-1", fieldUniqueKey, "u")
	for name, encoded := range map[string][]byte{
		"cut in a tag":         {0x80},
		"cut in a length":      {0x1a, 0x80},
		"longer than there is": {0x1a, 7, 'x'},
		"cut in the last text": whole[:len(whole)-1],
		"number 0":             {0x02, 0},
		"an end of no group":   {0x1c},
		"an unknown type":      {0x1e},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, number := range []protowire.Number{fieldID, fieldUniqueKey} {
				if _, err := field(encoded, number); !errors.Is(err, ErrEncoding) {
					t.Errorf("field %d: want %v, have %v", number, ErrEncoding, err)
				}
			}
		})
	}
}

func TestMessageOf(t *testing.T) {
	t.Parallel()
	numbered := func(num protowire.Number, n uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), n)
	}
	for name, c := range map[string]struct {
		encoded []byte
		want    Message
	}{
		"empty":                    {},
		"no failure":               {encode(fieldID, "task-1"), Message{ID: "task-1"}},
		"a failure":                {encode(fieldID, "task-1", fieldErrorMsg, "boom"), Message{ID: "task-1", LastError: "boom"}},
		"a reason":                 {encode(fieldErrorMsg, "waiting", fieldOwnFailure, ""), Message{LastError: "waiting", Waited: true}},
		"a reason and a failure":   {encode(fieldOwnFailure, "boom", fieldErrorMsg, "waiting"), Message{LastError: "waiting", Failure: "boom", Waited: true}},
		"a deadline":               {numbered(fieldDeadline, 7), Message{deadline: 7}},
		"a deadline that is text":  {encode(fieldDeadline, "7"), Message{}},
		"an id that is a number":   {numbered(fieldID, 7), Message{}},
		"of each twice: the later": {encode(fieldID, "a", fieldErrorMsg, "x", fieldErrorMsg, "y", fieldID, "b"), Message{ID: "b", LastError: "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if have, err := ParseMessage(string(c.encoded)); !reflect.DeepEqual(have, c.want) || err != nil {
				t.Errorf("want %+v, have %+v, %v", c.want, have, err)
			}
		})
	}
	if _, err := ParseMessage("\x80"); !errors.Is(err, ErrEncoding) {
		t.Errorf("want %v, have %v", ErrEncoding, err)
	}
}

func TestOverdue(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	for deadline, want := range map[uint64]bool{
		0: false, 1: true, 1_700_000_000: true, 1_700_000_001: false, math.MaxInt64: false, math.MaxUint64: false, // before 1970
	} {
		if have := (Message{deadline: deadline}).Overdue(now); have != want {
			t.Errorf("%d: want %t, have %t", deadline, want, have)
		}
	}
}

func TestWithNumber(t *testing.T) {
	t.Parallel()
	for name, task := range map[string][]byte{
		"none":                  encode(1, "type", fieldID, "task-1"),
		"another":               protowire.AppendVarint(protowire.AppendTag(nil, fieldRetry, protowire.VarintType), 1<<31-1),
		"a text of that number": encode(fieldRetry, "x"),
	} {
		for _, want := range []int{0, 1, 300} {
			if m, err := ParseMessage(withNumber(string(task), fieldRetry, uint64(want))); m.Retries != want || err != nil {
				t.Errorf("%s: want %d, have %d, %v", name, want, m.Retries, err)
			}
		}
	}
}

// field reads a message that protobuf can decode as protobuf does. No other text must make it
// panic.
func FuzzField(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(encode(1, "order:audit", 2, `{"order":"7"}`, fieldID, "task-1", 4, "default", fieldUniqueKey, "asynq:{default}:Unique:x:"))
	f.Add(encode(fieldID, "a", fieldID, "b", 15, "\x0a\x01k\x12\x01v"))
	f.Add([]byte{0x1b, 0x1c})                         // a group where the id should be
	f.Add(append([]byte{0x18, 1, 0x19}, 1, 2, 3, 4))  // a number, and half a float
	f.Add([]byte{0x1a, 0xff, 0xff, 0xff, 0xff, 0x0f}) // a length beyond everything
	task := taskMessage(f)
	f.Fuzz(func(t *testing.T, encoded []byte) {
		before := bytes.Clone(encoded)
		m := dynamicpb.NewMessage(task)
		valid := proto.Unmarshal(encoded, m) == nil
		for name, number := range map[protoreflect.Name]protowire.Number{"id": fieldID, "unique_key": fieldUniqueKey} {
			have, err := field(encoded, number)
			if want := m.Get(task.Fields().ByName(name)).String(); valid && (err != nil || have != want) {
				t.Errorf("%s of %x: want %q, have %q, %v", name, encoded, want, have, err)
			}
			if err != nil && !errors.Is(err, ErrEncoding) {
				t.Errorf("%s of %x: want %v, have %v", name, encoded, ErrEncoding, err)
			}
		}
		parsed, err := ParseMessage(string(encoded))
		want := m.Get(task.Fields().ByName("retry")).Int()
		if valid && (err != nil || int64(int32(parsed.Retries)) != want) { // 32 bits, as protobuf has it
			t.Errorf("retry of %x: want %d, have %d, %v", encoded, want, parsed.Retries, err)
		}
		changed := dynamicpb.NewMessage(task)
		if valid && proto.Unmarshal([]byte(withNumber(string(encoded), fieldRetry, 7)), changed) == nil {
			if have := changed.Get(task.Fields().ByName("retry")).Int(); have != 7 {
				t.Errorf("%x with 7 retries: have %d", encoded, have)
			}
			changed.Clear(task.Fields().ByName("retry"))
			m.Clear(task.Fields().ByName("retry"))
			if !proto.Equal(m, changed) && len(m.GetUnknown()) == len(changed.GetUnknown()) {
				t.Errorf("%x: want the rest as it was, %v, have %v", encoded, m, changed)
			}
		} else if valid {
			t.Errorf("%x: want a message with 7 retries, have none", encoded)
		}
		if !bytes.Equal(before, encoded) {
			t.Errorf("want the message left as it is, %x, have %x", before, encoded)
		}
	})
}
