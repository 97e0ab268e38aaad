package taskredis

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A key that is missing hides no error of the commands behind it, as of another node of a Cluster.
func TestExecTellsOfAnError(t *testing.T) {
	t.Parallel()
	down := errors.New("CLUSTERDOWN")
	for name, test := range map[string]struct {
		first, second, whole, want error // of two commands, of the pipeline, and of Exec
	}{
		"missing keys":             {redis.Nil, redis.Nil, redis.Nil, nil},
		"an error behind one":      {redis.Nil, down, redis.Nil, down},
		"a hook that tells no one": {nil, nil, down, down},
		"nothing":                  {nil, nil, nil, nil},
	} {
		rdb := redis.NewClient(&redis.Options{})
		t.Cleanup(func() { _ = rdb.Close() })
		rdb.AddHook(redistest.Hook(func(cmds []redis.Cmder, _ func(...redis.Cmder) error) error {
			cmds[0].SetErr(test.first)
			cmds[1].SetErr(test.second)
			return test.whole
		}))
		pipe := rdb.Pipeline()
		pipe.Get(t.Context(), "missing")
		pipe.Get(t.Context(), "other")
		have := Exec(t.Context(), pipe)
		expect.That(t, errors.Is(have, test.want) && (have == nil) == (test.want == nil), "%s: want %v, have %v", name, test.want, have)
	}
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	expect.OK(t, Exec(t.Context(), rdb.Pipeline()))
}
