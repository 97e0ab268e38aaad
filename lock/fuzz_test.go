package lock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

// An oddRedis answers every script with the same.
type oddRedis struct {
	redis.Scripter // whatever is not below panics

	reply any
}

func (o oddRedis) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal(o.reply)
	return cmd
}

// TestOddReplies are errors of the store: nobody may believe that he holds the
// lock, or that somebody else does.
func TestOddReplies(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]any{
		"another kind":              "OK",
		"nothing":                   []any{},
		"no answer to the call":     []any{nil},
		"another outcome":           []any{[]any{int64(7)}},
		"grant that is too short":   []any{[]any{int64(1)}},
		"refusal that is too short": []any{[]any{int64(0)}},
		"fence that is no number":   []any{[]any{int64(1), "1.79e+15", "-1"}},
		"holder that is no text":    []any{[]any{int64(0), int64(3), int64(100), "1", int64(0), "0", "", "", "0"}},
	} {
		wantBroken(t, name, expect.Err(lockerOn(t, lock.Redis(oddRedis{reply: reply})).Acquire(t.Context(), "order:1", nil)))
	}
}

// FuzzReply answers an acquire with what no script sends: an error of the store,
// unless it has all the fields of a grant or a refusal; and then exactly those.
func FuzzReply(f *testing.F) {
	f.Add("1\n1700000000000000\n250", false)
	f.Add("0\nsiding:4f:worker\n1500\n1700000000000000\n2\n7\n1", false)
	f.Add("0\nsiding-reserved:4f:7:x\n5000\n0\n0\n0\n0", true)
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
		have, err := lock.Redis(oddRedis{reply: []any{fields}}).Acquire(t.Context(), store.Request{Key: "lock:x", TTL: time.Second})
		if err != nil {
			expect.That(t, !errors.Is(err, lock.ErrBusy) && !errors.Is(err, lock.ErrLost) && strings.HasPrefix(err.Error(), "unexpected reply"),
				"%q: want an error of the store, have %v", text, err)
			return
		}
		granted := slices.Contains([]any{"1", "+1", "01", "+01", int64(1)}, fields[0]) || strings.Trim(text[:strings.IndexByte(text+"\n", '\n')], "+0") == "1"
		least := 7
		if granted {
			least = 3
		}
		expect.That(t, len(fields) >= least, "%q: want an error, as fields are missing, have %+v", text, have)
		if !granted && (have.Fence != 0 || have.Holder != fields[1]) {
			t.Errorf("%q: want a refusal by %q, have %+v", text, fields[1], have)
		}
	})
}

// FuzzResource: all keys of a lock with a name that is accepted are in one slot of a Cluster. None of them is one of
// another lock, nor a lock.
func FuzzResource(f *testing.F) {
	seeds := []string{
		"", "order:123", "a b", "{a}", "a{b}c", "a}b", "a{b", "{}a", "{a}{}", "{{a}b}", "a", "{a}siding:fence", "{a}:siding:fence", "{lock:a}:fence", "lock:a",
		"siding:slots", "a:siding:permit:1", "asynq:queues", "\x00", "\xff", "é:ü", strings.Repeat("x", store.MaxResource+1),
	}
	for i, seed := range seeds {
		f.Add(seed, seeds[(i+1)%len(seeds)], byte(i))
		f.Add(seed, "a", byte(i+1))
	}
	const each = 3 // keys of a lock, of those that have names of their own
	f.Fuzz(func(t *testing.T, name, other string, which byte) {
		prefix := ""
		if which%3 == 1 {
			prefix = lock.NoPrefix
		}
		client := expect.Value(lease.New(newFake().Store, lease.Config{Prefix: prefix}))(t)
		begin := client.Key("") // of all keys of locks
		if which%3 == 2 {
			begin = taskredis.LockPrefix("q", begin) // in a Cluster
		}
		taken := make(map[string]bool)
		for _, resource := range []string{name, other} {
			if err := client.Check(resource); err != nil {
				expect.That(t, errors.Is(err, lock.ErrResource) && len(err.Error()) <= 200+5*store.MaxResource,
					"want a short %v, have %v", lock.ErrResource, err)
				return
			}
			key := begin + resource
			permit := store.PermitKey(key, "1")
			expect.That(t, store.LockOf(permit) == key && store.LockOf(key) == key,
				"%q: want %q a permit of %q, have one of %q", resource, permit, key, store.LockOf(permit))
			for _, companion := range []string{permit, store.Beside(key, "fence"), store.Beside(key, "queue")} {
				expect.That(t, hashed(companion) == hashed(key),
					"%q: want %q in its slot, have it in that of %q", resource, companion, hashed(companion))
				own, isLock := strings.CutPrefix(companion, begin)
				expect.That(t, !isLock || client.Check(own) != nil, "%q: want %q to be no lock, have that of %q", resource, companion, own)
				taken[companion] = true
			}
		}
		expect.That(t, name == other || len(taken) == 2*each, "%q and %q: want keys of their own, have %v", name, other, taken)
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
