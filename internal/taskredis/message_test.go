package taskredis

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/hibiken/asynq" // registers the messages that asynq itself decodes with
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// asynqType is a message of asynq's own generated code, which is internal to asynq but in the registry of protobuf.
func asynqType(tb testing.TB, name protoreflect.FullName) protoreflect.MessageType {
	tb.Helper()
	found := expect.Value(protoregistry.GlobalTypes.FindMessageByName(name))(tb)
	return found
}

// asynqMessage converts a message of asynq's own decoder. It has no unknown fields.
func asynqMessage(p protoreflect.Message) *Message {
	get := func(name protoreflect.Name) protoreflect.Value { return p.Get(p.Descriptor().Fields().ByName(name)) }
	m := &Message{
		Type: get("type").String(), ID: get("id").String(), Queue: get("queue").String(),
		Retry: int(get("retry").Int()), Retried: int(get("retried").Int()), ErrorMsg: get("error_msg").String(),
		LastFailedAt: get("last_failed_at").Int(), Timeout: get("timeout").Int(), Deadline: get("deadline").Int(),
		UniqueKey: get("unique_key").String(), GroupKey: get("group_key").String(),
		Retention: get("retention").Int(), CompletedAt: get("completed_at").Int(),
	}
	if b := get("payload").Bytes(); len(b) > 0 {
		m.Payload = b
	}
	for name, value := range get("headers").Map().Range {
		if m.Headers == nil {
			m.Headers = make(map[string]string)
		}
		m.Headers[name.String()] = value.String()
	}
	return m
}

// asynqProto makes a message of asynq's own encoder.
func asynqProto(tb testing.TB, name protoreflect.FullName, values map[protoreflect.Name]any) protoreflect.Message {
	tb.Helper()
	p := asynqType(tb, name).New()
	for name, value := range values {
		switch field := p.Descriptor().Fields().ByName(name); v := value.(type) {
		case map[string]string:
			for key, value := range v {
				p.Mutable(field).Map().Set(protoreflect.ValueOf(key).MapKey(), protoreflect.ValueOf(value))
			}
		case map[string]int:
			for key, value := range v {
				p.Mutable(field).Map().Set(protoreflect.ValueOf(key).MapKey(), protoreflect.ValueOf(int32(value)))
			}
		case time.Time:
			p.Set(field, protoreflect.ValueOf(timestamppb.New(v).ProtoReflect()))
		case int:
			p.Set(field, protoreflect.ValueOf(int32(v)))
		default:
			p.Set(field, protoreflect.ValueOf(v))
		}
	}
	return p
}

func asynqTask(tb testing.TB, m *Message) protoreflect.Message {
	tb.Helper()
	return asynqProto(tb, "asynq.TaskMessage", map[protoreflect.Name]any{
		"type": m.Type, "payload": m.Payload, "id": m.ID, "queue": m.Queue, "retry": m.Retry, "retried": m.Retried, "error_msg": m.ErrorMsg,
		"last_failed_at": m.LastFailedAt, "timeout": m.Timeout, "deadline": m.Deadline, "unique_key": m.UniqueKey, "group_key": m.GroupKey,
		"retention": m.Retention, "completed_at": m.CompletedAt, "headers": m.Headers,
	})
}

// messages have each field alone, all together, and numbers at their ends.
func messages() map[string]Message {
	all := Message{
		Type: "order:charge", Payload: []byte(`{"order":17}`), Headers: map[string]string{"siding-resource": "customer:4", "a": "", "": "b", "z": "ü"},
		ID: "8d5b1b9c", Queue: "critical", Retry: 25, Retried: 3, ErrorMsg: "card refused", LastFailedAt: 1_790_000_000,
		Timeout: 1800, Deadline: 1_800_000_000, UniqueKey: "asynq:{critical}:unique:order:charge:d41d", GroupKey: "g",
		Retention: 3600, CompletedAt: 1_790_000_100,
	}
	messages := map[string]Message{
		"empty":    {},
		"all":      all,
		"largest":  {Retry: math.MaxInt32, Retried: math.MaxInt32, LastFailedAt: math.MaxInt64, Timeout: math.MaxInt64, Deadline: math.MaxInt64, Retention: math.MaxInt64, CompletedAt: math.MaxInt64},
		"smallest": {Retry: math.MinInt32, Retried: math.MinInt32, LastFailedAt: math.MinInt64, Timeout: math.MinInt64, Deadline: math.MinInt64, Retention: math.MinInt64, CompletedAt: math.MinInt64},
		"large":    {Type: strings.Repeat("t", 300), Payload: bytes.Repeat([]byte{0, 0xff}, 1<<16), Headers: map[string]string{strings.Repeat("n", 200): strings.Repeat("v", 70_000)}, ID: "i", Queue: "q"},
		"nul":      {Type: "a\x00b", Payload: []byte{0}, ID: "\x00"},
	}
	many := Message{Headers: make(map[string]string)}
	for n := range 50 {
		many.Headers[strings.Repeat("h", n)] = strings.Repeat("v", n)
	}
	messages["many headers"] = many
	whole := reflect.ValueOf(all)
	for i := range whole.NumField() {
		if field := whole.Type().Field(i); field.IsExported() {
			var one Message
			reflect.ValueOf(&one).Elem().Field(i).Set(whole.Field(i))
			messages["only "+field.Name] = one
		}
	}
	return messages
}

// What we encode has the bytes that asynq gives it, and comes back as it was, for asynq as well.
func TestEncodeIsAsynqs(t *testing.T) {
	t.Parallel()
	for name, m := range messages() {
		want := expect.Value(proto.MarshalOptions{Deterministic: true}.Marshal(asynqTask(t, &m).Interface()))(t)
		have := m.Encode()
		expect.That(t, bytes.Equal(have, want), "%s: asynq encodes\n%x, we\n%x", name, want, have)
		expect.That(t, cap(have)-len(have) <= 256+16*len(m.Headers), "%s: %d bytes encoded in a buffer of %d", name, len(have), cap(have))
		back, err := DecodeMessage(have)
		expect.That(t, err == nil && reflect.DeepEqual(*back, m), "%s: want it back, have %+v, %v", name, back, err)
		agree(t, have)
	}
}

// appendField appends a field of any kind.
func appendField(e []byte, number protowire.Number, value any) []byte {
	switch v := value.(type) {
	case string:
		return protowire.AppendString(protowire.AppendTag(e, number, protowire.BytesType), v)
	case uint64:
		return protowire.AppendVarint(protowire.AppendTag(e, number, protowire.VarintType), v)
	case uint32:
		return protowire.AppendFixed32(protowire.AppendTag(e, number, protowire.Fixed32Type), v)
	case float64:
		return protowire.AppendFixed64(protowire.AppendTag(e, number, protowire.Fixed64Type), math.Float64bits(v))
	case []byte: // a group
		e = append(protowire.AppendTag(e, number, protowire.StartGroupType), v...)
		return protowire.AppendTag(e, number, protowire.EndGroupType)
	default:
		panic(v)
	}
}

// made makes a message of numbers and values.
func made(pairs ...any) []byte {
	var e []byte
	for i := 0; i < len(pairs); i += 2 {
		number, _ := pairs[i].(protowire.Number)
		e = appendField(e, number, pairs[i+1])
	}
	return e
}

// encodings are inputs of all kinds that a decoder may see: of another asynq, of other tools, and broken ones.
func encodings() map[string][]byte {
	n := func(n protowire.Number) protowire.Number { return n }
	const (
		fieldType     = protowire.Number(1)
		fieldPayload  = protowire.Number(2)
		fieldID       = protowire.Number(3)
		fieldQueue    = protowire.Number(4)
		fieldRetry    = protowire.Number(5)
		fieldRetried  = protowire.Number(6)
		fieldErrorMsg = protowire.Number(7)
		fieldTimeout  = protowire.Number(8)
		fieldDeadline = protowire.Number(9)
		fieldHeaders  = protowire.Number(15)
		fieldKey      = protowire.Number(1)
		fieldValue    = protowire.Number(2)
	)
	pair := func(pairs ...any) string { return string(made(pairs...)) }
	return map[string][]byte{
		"nothing":                    nil,
		"a text twice":               made(fieldErrorMsg, "first", fieldID, "x", fieldErrorMsg, "second"),
		"a text, then an empty one":  made(fieldErrorMsg, "first", fieldErrorMsg, ""),
		"a number twice":             made(fieldRetried, uint64(1), fieldRetried, uint64(2)),
		"a payload twice":            made(fieldPayload, "long", fieldPayload, "x"),
		"in another order":           made(fieldHeaders, pair(fieldKey, "k", fieldValue, "v"), fieldQueue, "q", fieldType, "t"),
		"a number as a text":         made(fieldRetry, "5", fieldID, "x"),
		"a text as a number":         made(fieldID, uint64(5), fieldType, "t"),
		"a text as fixed":            made(fieldType, uint32(5), fieldID, 1.5),
		"a number as fixed":          made(fieldTimeout, uint32(5), fieldDeadline, 1.5),
		"a text as a group":          made(fieldType, made(n(1), "x")),
		"unknown fields":             made(n(16), "later", fieldID, "x", n(7007), uint64(9), n(17), uint32(1), n(18), 1.5, n(19), made(n(1), "x"), n(1<<29-1), "last"),
		"a header twice":             made(fieldHeaders, pair(fieldKey, "k", fieldValue, "1"), fieldHeaders, pair(fieldKey, "k", fieldValue, "2")),
		"a header without a name":    made(fieldHeaders, pair(fieldValue, "v")),
		"a header without a value":   made(fieldHeaders, pair(fieldKey, "k")),
		"an empty header":            made(fieldHeaders, ""),
		"a header's name twice":      made(fieldHeaders, pair(fieldKey, "a", fieldKey, "b", fieldValue, "v")),
		"a header with more":         made(fieldHeaders, pair(fieldKey, "a", n(3), "c", fieldKey, uint64(1), n(4), uint64(2), fieldValue, "v")),
		"a header as a number":       made(fieldHeaders, uint64(1)),
		"a header cut off":           made(fieldHeaders, "\x0a\x05k"),
		"a header with field 0":      made(fieldHeaders, "\x02\x01k"),
		"a header with a large one":  made(fieldHeaders, pair(n(1<<29), "x")),
		"a 64-bit number of retries": made(fieldRetry, uint64(1)<<40+7),
		"a number below zero":        made(fieldRetry, uint64(math.MaxUint64), fieldTimeout, uint64(math.MaxUint64)),
		"not UTF-8: type":            made(fieldType, "\xff"),
		"not UTF-8: id":              made(fieldID, "a\xc3"),
		"not UTF-8: error":           made(fieldErrorMsg, "\xed\xa0\x80"),
		"not UTF-8: error, replaced": made(fieldErrorMsg, "\xff", fieldErrorMsg, "fine"),
		"not UTF-8: header's name":   made(fieldHeaders, pair(fieldKey, "\xff")),
		"not UTF-8: header's value":  made(fieldHeaders, pair(fieldValue, "\xff")),
		"not UTF-8: payload":         made(fieldPayload, "\xff"),
		"not UTF-8: unknown":         made(n(16), "\xff"),
		"field 0":                    {0x02, 0x01, 'x'},
		"a number too large":         made(n(1<<29), "x"),
		"reserved kind 6":            {0x0e},
		"reserved kind 7":            {0x0f},
		"the end of no group":        {0x0c},
		"a group without an end":     {0x0b, 0x08, 0x01},
		"a group of another end":     {0x0b, 0x14},
		"a cut tag":                  {0x80},
		"a cut length":               {0x0a, 0x80},
		"a cut text":                 {0x0a, 0x05, 'x'},
		"a cut number":               {0x28, 0x80},
		"a length too large":         {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"a number of eleven bytes":   {0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"a number above 64 bits":     {0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02},
		"large, with texts":          made(fieldPayload, strings.Repeat("p", 5000), fieldID, "x", fieldHeaders, pair(fieldKey, "k", fieldValue, "v")),
	}
}

// agree checks that we read encoded as asynq does, and lose nothing of it.
func agree(tb testing.TB, encoded []byte) {
	tb.Helper()
	theirs := asynqType(tb, "asynq.TaskMessage").New()
	wantErr := proto.Unmarshal(encoded, theirs.Interface())
	before := slices.Clone(encoded)
	m, err := DecodeMessage(encoded)
	expect.Need(tb, (err != nil) == (wantErr != nil), "%x: asynq says %v, we %v", encoded, wantErr, err)
	if err != nil {
		expect.Need(tb, errors.Is(err, ErrMessage), "%x: want ErrMessage, have %v", encoded, err)
		return
	}
	want := asynqMessage(theirs)
	same := func(have Message, what string) {
		have.unknown = nil
		if len(have.Payload) == 0 {
			have.Payload = nil
		}
		expect.Need(tb, reflect.DeepEqual(have, *want), "%x: %s:\nasynq has %+v\nwe have   %+v", encoded, what, want, have)
	}
	same(*m, "decoded")
	expect.Need(tb, bytes.Equal(m.unknown, theirs.GetUnknown()) || nonMinimalTags(encoded), "%x: unknown fields: want %x, have %x", encoded, theirs.GetUnknown(), m.unknown)
	again := m.Encode()
	back, err := DecodeMessage(again)
	expect.Need(tb, err == nil, "%x: encoded again: %v", encoded, err)
	same(*back, "encoded and decoded")
	expect.Need(tb, bytes.Equal(back.unknown, m.unknown), "%x: unknown fields: want %x kept, have %x", encoded, m.unknown, back.unknown)
	again2 := back.Encode()
	expect.Need(tb, bytes.Equal(again, again2), "%x: encoded twice: %x, %x", encoded, again, again2)
	_ = append(m.Payload, "beyond"...) // whoever appends to it writes over nothing
	expect.Need(tb, bytes.Equal(encoded, before), "%x: changed to %x", before, encoded)
}

// nonMinimalTags reports whether a tag has more bytes than it needs. protobuf shortens those of unknown fields, and we
// keep them.
func nonMinimalTags(encoded []byte) bool {
	for len(encoded) > 0 {
		number, kind, size := protowire.ConsumeTag(encoded)
		if size < 0 || size != protowire.SizeTag(number) {
			return true
		}
		value := protowire.ConsumeFieldValue(number, kind, encoded[size:])
		if value < 0 {
			return true
		}
		encoded = encoded[size+value:]
	}
	return false
}

// We read whatever comes as asynq does.
func FuzzDecodeMessage(f *testing.F) {
	for _, encoded := range encodings() {
		f.Add(encoded)
	}
	for _, m := range messages() {
		if e := m.Encode(); len(e) < 4096 {
			f.Add(e)
		}
	}
	f.Fuzz(func(t *testing.T, encoded []byte) { agree(t, encoded) })
}

// asynq refuses a whole task for one text that is not UTF-8, so none leaves us.
func TestEncodeRepairsTexts(t *testing.T) {
	t.Parallel()
	const bad, good = "a\xff\xfeb\xc3", "a\uFFFDb\uFFFD"
	m := Message{
		Type: bad, Payload: []byte(bad), Headers: map[string]string{bad: bad}, ID: bad, Queue: bad, ErrorMsg: bad, UniqueKey: bad, GroupKey: bad,
	}
	want := Message{
		Type: good, Payload: []byte(bad), Headers: map[string]string{good: good}, ID: good, Queue: good, ErrorMsg: good, UniqueKey: good, GroupKey: good,
	}
	encoded := m.Encode()
	agree(t, encoded)
	have := expect.Value(DecodeMessage(encoded))(t)
	expect.That(t, reflect.DeepEqual(*have, want), "want %+v, have %+v", want, have)
}

// The strings of a task must not change with the bytes that it was read from, which a handler gets as the payload.
func TestTextsAreCopies(t *testing.T) {
	t.Parallel()
	for _, payload := range []int{3, 5000} {
		m := Message{Type: "t", Payload: bytes.Repeat([]byte("p"), payload), ID: "x", Headers: map[string]string{"k": "v"}, unknown: made(protowire.Number(16), "later")}
		encoded := m.Encode()
		have := expect.Value(DecodeMessage(encoded))(t)
		for i := range encoded {
			encoded[i] = '!'
		}
		have.Payload = m.Payload
		expect.That(t, reflect.DeepEqual(*have, m), "payload of %d: want %+v, have %+v", payload, m, have)
	}
}

func TestEndsBy(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_790_000_000, 500_000_000)
	const far = 292 * 365 * 24 * time.Hour
	for name, c := range map[string]struct {
		timeout, deadline int64
		want              time.Time
		atLeast           bool // want it or later
	}{
		"neither":                    {0, 0, now.Add(30 * time.Minute), false},
		"a timeout":                  {90, 0, now.Add(90 * time.Second), false},
		"a deadline":                 {0, 1_790_000_007, time.Unix(1_790_000_007, 0), false},
		"the largest deadline":       {0, math.MaxInt64, now.Add(far), true},
		"a deadline that has passed": {0, 5, time.Unix(5, 0), false},
		"the timeout first":          {1, 1_790_000_007, now.Add(time.Second), false},
		"the deadline first":         {90, 1_790_000_007, time.Unix(1_790_000_007, 0), false},
		"a timeout below zero":       {-5, 0, now.Add(-5 * time.Second), false},
		"the largest timeout":        {math.MaxInt64, 0, now.Add(far), true},
		"both the largest":           {math.MaxInt64, math.MaxInt64, now.Add(far), true},
		"the largest and a deadline": {math.MaxInt64, 1_790_000_007, time.Unix(1_790_000_007, 0), false},
		"the smallest timeout":       {math.MinInt64, 0, now.Add(-far), false},
	} {
		have := (&Message{Timeout: c.timeout, Deadline: c.deadline}).EndsBy(now)
		switch {
		case c.atLeast && have.Before(c.want):
			t.Errorf("%s: want %v or later, have %v", name, c.want, have)
		case name == "the smallest timeout" && have.After(c.want):
			t.Errorf("%s: want %v or earlier, have %v", name, c.want, have)
		case !c.atLeast && name != "the smallest timeout" && !have.Equal(c.want):
			t.Errorf("%s: want %v, have %v", name, c.want, have)
		}
	}
}
