package asynqredis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// ringing returns a fleet whose client and inspector ring.
func (f *fleet) ringing() *fleet {
	g := *f
	rdb := asynqredis.NewRinger(f.rdb)
	g.client, g.inspector = asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	return &g
}

func (f *fleet) bellKey() string { return "siding:{" + f.queue + "}:bell" }

// rings returns how often the bell of the fleet's queue has rung, and silences it. A bell that rings ends
// by itself.
func (f *fleet) rings(t *testing.T) int64 {
	t.Helper()
	n, err := f.rdb.LLen(t.Context(), f.bellKey()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if left := f.rdb.TTL(t.Context(), f.bellKey()).Val(); n > 0 && (left <= 0 || left > time.Hour) {
		t.Errorf("want a bell that ends within the hour, have %v left", left)
	}
	f.rdb.Del(t.Context(), f.bellKey())
	return n
}

// wantRings compares that number.
func (f *fleet) wantRings(t *testing.T, when string, want int64) {
	t.Helper()
	if have := f.rings(t); have != want {
		t.Errorf("%s: want %d rings, have %d", when, want, have)
	}
}

// Whatever puts a task into pending rings once for it, and nothing else does.
func TestRings(t *testing.T) {
	t.Parallel()
	for name, store := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := store(t).ringing()
			f.enqueue(t, asynq.TaskID("one"))
			f.wantRings(t, "enqueue", 1)
			task := asynq.NewTask("order:audit", []byte(`{"order":"7"}`))
			if _, err := f.client.EnqueueContext(t.Context(), task, asynq.Queue(f.queue), asynq.TaskID("one")); err == nil {
				t.Error("want the second of its id refused")
			}
			f.wantRings(t, "a refused enqueue", 0)
			f.enqueue(t, asynq.Unique(time.Hour))
			f.wantRings(t, "a unique one", 1)
			if _, err := f.client.EnqueueContext(t.Context(), task, asynq.Queue(f.queue), asynq.Unique(time.Hour)); err == nil {
				t.Error("want the second of its kind refused")
			}
			f.wantRings(t, "a refused unique one", 0)
			f.enqueue(t, asynq.TaskID("later"), asynq.ProcessIn(time.Hour))
			f.wantRings(t, "a delayed one", 0)
			if err := f.inspector.RunTask(f.queue, "later"); err != nil {
				t.Fatal(err)
			}
			f.wantRings(t, "a task run by hand", 1)
			if tasks, err := f.inspector.ListPendingTasks(f.queue); err != nil || len(tasks) != 3 {
				t.Errorf("want 3 pending, have %v, %v", tasks, err)
			}
			if _, err := f.inspector.GetQueueInfo(f.queue); err != nil {
				t.Error(err)
			}
			f.wantRings(t, "a look", 0)
		})
	}
}

// forwarded puts so many tasks whose time has come into the queue and has a server's
// timers move them.
func (f *fleet) forwarded(t *testing.T, n int) {
	t.Helper()
	for range n {
		f.enqueue(t, asynq.ProcessIn(time.Hour))
	}
	for _, z := range f.rdb.ZRangeWithScores(t.Context(), "asynq:{"+f.queue+"}:scheduled", 0, -1).Val() {
		f.rdb.ZAdd(t.Context(), "asynq:{"+f.queue+"}:scheduled", redis.Z{Score: 1, Member: z.Member})
	}
	w := f.worker(t)
	defer w.stop()
	w.runTimers(t)
	if have := f.rdb.LLen(t.Context(), "asynq:{"+f.queue+"}:pending").Val(); have != int64(n) {
		t.Errorf("want %d pending, have %d", n, have)
	}
}

// Timers ring once for each task, up to a hundred: no more workers need waking.
func TestForwardRings(t *testing.T) {
	t.Parallel()
	for name, store := range stores() {
		for n, want := range map[int]int64{3: 3, 130: 100} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				t.Parallel()
				f := store(t)
				f.forwarded(t, n)
				f.wantRings(t, "forward", want)
			})
		}
	}
}

// A bell that cannot be rung, as something else is in its place, does not undo what it
// announces.
func TestRingOfABrokenBell(t *testing.T) {
	t.Parallel()
	for name, store := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := store(t).ringing()
			f.rdb.Set(t.Context(), f.bellKey(), "no list", 0)
			f.forwarded(t, 2)
			f.enqueue(t)
			if have := f.rdb.LLen(t.Context(), "asynq:{"+f.queue+"}:pending").Val(); have != 3 {
				t.Errorf("want 3 pending, have %d", have)
			}
		})
	}
}

// A Redis that is full refuses a task as it would without the bell, and loses none; and a
// task that is moved, which takes no memory, is moved though the bell finds none.
func TestRingWhenRedisIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newFleet(t, server.Addr).ringing()
	f.enqueue(t, asynq.TaskID("before"))
	f.enqueue(t, asynq.TaskID("known")) // the scripts are there
	full := func(bytes string) {
		if err := f.rdb.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	full("1")
	task := asynq.NewTask("order:audit", nil)
	if _, err := f.client.EnqueueContext(t.Context(), task, asynq.Queue(f.queue), asynq.TaskID("full")); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("want it refused, have %v", err)
	}
	full("0")
	f.wantRings(t, "two tasks and one refused", 2)
	if have := f.rdb.LLen(t.Context(), "asynq:{"+f.queue+"}:pending").Val(); have != 2 {
		t.Errorf("want 2 pending, have %d", have)
	}
}

// A task's id may hold anything, also what ends the name of the key of the pending tasks:
// the bell is that of its queue all the same.
func TestRingForAnyID(t *testing.T) {
	t.Parallel()
	for name, store := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := store(t).ringing()
			for _, id := range []string{"a}:pending", "{b}:pending", "asynq:{c}:pending", "größe", "x}"} {
				f.enqueue(t, asynq.TaskID(id))
				f.wantRings(t, id, 1)
				f.enqueue(t, asynq.TaskID(id+"}:pending"), asynq.ProcessIn(time.Hour))
				f.wantRings(t, id+", delayed", 0)
			}
			keys, err := f.rdb.Keys(t.Context(), "siding:{"+f.queue+"}*").Result()
			if err != nil || len(keys) != 0 {
				t.Errorf("want no other bell, have %v, %v", keys, err)
			}
		})
	}
}

// What is not asynq's passes through a ringing client as it is.
func TestRingingPassesOn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Shared(t).Addr)
	rdb := asynqredis.NewRinger(f.rdb)
	for _, keys := range [][]string{{"asynq:{" + f.queue + "}:active"}, {"asynq:{x"}, {}} {
		if have, err := rdb.Eval(t.Context(), "return {#KEYS, ARGV[1]}", keys, "one").Slice(); err != nil || have[0] != int64(len(keys)) || have[1] != "one" {
			t.Errorf("%v: want %d keys and the argument, have %v, %v", keys, len(keys), have, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rdb.Eval(ctx, "return 1", nil).Err(); err == nil {
		t.Error("want the error of the client")
	}
	f.wantRings(t, "others", 0)
}
