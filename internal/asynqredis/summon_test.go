package asynqredis_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

// summon calls a waiter as the scripts of a lock do, with a start where one is given.
func (f *fleet) summon(t *testing.T, waiter string, ticket int64, start ...any) []any {
	t.Helper()
	script := redis.NewScript(asynqredis.Summon() + `
local outcome, begun = summon(ARGV[1], ARGV[2], ARGV[3] and {unpack(ARGV, 3)})
return {outcome or 'by hand', unpack(begun or {})}`)
	got, err := script.Run(t.Context(), f.rdb, nil, append([]any{waiter, strconv.FormatInt(ticket, 10)}, start...)...).Slice()
	must(t, err)
	return got
}

func (f *fleet) waiter(id string) string { return asynqredis.WaiterName(f.queue, id) }

// startIn is what a task of a queue begins with.
func startIn(queue string) []any {
	return []any{"name", 1, 1, queue, time.Now().Add(time.Minute).Unix(), "here"}
}

// A waiter that begins is active at once, under the given name and lease; no bell
// rings for it.
func TestWaiterBegins(t *testing.T) {
	t.Parallel()
	for where, store := range stores() {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			f := store(t)
			w := f.worker(t)
			id := f.parked(t, w, 7)
			f.others(t, 2)
			must(t, f.rdb.Del(t.Context(), "siding:{"+f.queue+"}:bell").Err())
			msg := f.check(t).task(id)["msg"]
			got := f.summon(t, f.waiter(id), 7, startIn(f.queue)...)
			if want := []any{"begun", "order:audit " + id + " on here", msg, int64(2), "7"}; fmt.Sprint(got) != fmt.Sprint(want) {
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
			if n := f.rdb.Exists(t.Context(), "siding:{"+f.queue+"}:bell").Val(); n != 0 {
				t.Error("want no bell rung")
			}
			if got := f.summon(t, f.waiter(id), 7, startIn(f.queue)...); got[0] == "begun" {
				t.Error("want no second attempt")
			}
		})
	}
}

// Who cannot begin at once is called as without a start.
func TestWaiterIsCalledInstead(t *testing.T) {
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
		"of another queue":                       {queue: "other", want: "called", state: asynq.TaskStatePending},
		"of a kind too long for a holder's name": {kind: strings.Repeat("k", 128), want: "called", state: asynq.TaskStatePending},
		"whose holder's name would be too long":  {id: strings.Repeat("i", 200), want: "called", state: asynq.TaskStatePending},
		"paused queue": {want: "paused", state: asynq.TaskStateRetry, put: func(t *testing.T, f *fleet, _ string) {
			t.Helper()
			must(t, f.inspector.PauseQueue(f.queue))
		}},
		"older ticket": {ticket: 6, want: "gone", state: asynq.TaskStateRetry},
		"pending by its own timer": {want: "called", state: asynq.TaskStatePending, put: func(t *testing.T, f *fleet, id string) {
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
			for where, store := range stores() {
				t.Run(where, func(t *testing.T) {
					t.Parallel()
					f := store(t)
					id := f.enqueueKind(t, cmp.Or(tt.kind, "order:audit"), asynq.TaskID(cmp.Or(tt.id, "7")))
					f.worker(t).take(t, id).park(t, 7)
					if tt.put != nil {
						tt.put(t, f, id)
					}
					got := f.summon(t, f.waiter(id), cmp.Or(tt.ticket, 7), startIn(cmp.Or(tt.queue, f.queue))...)
					if got[0] != tt.want {
						t.Errorf("want %s, have %q", tt.want, got)
					}
					if have := f.task(t, id).State; have != tt.state {
						t.Errorf("want it %v, have it %v", tt.state, have)
					}
				})
			}
		})
	}
}

// An active waiter, and one that is gone, do not begin.
func TestStartOfNobody(t *testing.T) {
	t.Parallel()
	for where, store := range stores() {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			f := store(t)
			w := f.worker(t)
			id := f.enqueue(t)
			w.take(t, id)
			if got := f.summon(t, f.waiter(id), 7, startIn(f.queue)...); got[0] != "by hand" {
				t.Errorf("active: want it called by hand, have %q", got)
			}
			for _, waiter := range []string{f.waiter("gone"), "x", "3:abcd:e"} {
				if got := f.summon(t, waiter, 7, startIn(f.queue)...); got[0] != "gone" {
					t.Errorf("%s: want it gone, have %q", waiter, got)
				}
			}
		})
	}
}
