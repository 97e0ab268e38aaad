package taskredis

import (
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

func TestWriteResult(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		attempt := Name{Queue: t.queue, ID: "id", Attempt: "siding:s-1-1:host (pid 1)"}
		key := TaskKey(attempt.Queue, attempt.ID)
		for _, c := range []struct {
			what string
			task []any // its hash
			want error
		}{
			{"latest", []any{"state", "active", "siding_attempt", attempt.Attempt}, nil},
			{"latest, with a result", []any{"state", "active", "siding_attempt", attempt.Attempt, "result", "old"}, nil},
			{"a later one", []any{"state", "active", "siding_attempt", "siding:s-1-10:host (pid 1)", "result", "old"}, ErrEnded},
			{"ended", []any{"state", "retry", "siding_attempt", attempt.Attempt, "result", "old"}, ErrEnded},
			{"of asynq's server", []any{"state", "active", "msg", "m"}, ErrEnded},
			{"gone", nil, ErrEnded},
		} {
			t.rdb.Del(t.Context(), key)
			if c.task != nil {
				t.rdb.HSet(t.Context(), key, c.task...)
			}
			want := t.rdb.HGetAll(t.Context(), key).Val()
			if c.want == nil {
				want["result"] = "r\x00\xff"
			}
			expect.Is(t, c.what, WriteResult(t.Context(), t.rdb, attempt, []byte("r\x00\xff")), c.want)
			expect.Same(t, c.what+": the task", t.rdb.HGetAll(t.Context(), key).Val(), want)
		}
		t.rdb.HSet(t.Context(), key, "state", "active")
		err := WriteResult(t.Context(), t.rdb, Name{Queue: attempt.Queue, ID: attempt.ID}, nil)
		expect.Is(t, "an attempt without a name", err, ErrEnded)
	})
}
