package taskredis_test

import (
	"errors"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

func TestWriteResult(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]func() string{
		"miniredis": func() string { return miniredis.RunT(t).Addr() },
		"redis":     func() string { return redistest.Shared(t).Addr },
	} {
		rdb := redis.NewClient(&redis.Options{Addr: addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		attempt := taskredis.Name{Queue: t.Name(), ID: "id", Attempt: "siding:s-1-1:host (pid 1)"}
		key := taskredis.TaskKey(attempt.Queue, attempt.ID)
		for _, c := range []struct {
			what string
			task []any // its hash
			want error
		}{
			{"latest", []any{"state", "active", "siding_attempt", attempt.Attempt}, nil},
			{"latest, with a result", []any{"state", "active", "siding_attempt", attempt.Attempt, "result", "old"}, nil},
			{"a later one", []any{"state", "active", "siding_attempt", "siding:s-1-10:host (pid 1)", "result", "old"}, taskredis.ErrEnded},
			{"ended", []any{"state", "retry", "siding_attempt", attempt.Attempt, "result", "old"}, taskredis.ErrEnded},
			{"of asynq's server", []any{"state", "active", "msg", "m"}, taskredis.ErrEnded},
			{"gone", nil, taskredis.ErrEnded},
		} {
			rdb.Del(t.Context(), key)
			if c.task != nil {
				rdb.HSet(t.Context(), key, c.task...)
			}
			want := rdb.HGetAll(t.Context(), key).Val()
			if c.want == nil {
				want["result"] = "r\x00\xff"
			}
			if err := taskredis.WriteResult(t.Context(), rdb, attempt, []byte("r\x00\xff")); !errors.Is(err, c.want) {
				t.Errorf("%s: %s: want %v, have %v", name, c.what, c.want, err)
			}
			if diff := cmp.Diff(want, rdb.HGetAll(t.Context(), key).Val()); diff != "" {
				t.Errorf("%s: %s: the task (-want +have):\n%s", name, c.what, diff)
			}
		}
		nameless := taskredis.Name{Queue: attempt.Queue, ID: attempt.ID}
		rdb.HSet(t.Context(), key, "state", "active")
		if err := taskredis.WriteResult(t.Context(), rdb, nameless, nil); !errors.Is(err, taskredis.ErrEnded) {
			t.Errorf("%s: want an attempt without a name refused, have %v", name, err)
		}
	}
}
