package lock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locker, err := lock.New(lock.Redis(oddRedis{reply: reply}), lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = locker.Acquire(t.Context(), "order:1", nil)
			if err == nil || errors.Is(err, lock.ErrBusy) || errors.Is(err, lock.ErrLost) {
				t.Errorf("want an error that is neither busy nor lost, have %v", err)
			}
		})
	}
}
