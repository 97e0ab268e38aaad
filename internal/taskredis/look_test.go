package taskredis

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A key that is missing hides no error of the commands behind it, as of another node of a Cluster.
func TestEachTellsOfAnError(t *testing.T) {
	t.Parallel()
	down := errors.New("CLUSTERDOWN")
	for name, test := range map[string]struct {
		first, second, whole, want error // of two commands, of the pipeline, and of Each
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
		get := func(pipe redis.Pipeliner, key string) *redis.StringCmd { return pipe.Get(t.Context(), key) }
		_, have := Each(t.Context(), rdb, []string{"missing", "other"}, get)
		expect.That(t, errors.Is(have, test.want) && (have == nil) == (test.want == nil), "%s: want %v, have %v", name, test.want, have)
		said, err := Each(t.Context(), rdb, nil, get)
		expect.That(t, err == nil && len(said) == 0, "nothing to ask: have %q, %v", said, err)
	}
}

// Of the locks that tasks wait for, many in one queue leave out none of the others, and the answer is bounded all the same.
func TestAllReadyOfManyQueues(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		var queues []string
		for i, size := range []int{10, 0, 1000, 3, 500} {
			queues = append(queues, fmt.Sprint(t.queue, i))
			for n := range size {
				t.must(t.rdb.ZAdd(t.Context(), ReadyKey(queues[i]), redis.Z{Score: float64(size - n), Member: fmt.Sprint("lock:", n)}).Err())
			}
		}
		for _, tt := range []struct {
			most int
			want []int
		}{{100, []int{10, 0, 44, 3, 43}}, {2000, []int{10, 0, 1000, 3, 500}}, {2, []int{0, 0, 1, 0, 1}}} {
			entries, more, err := AllReady(t.Context(), t.rdb, queues, tt.most)
			have, latest := make([]int, len(queues)), int64(0)
			for _, e := range entries {
				have[slices.Index(queues, e.Queue)]++
				latest = max(latest, e.Due)
			}
			expect.OK(t, err)
			expect.That(t, slices.Equal(have, tt.want) && more == 1513-len(entries) && latest <= int64(slices.Max(tt.want)), "most %d: want %v, due first, have %v, %d left out, the latest %d", tt.most, tt.want, have, more, latest)
		}
	})
}

// The message of an active task is read only if its hash says too little; and of large ones only a few by one script, which lists the
// others later.
func TestAllActiveReadsFewMessages(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		add := func(id string, fields ...any) {
			m := Message{ID: id, Type: "in the message", Payload: make([]byte, 600_000), Queue: t.queue}
			t.must(t.rdb.HSet(t.Context(), TaskKey(t.queue, id), append(fields, "state", "active", "msg", m.Encode())...).Err())
			t.must(t.rdb.RPush(t.Context(), ActiveKey(t.queue), id).Err())
		}
		for i := range 5 {
			add(fmt.Sprint("says all ", i), "siding_kind", "in the hash", "siding_lock", "lock:a")
			add(fmt.Sprint("no kind ", i), "siding_lock", "lock:a")
			add(fmt.Sprint("no lock ", i), "siding_kind", "in the hash")
		}
		all, err := AllActive(t.Context(), t.rdb, []string{t.queue, t.queue + ".none"})
		expect.OK(t, err)
		expect.Equal(t, "tasks", len(all), 15)
		for _, a := range all {
			says := strings.HasPrefix(a.ID, "says all ")
			expect.That(t, a.Message.ID == a.ID && (a.Message.Type == "in the hash") == says && (a.Message.Payload == nil) == says, "%s: have %s with %d bytes", a.ID, a.Message.Type, len(a.Message.Payload))
		}
		answer, err := lookActiveScript.Run(t.Context(), t.rdb, []string{ActiveKey(t.queue)}, t.queue, 0, activePage).Slice()
		expect.OK(t, err)
		expect.That(t, len(fmt.Sprint(answer...)) < 2_000_000 && answer[1] == int64(1), "want a bounded answer, and more to come, have %d bytes", len(fmt.Sprint(answer...)))
	})
}
