package hook_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// notifying returns a fleet whose client and inspector notify.
func (f *fleet) notifying() *fleet {
	g := *f
	rdb := hook.NewNotifyingConn(f.rdb)
	g.client, g.inspector = asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	return &g
}

func (f *fleet) notifyKey() string { return "siding:{" + f.queue + "}:notify" }

// notifications returns the length of the fleet's notify list, and deletes the list. A list that
// has elements expires.
func (f *fleet) notifications(t *testing.T) int64 {
	t.Helper()
	n, err := f.rdb.LLen(t.Context(), f.notifyKey()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if left := f.rdb.TTL(t.Context(), f.notifyKey()).Val(); n > 0 && (left <= 0 || left > time.Hour) {
		t.Errorf("want a list that expires within the hour, have %v left", left)
	}
	f.rdb.Del(t.Context(), f.notifyKey())
	return n
}

// wantNotified compares that length.
func (f *fleet) wantNotified(t *testing.T, when string, want int64) {
	t.Helper()
	if have := f.notifications(t); have != want {
		t.Errorf("%s: want %d notifications, have %d", when, want, have)
	}
}

// Each call that puts a task into pending notifies once for the task. No other call notifies.
func TestNotifies(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		f = f.notifying()
		f.enqueue(t, asynq.TaskID("one"))
		f.wantNotified(t, "enqueue", 1)
		task := asynq.NewTask("order:audit", []byte(`{"order":"7"}`))
		if _, err := f.client.EnqueueContext(t.Context(), task, asynq.Queue(f.queue), asynq.TaskID("one")); err == nil {
			t.Error("want the second of its id rejected")
		}
		f.wantNotified(t, "a rejected enqueue", 0)
		f.enqueue(t, asynq.Unique(time.Hour))
		f.wantNotified(t, "a unique one", 1)
		if _, err := f.client.EnqueueContext(t.Context(), task, asynq.Queue(f.queue), asynq.Unique(time.Hour)); err == nil {
			t.Error("want the second of its kind rejected")
		}
		f.wantNotified(t, "a rejected unique one", 0)
		f.enqueue(t, asynq.TaskID("later"), asynq.ProcessIn(time.Hour))
		f.wantNotified(t, "a delayed one", 0)
		if err := f.inspector.RunTask(f.queue, "later"); err != nil {
			t.Fatal(err)
		}
		f.wantNotified(t, "a task that an operator runs", 1)
		if tasks, err := f.inspector.ListPendingTasks(f.queue); err != nil || len(tasks) != 3 {
			t.Errorf("want 3 pending, have %v, %v", tasks, err)
		}
		if _, err := f.inspector.GetQueueInfo(f.queue); err != nil {
			t.Error(err)
		}
		f.wantNotified(t, "a look", 0)
	})
}

// forwarded enqueues so many tasks whose time has come, and has a server's forwarder move them.
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

// The forwarder notifies once for each task, up to a hundred. No more workers need waking.
func TestForwardNotifies(t *testing.T) {
	t.Parallel()
	for name, store := range stores() {
		for n, want := range map[int]int64{3: 3, 130: 100} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				t.Parallel()
				f := store(t)
				f.forwarded(t, n)
				f.wantNotified(t, "forward", want)
			})
		}
	}
}

// A notify list of another type does not undo what the scripts do to the tasks.
func TestBrokenNotifyList(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		f = f.notifying()
		f.rdb.Set(t.Context(), f.notifyKey(), "no list", 0)
		f.forwarded(t, 2)
		f.enqueue(t)
		if have := f.rdb.LLen(t.Context(), "asynq:{"+f.queue+"}:pending").Val(); have != 3 {
			t.Errorf("want 3 pending, have %d", have)
		}
	})
}

// A full Redis rejects a task as it does without the notify list, and loses none.
func TestNotifyWhenRedisIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newFleet(t, server.Addr).notifying()
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
		t.Errorf("want it rejected, have %v", err)
	}
	full("0")
	f.wantNotified(t, "two tasks and one rejected", 2)
	if have := f.rdb.LLen(t.Context(), "asynq:{"+f.queue+"}:pending").Val(); have != 2 {
		t.Errorf("want 2 pending, have %d", have)
	}
}

// A task's id may hold anything, also the end of the name of the key of pending tasks. The call
// still notifies the task's queue.
func TestNotifyForAnyID(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		f = f.notifying()
		for _, id := range []string{"a}:pending", "{b}:pending", "asynq:{c}:pending", "größe", "x}"} {
			f.enqueue(t, asynq.TaskID(id))
			f.wantNotified(t, id, 1)
			f.enqueue(t, asynq.TaskID(id+"}:pending"), asynq.ProcessIn(time.Hour))
			f.wantNotified(t, id+", delayed", 0)
		}
		keys, err := f.rdb.Keys(t.Context(), "siding:{"+f.queue+"}*").Result()
		if err != nil || len(keys) != 0 {
			t.Errorf("want no other list, have %v, %v", keys, err)
		}
	})
}

// A call that is not asynq's passes through a NotifyingConn as it is.
func TestNotifyingConnPassesOn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Shared(t).Addr)
	rdb := hook.NewNotifyingConn(f.rdb)
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
	f.wantNotified(t, "others", 0)
}
