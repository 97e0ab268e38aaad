package asynqredis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sidingq/siding/internal/testenv/redistest"
)

const (
	resourceHeader = "siding-resource"
	resourcePair   = "\x0a\x0f" + resourceHeader + "\x12" // how a pair of the header begins
)

// readParts returns what encoded.lua finds in a task: kind, deadline, key of uniqueness,
// resource, "1" if there is one, and the task with a reason.
const readParts = `
local found = parts(ARGV[1])
if not found then return {} end
return {found.kind, string.format('%.0f', found.deadline), found.unique, found.resource or '', found.resource and '1' or '0',
  with_reason(found, ARGV[2])}`

// values returns the values of each field of an encoded task, and whether all of them are of the
// types and numbers that asynq uses.
func values(encoded []byte) (found map[protowire.Number][]string, plain bool, err error) {
	found, plain = map[protowire.Number][]string{}, true
	err = fields(encoded, func(num protowire.Number, typ protowire.Type, value []byte) {
		found[num] = append(found[num], strconv.Itoa(int(typ))+string(value))
		plain = plain && num <= protowire.MaxValidNumber && (typ == protowire.VarintType || typ == protowire.BytesType)
	})
	return found, plain, err
}

// resourcePairs reports whether all pairs of the resource's header are written as asynq does.
func resourcePairs(encoded []byte) (canonical bool) {
	canonical = true
	_ = fields(encoded, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num != fieldHeaders || typ != protowire.BytesType {
			return
		}
		pair, _ := protowire.ConsumeBytes(value)
		key, _ := field(pair, 1)
		rest, begins := strings.CutPrefix(string(pair), resourcePair)
		_, n := protowire.ConsumeBytes([]byte(rest))
		canonical = canonical && begins == (key == resourceHeader) && (!begins || n == len(rest)) &&
			(begins || !strings.Contains(string(pair), "\x0a\x0f"+resourceHeader))
	})
	return canonical
}

// isResourcePair reports whether a value of the headers is the one that the scripts move to the end.
func isResourcePair(value string) bool {
	return strings.HasPrefix(value, strconv.Itoa(int(protowire.BytesType))) && strings.Contains(value, resourcePair)
}

// The scripts read and change an encoded task as this package does in Go. They may leave alone a
// task that is encoded in a way that asynq does not use. They do not misread it.
func FuzzEncoded(f *testing.F) {
	pair := func(resource string) string { return resourcePair + string(protowire.AppendString(nil, resource)) }
	numbered := func(b []byte, num protowire.Number, n uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), n)
	}
	task := encode(1, "order:audit", 2, `{"order":"7"}`, fieldID, "task-1", 4, "default", fieldErrorMsg, "its own", fieldUniqueKey, "u")
	f.Add([]byte(nil))
	f.Add(task)
	f.Add(encode(1, "a", fieldErrorMsg, "waiting; last failure: its own", fieldOwnFailure, "its own"))
	f.Add(encode(fieldOwnFailure, "", fieldErrorMsg, "waiting"))
	f.Add(encode(1, "a", fieldHeaders, pair("order:7"), fieldHeaders, "\x0a\x01k\x12\x01v"))
	f.Add(encode(fieldHeaders, pair(strings.Repeat("x", 300))))
	f.Add(encode(fieldHeaders, pair("a"), fieldHeaders, pair("b"), 1, "late kind"))
	f.Add(encode(2, resourcePair+"\x01x", fieldHeaders, pair("own")))
	f.Add(encode(fieldHeaders, pair("a")+"\x12\x01b"))
	f.Add(encode(fieldHeaders, resourcePair+"\x7fx"))
	f.Add(encode(fieldHeaders, "\x12\x01x\x0a\x0f"+resourceHeader))
	f.Add(encode(fieldHeaders, pair("")))
	f.Add(encode(fieldHeaders, pair("0"), fieldHeaders, "\x0a\x0f"+resourceHeader+"2\x010"))
	f.Add(encode(fieldHeaders, pair("0"), fieldHeaders, "\x12\x01x\x0a\x0f"+resourceHeader))
	f.Add([]byte("z\x00\n\x0fsiding-resource\x12\x00")) // an empty header, and behind it what looks like one
	f.Add(numbered(numbered(numbered(task, fieldLastFailedAt, 1700000000), fieldDeadline, 1800000000), 13, 7))
	f.Add(numbered(nil, fieldDeadline, 1<<64-5)) // before 1970
	f.Add(numbered(encode(fieldDeadline, "a text"), fieldRetry, 1<<40))
	f.Add([]byte{0x1b, 0x1c})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Add([]byte("\x48" + strings.Repeat("\xff", 9) + "\x02")) // more than 64 bits
	f.Add([]byte("\x0a" + strings.Repeat("\x80", 200) + "\x00"))
	f.Add([]byte("\x02\x01x"))
	f.Add(task[:len(task)-1])
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Shared(f).Addr})
	f.Cleanup(func() { _ = rdb.Close() })
	script := redis.NewScript(EncodedLua + readParts)
	f.Fuzz(func(t *testing.T, encoded []byte) {
		reason := strings.Repeat("waiting ", len(encoded)%40)
		have, err := script.Run(t.Context(), rdb, nil, string(encoded), reason).StringSlice()
		if err != nil {
			t.Fatal(err)
		}
		_, plain, err := values(encoded)
		canonical := resourcePairs(encoded)
		switch {
		case len(have) == 0 && err == nil && plain && canonical:
			t.Fatalf("%x: want it read, have nothing", encoded)
		case len(have) == 0:
			return
		case err != nil || !plain:
			t.Fatalf("%x: want nothing of it, %v, have %q", encoded, err, have)
		}
		kind, _ := field(encoded, fieldType)
		unique, _ := field(encoded, fieldUniqueKey)
		if have[0] != kind || have[2] != unique {
			t.Errorf("%x: want kind %q and key %q, have %q", encoded, kind, unique, have)
		}
		before, _ := ParseMessage(string(encoded))
		deadline := int64(before.deadline)
		said, err := strconv.ParseFloat(have[1], 64)
		if exact := deadline >= 0 && deadline < 1<<53; err != nil || exact && int64(said) != deadline || said < 0 != (deadline < 0) {
			t.Errorf("%x: want the deadline %d, have %s", encoded, deadline, have[1])
		}
		if resource, ok := before.Headers[resourceHeader]; canonical && (have[3] != resource || have[4] == "1" != ok) {
			t.Errorf("%x: want the resource %q, %v, have %q", encoded, resource, ok, have[3:5])
		}
		failure := before.LastError
		if before.Waited {
			failure = before.Failure
		}
		if failure != "" {
			reason += "; last failure: " + failure
		}
		if after, err := ParseMessage(have[5]); after.LastError != reason || after.Failure != failure || !after.Waited || err != nil {
			t.Errorf("%x with a reason: want %q for the error and %q for the failure, have %+v, %v", encoded, reason, failure, after, err)
		}
		want, _ := WithFailure(string(encoded), "")
		kept, _ := WithFailure(have[5], "")
		wanted, _, _ := values([]byte(want))
		changed, _, err := values([]byte(kept))
		for _, v := range []map[protowire.Number][]string{wanted, changed} {
			v[fieldHeaders] = slices.DeleteFunc(v[fieldHeaders], isResourcePair)
		}
		if again, _ := ParseMessage(kept); again.Headers[resourceHeader] != before.Headers[resourceHeader] {
			t.Errorf("%x with a reason: want the resource %q, have %q", encoded, before.Headers[resourceHeader], again.Headers[resourceHeader])
		}
		if diff := cmp.Diff(wanted, changed); diff != "" || err != nil {
			t.Errorf("%x with a reason, the rest: %v (-Go +Lua)\n%s", encoded, err, diff)
		}
	})
}

// What the scripts read of the headers that say how a task waits.
func TestPartsOfHeaders(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr})
	t.Cleanup(func() { _ = rdb.Close() })
	script := redis.NewScript(EncodedLua + `
		local found = parts(ARGV[1])
		return {found.resource or 'none', found.priority, found.policy and 1 or 0}`)
	header := func(name, value string) string { return string(encode(1, name, 2, value)) }
	for want, encoded := range map[string][]byte{
		"[order:7 0 0]": encode(1, "a", fieldHeaders, resourcePair+string(protowire.AppendString(nil, "order:7"))),
		"[none 9 0]":    encode(1, "a", fieldHeaders, header("siding-priority", "9"), fieldHeaders, header("siding-policz", "x")),
		"[none 0 0]":    encode(1, "a", fieldHeaders, header("siding-priority", "10"), fieldHeaders, "\x0a"),
		"[none 0 1]":    encode(1, "a", fieldHeaders, header("siding-priority", "x"), fieldHeaders, header("siding-policy", "{}")),
		"[none 1 0]":    encode(2, header("siding-policy", "{}"), fieldHeaders, header("siding-priority", "1"), fieldHeaders, header("k", "siding-policy")),
	} {
		have, err := script.Run(t.Context(), rdb, nil, string(encoded)).Slice()
		if err != nil || fmt.Sprint(have) != want {
			t.Errorf("%q: want %s, have %v, %v", encoded, want, have, err)
		}
	}
}
