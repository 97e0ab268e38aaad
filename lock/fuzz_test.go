package lock_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// FuzzReply answers an acquire with what no script sends: an error of the store,
// unless it has all the fields of a grant or a refusal; and then exactly those.
func FuzzReply(f *testing.F) {
	f.Add("1\n1700000000000000\n250", false)
	f.Add("0\nsiding:4f:worker\n1500\n1700000000000000\n2\n7\n\n\n0", false)
	f.Add("0\nsiding-reserved:4f:7:x\n5000\n0\n0\n0\nvalue\nwaiter\n9", true)
	f.Add("0\nx", true)
	f.Fuzz(func(t *testing.T, text string, numbers bool) {
		var fields []any
		for field := range strings.SplitSeq(text, "\n") {
			// Scripts send numbers as such, or as text.
			if n, err := strconv.ParseInt(field, 10, 64); err == nil && numbers {
				fields = append(fields, n)
			} else {
				fields = append(fields, field)
			}
		}
		have, err := lock.Redis(oddRedis{reply: fields}).Acquire(t.Context(), store.Request{Key: "lock:x", TTL: time.Second})
		if err != nil {
			if errors.Is(err, lock.ErrBusy) || errors.Is(err, lock.ErrLost) || !strings.HasPrefix(err.Error(), "unexpected reply") {
				t.Errorf("%q: want an error of the store, have %v", text, err)
			}
			return
		}
		granted := slices.Contains([]any{"1", "+1", "01", "+01", int64(1)}, fields[0]) || strings.Trim(text[:strings.IndexByte(text+"\n", '\n')], "+0") == "1"
		least := 9
		if granted {
			least = 3
		}
		if len(fields) < least {
			t.Errorf("%q: want an error, as fields are missing, have %+v", text, have)
		}
		if !granted && (have.Fence != 0 || have.Holder != fields[1]) {
			t.Errorf("%q: want a refusal by %q, have %+v", text, fields[1], have)
		}
	})
}

// FuzzResource: all keys of a lock with a name that is accepted are in one slot of a Cluster.
func FuzzResource(f *testing.F) {
	for _, seed := range []string{"", "order:123", "a b", "{a}", "a}b", "\x00", "\xff", "é:ü", strings.Repeat("x", store.MaxResource+1)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if err := store.CheckResource(name); err != nil {
			if !errors.Is(err, lock.ErrResource) || len(err.Error()) > 100+5*store.MaxResource {
				t.Errorf("want a short %v, have %v", lock.ErrResource, err)
			}
			return
		}
		key := "lock:" + name
		for _, other := range []string{key, store.PermitKey(key, "1")} {
			if have := hashed(other); have != key || store.LockOf(other) != key {
				t.Errorf("%q: want %q in its slot, have it in that of %q", name, other, have)
			}
		}
	})
}

// hashed returns the part of a key by which a Cluster chooses its slot. That is the text between
// the first "{" and the first "}" behind it, if not empty.
func hashed(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}
