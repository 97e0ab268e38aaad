package hook_test

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/fastpath"
)

// wakeNext wakes a waiter as the scripts of a lock do, with a start if one is given.
func (f *fleet) wakeNext(t *testing.T, waiter string, ticket int64, start ...any) []any {
	t.Helper()
	return f.wakeWaiter(t, "", waiter, ticket, start)
}

// wakeAgain asks what an earlier call with the same start has answered.
func (f *fleet) wakeAgain(t *testing.T, waiter string, ticket int64, start ...any) []any {
	t.Helper()
	return f.wakeWaiter(t, ", true", waiter, ticket, start)
}

func (f *fleet) wakeWaiter(t *testing.T, again, waiter string, ticket int64, start []any) []any {
	t.Helper()
	script := redis.NewScript(fastpath.Wake() + `
local outcome, started = wake_waiter(ARGV[1], ARGV[2], ARGV[3] and {unpack(ARGV, 3)}` + again + `)
return {outcome or 'nothing', unpack(started or {})}`)
	got, err := script.Run(t.Context(), f.rdb, nil, append([]any{waiter, strconv.FormatInt(ticket, 10)}, start...)...).Slice()
	must(t, err)
	return got
}

func (f *fleet) waiter(id string) string { return asynqredis.WaiterName(f.queue, id) }

// startIn returns the start of a task of a queue.
func startIn(queue string) []any {
	return []any{"name", 1, 1, queue, time.Now().Add(time.Minute).Unix(), "here"}
}

// A waiter that starts is active at once, under the given name and lease. Nobody is notified of
// it. Who asks again gets the same answer.
func TestWaiterStarts(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.parked(t, w, 7)
		f.others(t, 2)
		must(t, f.rdb.Del(t.Context(), "siding:{"+f.queue+"}:notify").Err())
		msg := f.check(t).task(id)["msg"]
		got := f.wakeNext(t, f.waiter(id), 7, startIn(f.queue)...)
		if want := []any{"started", "order:audit " + id + " on here", msg, int64(2), "7"}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("want %q, have %q", want, got)
		}
		task := f.check(t).task(id)
		if task["state"] != "active" || task["siding_attempt"] != "name" || task["siding_ticket"] != "" {
			t.Errorf("want an attempt of the given name, have %q", task)
		}
		if have := f.check(t).places()[id]; !slices.Contains(have, "active") || slices.Contains(have, "retry") {
			t.Errorf("want it active, have it in %v", have)
		}
		if ends := f.rdb.ZScore(t.Context(), f.prefix()+"lease", id).Val(); int64(ends) < time.Now().Unix() {
			t.Errorf("want it under the given lease, have it end at %v", ends)
		}
		if n := f.rdb.Exists(t.Context(), "siding:{"+f.queue+"}:notify").Val(); n != 0 {
			t.Error("want nobody notified")
		}
		if again := f.wakeAgain(t, f.waiter(id), 7, startIn(f.queue)...); fmt.Sprint(again) != fmt.Sprint(got) {
			t.Errorf("again: want the same answer, %q, have %q", got, again)
		}
		if have := f.check(t).task(id); !maps.Equal(have, task) {
			t.Errorf("again: want the task as it was, %q, have %q", task, have)
		}
		if got := f.wakeNext(t, f.waiter(id), 7, startIn(f.queue)...); got[0] == "started" {
			t.Error("want no second attempt")
		}
	})
}

// Who asks again after a start that is over, or never was, gets no answer and changes nothing.
func TestStartOfWhichNothingIsLeft(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(t *testing.T, f *fleet, w *worker, id string){
		"never started": func(*testing.T, *fleet, *worker, string) {},
		"pending": func(t *testing.T, f *fleet, _ *worker, id string) {
			t.Helper()
			f.runNow(t, id)
		},
		"active in another attempt": func(t *testing.T, f *fleet, w *worker, id string) {
			t.Helper()
			f.runNow(t, id)
			w.take(t, id)
		},
		"started, and pending again": func(t *testing.T, f *fleet, _ *worker, id string) {
			t.Helper()
			f.wakeNext(t, f.waiter(id), 7, startIn(f.queue)...)
			must(t, f.rdb.LRem(t.Context(), f.prefix()+"active", 1, id).Err())
			must(t, f.rdb.ZRem(t.Context(), f.prefix()+"lease", id).Err())
			must(t, f.rdb.RPush(t.Context(), f.prefix()+"pending", id).Err())
			must(t, f.rdb.HSet(t.Context(), f.prefix()+"t:"+id, "state", "pending").Err())
		},
		"archived": func(t *testing.T, f *fleet, _ *worker, id string) {
			t.Helper()
			must(t, f.inspector.ArchiveTask(f.queue, id))
		},
		"deleted": func(t *testing.T, f *fleet, _ *worker, id string) {
			t.Helper()
			must(t, f.inspector.DeleteTask(f.queue, id))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				w := f.worker(t)
				id := f.parked(t, w, 7)
				put(t, f, w, id)
				before := f.check(t)
				if got := f.wakeAgain(t, f.waiter(id), 7, startIn(f.queue)...); got[0] != "nothing" {
					t.Errorf("want nothing said, have %q", got)
				}
				if after := f.check(t); !reflect.DeepEqual(before.hashes, after.hashes) || !reflect.DeepEqual(before.lists, after.lists) {
					t.Errorf("want all as it was, %v, have %v", before, after)
				}
			})
		})
	}
}

// A waiter that cannot start at once is woken as without a start.
func TestWaiterIsWokenInstead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		put    func(t *testing.T, f *fleet, id string)
		kind   string // of the task, if not any
		id     string // likewise
		ticket int64
		queue  string // of the start, instead of the task's
		want   string
		state  asynq.TaskState
	}{
		"of another queue":                       {queue: "other", want: "woken", state: asynq.TaskStatePending},
		"of a kind too long for a holder's name": {kind: strings.Repeat("k", 128), want: "woken", state: asynq.TaskStatePending},
		"whose holder's name would be too long":  {id: strings.Repeat("i", 200), want: "woken", state: asynq.TaskStatePending},
		"paused queue": {want: "paused", state: asynq.TaskStateRetry, put: func(t *testing.T, f *fleet, _ string) {
			t.Helper()
			must(t, f.inspector.PauseQueue(f.queue))
		}},
		"older ticket": {ticket: 6, want: "gone", state: asynq.TaskStateRetry},
		"pending since its fallback time": {want: "woken", state: asynq.TaskStatePending, put: func(t *testing.T, f *fleet, id string) {
			t.Helper()
			f.runNow(t, id)
		}},
		"archived": {want: "gone", state: asynq.TaskStateArchived, put: func(t *testing.T, f *fleet, id string) {
			t.Helper()
			must(t, f.inspector.ArchiveTask(f.queue, id))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				id := f.enqueueKind(t, cmp.Or(tt.kind, "order:audit"), asynq.TaskID(cmp.Or(tt.id, "7")))
				f.worker(t).take(t, id).park(t, 7)
				if tt.put != nil {
					tt.put(t, f, id)
				}
				got := f.wakeNext(t, f.waiter(id), cmp.Or(tt.ticket, 7), startIn(cmp.Or(tt.queue, f.queue))...)
				if got[0] != tt.want {
					t.Errorf("want %s, have %q", tt.want, got)
				}
				if have := f.task(t, id).State; have != tt.state {
					t.Errorf("want it %v, have it %v", tt.state, have)
				}
			})
		})
	}
}

// An active waiter, and one that is gone, do not start.
func TestStartOfNobody(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.enqueue(t)
		w.take(t, id)
		if got := f.wakeNext(t, f.waiter(id), 7, startIn(f.queue)...); got[0] != "nothing" {
			t.Errorf("active: want it left to the client, have %q", got)
		}
		for _, waiter := range []string{f.waiter("gone"), "x", "3:abcd:e"} {
			if got := f.wakeNext(t, waiter, 7, startIn(f.queue)...); got[0] != "gone" {
				t.Errorf("%s: want it gone, have %q", waiter, got)
			}
		}
	})
}
