package inspect_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// A want is what Why has to say of a task. A verdict has to hold all the texts, in which {Q}, {R}, {ID},
// {H} and {HOST} stand for the queue, the resource, the task, its holder and a host of the bed.
type want struct {
	state    inspect.State
	position int
	trouble  bool
	wrong    []string
	clears   []string
	do       []string
	check    func(b *bed, e inspect.Explanation)
}

// runs has a job run until the test ends.
func runs(b *bed) (id, holder string) {
	b.Helper()
	b.serve()
	id, _ = b.running(0)
	return id, ""
}

// waits has a job wait for one that runs.
func waits(b *bed) (id, holder string) {
	b.Helper()
	holder, _ = runs(b)
	return b.waiting(1, 1)[0], holder
}

// revoke has an operator take the bed's lock.
func (b *bed) revoke() {
	b.Helper()
	_, err := queue.Revoke(b.Context(), b.rdb, queue.Revocation{Resource: b.resource, By: "ann", Reason: "stuck"})
	b.must(err)
}

// states are those that a task may be in. prepare returns the task, and the holder of its lock, if that is
// a task.
var states = map[string]struct {
	prepare func(b *bed) (id, holder string)
	want    want
}{
	"running": {
		runs,
		want{
			state: inspect.StateRunning, wrong: []string{"No: the task has run on "}, clears: []string{"when its handler returns"},
			do: []string{"`lockctl release --reason TEXT {R}`"},
			check: func(b *bed, e inspect.Explanation) {
				if host, _ := os.Hostname(); e.Worker == nil || e.Worker.PID != os.Getpid() || e.Worker.Host != host || e.Started.IsZero() {
					b.Errorf("want this process as the worker, have %+v since %v", e.Worker, e.Started)
				}
				if e.Lock.State != inspect.Held || e.Lock.Task == nil || *e.Lock.Task != e.Task || e.Lock.Left <= 0 || e.Lock.Fence == 0 {
					b.Errorf("want the lock held by the task, have %+v", e.Lock)
				}
				if left := time.Until(e.LeaseEnds); left < 8*time.Second || left > 16*time.Second {
					b.Errorf("want its lease, have one for %v", left)
				}
			},
		},
	},
	"resource like a flag": {
		func(b *bed) (string, string) {
			b.serve()
			b.resource = "-" + b.resource
			id, _ := b.running(0)
			return id, ""
		},
		want{state: inspect.StateRunning, wrong: []string{"No: the task has run on "}, do: []string{"`lockctl release --reason TEXT -- {R}`"}},
	},
	"unguarded task runs": {
		func(b *bed) (string, string) {
			b.serve()
			b.hold(7)
			id := b.enqueue(note{7})
			b.awaitRun(7)
			return id, ""
		},
		want{state: inspect.StateRunning, wrong: []string{"No: the task runs"}, check: func(b *bed, e inspect.Explanation) {
			if e.Resource != "" || e.Lock != nil {
				b.Errorf("want no resource, have %q and %+v", e.Resource, e.Lock)
			}
		}},
	},
	"waiting first": {
		waits,
		want{
			state: inspect.StateWaiting, position: 1, wrong: []string{"No: the task {H} on ", " has held {R} since "},
			clears: []string{"When the holder ends, the first waiter gets the lock at once. This task is the first."},
			do:     []string{"`lockctl why {H}`"},
			check: func(b *bed, e inspect.Explanation) {
				if e.Refusals != 1 || e.Waited <= 0 || time.Until(e.Next) < 59*time.Minute || !strings.HasPrefix(e.LastError, "waits for "+b.resource) || e.Failure != "" {
					b.Errorf("want one refusal, a wait and a time of the next look, have %+v", e)
				}
				if l := e.Lock; l.State != inspect.Held || l.Task.Queue != b.queue || l.Worker == nil || l.Gone || l.Since.IsZero() {
					b.Errorf("want the running holder, have %+v", l)
				}
			},
		},
	},
	"waiting tenth": {
		func(b *bed) (string, string) {
			b.serve()
			holder, _ := b.running(0)
			return b.waiting(1, 10)[9], holder
		},
		want{
			state: inspect.StateWaiting, position: 10, wrong: []string{"No: the task {H}"},
			clears: []string{"9 waiters are before this task"}, do: []string{"`lockctl why {H}`"},
		},
	},
	"waiting for a service": {
		func(b *bed) (string, string) {
			b.holder()
			b.serve()
			return b.waiting(1, 1)[0], ""
		},
		want{
			state: inspect.StateWaiting, position: 1, wrong: []string{"has held {R} since"}, clears: []string{"When the holder ends"},
			do: []string{"`lockctl show {R}`"},
			check: func(b *bed, e inspect.Explanation) {
				if l := e.Lock; l.Task != nil || l.Worker.PID != os.Getpid() || l.Gone {
					b.Errorf("want this process, which is no server, have %+v", l)
				}
			},
		},
	},
	"ready, and no slot is free": {
		func(b *bed) (string, string) {
			id := b.ready(1)[0]
			for range 3 {
				b.enqueue(note{8})
			}
			at := func(ago time.Duration) string { return us(time.Now().Add(-ago)) }
			b.do("ZADD", "siding:{"+b.queue+"}:ready", 1, "lock:a", at(40*time.Second), "lock:b", at(20*time.Second), "lock:c", at(-time.Hour), "lock:d")
			return id, ""
		},
		want{
			state: inspect.StateReady, position: 1, trouble: true, wrong: []string{
				"Yes: the lock has been free for the task for ", "no server of the queue {Q} has taken it", ": 3 resources and 3 new tasks are before it; at the pace so far its turn comes in about ",
			},
			clears: []string{"The next server of its queue with a free slot"}, do: []string{"Start more workers"},
			check: func(b *bed, e inspect.Explanation) {
				// Of the four that are ready three were taken in 40 s. That the first was held for long does not count.
				if turn := time.Duration(e.TurnIn); turn < 40*time.Second || turn > time.Minute {
					b.Errorf("want its turn in 40 s, have %v", turn)
				}
				b.pause()
				if turn := b.why(e.Task.ID).TurnIn; turn != 0 {
					b.Errorf("paused: want no estimate, have %v", turn)
				}
				b.must(b.operator.UnpauseQueue(b.queue))
				b.unguarded()
				b.awaitServers(2)
				if turn := b.why(e.Task.ID).TurnIn; turn != 0 {
					b.Errorf("a server that takes no locks: want no estimate, have %v", turn)
				}
				poll.Eventually(b, "no server, as each says again every 5 s that it lives", func() bool {
					all, err := b.inspector.Servers(b.Context())
					b.must(err)
					for _, s := range all {
						if slices.Contains(s.Queues, b.queue) {
							b.do("ZREM", "asynq:servers", fmt.Sprintf("asynq:servers:{%s:%d:%s}", s.Host, s.PID, s.ID))
						}
					}
					none := b.why(e.Task.ID)
					if none.Servers == 0 && none.TurnIn != 0 {
						b.Errorf("no server: want no estimate, have %v", none.TurnIn)
					}
					return none.Servers == 0
				})
				if ago := time.Since(time.UnixMicro(e.Lock.Fence)); ago < 0 || ago > time.Minute {
					b.Errorf("want a fence that tells when the lock was taken last, as the Locks pages say that, have %v ago", ago)
				}
				if e.Lock.State != inspect.Free || e.Lock.Unserved < inspect.Duration(3*time.Second) || e.Lock.Ready.IsZero() {
					b.Errorf("want a free lock that nobody takes, have %+v", e.Lock)
				}
			},
		},
	},
	"behind a ready one": {
		func(b *bed) (string, string) { return b.ready(2)[1], "" },
		want{
			state: inspect.StateWaiting, position: 2, wrong: []string{"No: the lock is free for those who came before."},
			clears: []string{"The first waiter gets the lock as soon as", "This task is the second."}, do: []string{"`lockctl why {ID}`"},
		},
	},
	"orphaned, without a resource": {
		func(b *bed) (string, string) {
			b.serve(unrecovered)
			b.hold(7)
			id := b.enqueue(note{7})
			b.awaitRun(7)
			b.silence(id)
			return id, ""
		},
		want{
			state: inspect.StateOrphaned, trouble: true, wrong: []string{"dead or cut off"}, do: []string{"see whether that worker lives"},
			clears: []string{"The task uses a retry by "},
		},
	},
	"lock elsewhere, busy there": {
		func(b *bed) (string, string) {
			memory := locktest.NewMemory()
			b.holdIn(memory)
			b.serve(queue.ServerConfig{Store: memory})
			return b.job(1), ""
		},
		want{
			state: inspect.StateWaiting, position: 1, wrong: []string{"did not get the lock from its store: "}, clears: []string{"asks again about once a second"},
			do: []string{"find the holder there"},
		},
	},
	"parked": {
		func(b *bed) (string, string) {
			b.serve()
			b.inner[1] = func(context.Context) error { return fmt.Errorf("the second: %w", lock.ErrBusy) }
			return b.job(1), ""
		},
		want{
			state: inspect.StateParked, wrong: []string{"No: the task comes again by itself: the second: "},
			clears: []string{"The task comes again at "}, do: []string{"`lockctl run --queue={Q} {ID}`"},
		},
	},
	"own back-off": {
		func(b *bed) (string, string) {
			b.serve()
			return b.job(-1, queue.Options{Retries: 5}), ""
		},
		want{
			state: inspect.StateRetrying, trouble: true, wrong: []string{"Yes: the task has failed: boom."},
			clears: []string{"It runs again at ", "as retry 1 of 5."}, do: []string{"`lockctl run --queue={Q} {ID}`"},
			check: func(b *bed, e inspect.Explanation) {
				if e.Retried != 1 || e.Retries != 5 || e.Failure != "boom" || e.Next.IsZero() || e.FailedAt.IsZero() || e.Position != 0 {
					b.Errorf("want a failure and the next time, have %+v", e)
				}
			},
		},
	},
	"own back-off, then waiting": {
		func(b *bed) (string, string) {
			b.serve()
			id := b.job(-1)
			b.awaitWhy(id, inspect.StateRetrying)
			holder, _ := b.running(0)
			b.must(b.operator.RunTask(b.queue, id))
			return id, holder
		},
		want{
			state: inspect.StateWaiting, position: 1, wrong: []string{"No: the task {H}"},
			check: func(b *bed, e inspect.Explanation) {
				if e.Failure != "boom" || e.Retried != 1 {
					b.Errorf("want its own failure besides the reason, have %+v", e)
				}
			},
		},
	},
	"holder cut off": {
		func(b *bed) (string, string) {
			b.serve(unrecovered)
			holder, _ := b.running(0)
			id := b.waiting(1, 2)[1]
			b.silence(holder)
			return id, holder
		},
		want{
			state: inspect.StateWaiting, position: 2, trouble: true,
			wrong: []string{"the worker of the holder, the task {H} on ", "is dead or cut off from Redis, and Redis cannot tell which"},
			clears: []string{
				"The lock expires at ", "This task is the second.", "The task of the holder is the first for its lock again by ", "as crash 1 of 3",
			},
			do: []string{"Wait, as the holder may still trust its lock"},
			check: func(b *bed, e inspect.Explanation) {
				if !e.Lock.Gone {
					b.Errorf("want a holder that is gone, have %+v", e.Lock)
				}
			},
		},
	},
	"orphaned": {
		func(b *bed) (string, string) {
			b.serve(unrecovered)
			id, _ := b.running(0)
			b.silence(id)
			return id, ""
		},
		want{
			state: inspect.StateOrphaned, trouble: true, wrong: []string{"Yes: its worker ", "dead or cut off"},
			clears: []string{"The lock expires at ", "The task is the first for its lock again by ", "as crash 1 of 3 that use no retry"}, do: []string{"Wait, as the worker may still trust its lock"},
		},
	},
	"crashed three times": {
		func(b *bed) (string, string) {
			b.serve(unrecovered)
			id, _ := b.running(0)
			b.do("hset", b.taskKey(id), "siding_crashes", 3)
			b.silence(id)
			return id, ""
		},
		want{
			state: inspect.StateOrphaned, trouble: true, wrong: []string{"Before, its worker died or was cut off 3 times; 3 such crashes use no retry."},
			clears: []string{"The task uses a retry by ", "and comes again after its delay."}, do: []string{"Wait, as the worker may still trust its lock"},
			check: func(b *bed, e inspect.Explanation) {
				if e.Crashes != 3 || e.Tolerated != 3 {
					b.Errorf("want 3 crashes of 3, have %d of %d", e.Crashes, e.Tolerated)
				}
			},
		},
	},
	"crashed three times, no retry left": {
		func(b *bed) (string, string) {
			b.serve(unrecovered)
			b.hold(0)
			id := b.job(0, queue.Options{Retries: queue.NoRetries})
			b.awaitRun(0)
			b.do("hset", b.taskKey(id), "siding_crashes", 3)
			b.silence(id)
			return id, ""
		},
		want{
			state: inspect.StateOrphaned, trouble: true, clears: []string{"The task is archived by ", "as it has no retry left"},
		},
	},
	"crashed and runs again": {
		func(b *bed) (string, string) {
			id, _ := runs(b)
			b.do("hset", b.taskKey(id), "siding_crashes", 1)
			return id, ""
		},
		want{state: inspect.StateRunning, wrong: []string{"No: the task has run on ", "Before, its worker died or was cut off once"}},
	},
	"queue paused, waiting": {
		func(b *bed) (string, string) {
			id, holder := waits(b)
			b.pause()
			return id, holder
		},
		want{
			state: inspect.StateWaiting, position: 1, trouble: true, wrong: []string{"Yes: the queue {Q} is paused."},
			clears: []string{"somebody has to resume the queue", "keeps its position"}, do: []string{"`lockctl queue resume {Q}`"},
			check: func(b *bed, e inspect.Explanation) {
				if !e.Paused || e.Lock.Paused != 1 || e.Lock.Waiting != 1 || e.Waited <= 0 {
					b.Errorf("want a paused queue, have %+v", e)
				}
			},
		},
	},
	"queue paused, pending": {
		func(b *bed) (string, string) {
			b.serve()
			id := b.job(-1, queue.Options{Delay: time.Hour})
			b.pause()
			b.must(b.operator.RunTask(b.queue, id))
			return id, ""
		},
		want{state: inspect.StatePending, trouble: true, wrong: []string{"Yes: the queue {Q} is paused."}, do: []string{"`lockctl queue resume {Q}`"}},
	},
	"no server": {
		func(b *bed) (string, string) { return b.job(0), "" },
		want{
			state: inspect.StatePending, trouble: true, wrong: []string{"Yes: no server serves the queue {Q}."},
			clears: []string{"Not before a server of that queue starts"}, do: []string{"Start a worker that serves {Q}; if Redis was just away, look again"},
			check: func(b *bed, e inspect.Explanation) {
				if e.Pending != 1 || e.Servers != 0 || e.Since.IsZero() {
					b.Errorf("want the next of a queue without servers, have %+v", e)
				}
			},
		},
	},
	"pending": {
		func(b *bed) (string, string) {
			b.serve(queue.ServerConfig{Asynq: asynq.Config{Concurrency: 1}})
			b.running(0)
			b.job(1)
			return b.job(2), ""
		},
		want{
			state: inspect.StatePending, wrong: []string{"No: the task waits for a worker."}, clears: []string{"once those before it are taken, 1 in all.", "It then waits for {R}"},
			check: func(b *bed, e inspect.Explanation) {
				if e.Pending != 2 || e.PendingMore != 0 {
					b.Errorf("want the second, have %d and %d", e.Pending, e.PendingMore)
				}
			},
		},
	},
	"pending beside an unguarded server": {
		func(b *bed) (string, string) {
			b.serve(queue.ServerConfig{Asynq: asynq.Config{Concurrency: 1}})
			b.unguarded()
			b.awaitServers(2)
			b.hold(0)
			for n := range 2 { // one for each server
				id := b.enqueue(job{b.resource + strconv.Itoa(n), 0})
				poll.Eventually(b, "an active task", func() bool { return b.why(id).State != inspect.StatePending })
			}
			return b.job(1), ""
		},
		want{
			state: inspect.StatePending, trouble: true, wrong: []string{"Yes: 1 of 2 servers of the queue {Q} takes no locks, and runs tasks without their locks."}, do: []string{"`lockctl queue pause --reason TEXT {Q}`"},
		},
	},
	"waiting, with its resource in the payload only": {
		func(b *bed) (string, string) {
			b.holder()
			b.serve(queue.ServerConfig{Resources: map[string]queue.ResourceFunc{
				"test:note": func([]byte) (string, error) { return b.resource, nil },
			}})
			return b.enqueue(note{1}), ""
		},
		want{
			state: inspect.StateWaiting, position: 1, wrong: []string{" has held {R} since "},
			check: func(b *bed, e inspect.Explanation) {
				if e.Resource != b.resource {
					b.Errorf("want the resource that it waits for, have %q", e.Resource)
				}
			},
		},
	},
	"foreign holder": {
		func(b *bed) (string, string) {
			b.do("set", b.lockKey(), "8f3a60", "px", 60000)
			b.serve()
			return b.waiting(1, 1)[0], ""
		},
		want{
			state: inspect.StateWaiting, position: 1, wrong: []string{"a program that is not Siding's holds {R}"},
			clears: []string{"it expires at ", "This task is the first."}, do: []string{"`lockctl release --reason TEXT {R}`"},
			check: func(b *bed, e inspect.Explanation) {
				if e.Lock.State != inspect.Foreign || e.Lock.Holder != "another program" || !e.Lock.Since.IsZero() || e.Lock.Left <= 0 {
					b.Errorf("want a foreign holder, have %+v", e.Lock)
				}
			},
		},
	},
	"foreign holder for ever": {
		func(b *bed) (string, string) {
			b.do("set", b.lockKey(), "8f3a60")
			b.Cleanup(func() { b.rdb.Del(context.WithoutCancel(b.Context()), b.lockKey()) })
			b.serve()
			return b.waiting(1, 1)[0], ""
		},
		want{
			state: inspect.StateWaiting, position: 1, trouble: true, wrong: []string{"holds {R} without a TTL"}, clears: []string{"Not by itself"},
			do: []string{"`lockctl release --reason TEXT {R}`"},
		},
	},
	"lock of another type": {
		func(b *bed) (string, string) {
			b.do("rpush", b.lockKey(), "x")
			b.Cleanup(func() { b.rdb.Del(context.WithoutCancel(b.Context()), b.lockKey()) })
			return b.job(1), ""
		},
		want{state: inspect.StatePending, trouble: true, check: func(b *bed, e inspect.Explanation) {
			if e.Lock.State != inspect.Foreign || !e.Lock.Endless {
				b.Errorf("want a foreign holder, have %+v", e.Lock)
			}
		}},
	},
	"lock elsewhere": {
		func(b *bed) (string, string) {
			b.serve(queue.ServerConfig{Store: locktest.NewMemory()})
			holder, _ := b.running(0)
			return b.waiting(1, 1)[0], holder
		},
		want{
			state: inspect.StateWaiting, position: 1, wrong: []string{"No: the task {H} on ", "has held {R}"}, do: []string{"`lockctl why {H}`"},
			check: func(b *bed, e inspect.Explanation) {
				if !e.Lock.Elsewhere || e.Lock.State != inspect.Held || e.Lock.Waiting != 1 {
					b.Errorf("want a lock elsewhere, have %+v", e.Lock)
				}
			},
		},
	},
	"lock elsewhere, running": {
		func(b *bed) (string, string) {
			b.serve(queue.ServerConfig{Store: locktest.NewMemory()})
			id, _ := b.running(0)
			return id, ""
		},
		want{state: inspect.StateRunning, wrong: []string{"No: the task has run on "}, check: func(b *bed, e inspect.Explanation) {
			if !e.Lock.Elsewhere || e.Worker == nil {
				b.Errorf("want a lock elsewhere and a worker, have %+v", e)
			}
		}},
	},
	"lost": {
		func(b *bed) (string, string) {
			id, _ := runs(b)
			b.do("set", b.lockKey(), "siding:1:thief", "px", 60000)
			b.worker(id)
			return id, ""
		},
		want{state: inspect.StateLost, trouble: true, wrong: []string{"Yes: the task has lost its lock while it ran on "}, do: []string{"See why the worker could not renew its lock; if the handler", "`lockctl show {R}`"}},
	},
	"revoked": {
		func(b *bed) (string, string) {
			id, _ := runs(b)
			b.do("hset", "{lock:"+b.resource+"}:revoked", "at", us(time.Now()), "by", "ann", "reason", "stuck", "holder", id+" on x (pid 1)")
			b.do("set", b.lockKey(), "siding:1:thief", "px", 60000)
			b.worker(id)
			return id, ""
		},
		want{
			state: inspect.StateLost, trouble: true, wrong: []string{"the operator ann took the lock from it: stuck."},
			do: []string{"Wait; if the handler does not return, restart its worker.", "`lockctl show {R}`"},
		},
	},
	"lock revoked, handler goes on": {
		func(b *bed) (string, string) {
			id, _ := runs(b)
			b.revoke()
			return id, ""
		},
		want{
			state: inspect.StateRunning, wrong: []string{"No: the task has run on ", "the operator ann took the lock from it: stuck."},
			clears: []string{"the lock is free when its handler returns, and at "}, do: []string{"`lockctl show {R}`"},
		},
	},
	"waiting for a revoked lock": {
		func(b *bed) (string, string) {
			id, holder := waits(b)
			b.revoke()
			return id, holder
		},
		want{
			state: inspect.StateWaiting, position: 1, wrong: []string{"No: an operator takes {R} from the task {H}"},
			clears: []string{"when the holder returns, and at "}, do: []string{"`lockctl show {R}`"},
			check: func(b *bed, e inspect.Explanation) {
				if e.Lock.State != inspect.Revoked || e.Lock.Revoked == nil || e.Lock.Revoked.By != "ann" {
					b.Errorf("want a revocation, have %+v", e.Lock)
				}
			},
		},
	},
	"starting": {
		func(b *bed) (string, string) {
			b.holder()
			id := b.job(0)
			b.do("rpoplpush", b.key("pending"), b.key("active"))
			b.do("zadd", b.key("lease"), time.Now().Add(30*time.Second).Unix(), id)
			b.do("hset", b.taskKey(id), "state", "active")
			return id, ""
		},
		want{state: inspect.StateStarting, wrong: []string{"No: a worker has taken the task, and asks for its lock."}, do: []string{"`lockctl why {ID}`"}},
	},
	"unguarded server": {
		func(b *bed) (string, string) {
			entered := b.unguarded()
			id := b.job(0)
			<-entered
			b.awaitServers(1)
			b.worker(id)
			return id, ""
		},
		want{
			state: inspect.StateRunning, trouble: true, wrong: []string{"takes no locks, and runs the task without its lock"},
			do: []string{"`lockctl queue pause --reason TEXT {Q}`"},
		},
	},
	"scheduled": {
		func(b *bed) (string, string) {
			b.serve()
			b.awaitServers(1)
			return b.job(0, queue.Options{Delay: time.Hour}), ""
		},
		want{
			state: inspect.StateScheduled, wrong: []string{"No: its client has chosen a later time."}, clears: []string{"(in 60 min)."},
			do: []string{"`lockctl run --queue={Q} {ID}`"},
		},
	},
	"archived": {
		func(b *bed) (string, string) {
			b.serve()
			id := b.job(-1, queue.Options{Retries: queue.NoRetries})
			b.awaitWhy(id, inspect.StateArchived)
			b.running(0)
			return id, ""
		},
		want{
			state: inspect.StateArchived, trouble: true, wrong: []string{"Yes: the task is archived: boom."}, clears: []string{"does not run again by itself"},
			do: []string{"`lockctl run --queue={Q} {ID}`"}, check: wantNoLock,
		},
	},
	"archived by an operator": {
		func(b *bed) (string, string) {
			id := b.job(0)
			b.must(b.operator.ArchiveTask(b.queue, id))
			return id, ""
		},
		want{state: inspect.StateArchived, trouble: true, wrong: []string{"an operator has archived it"}},
	},
	"completed": {
		func(b *bed) (string, string) {
			b.serve()
			id := b.job(1, queue.Options{Retention: time.Hour})
			b.awaitWhy(id, inspect.StateCompleted)
			b.running(0)
			return id, ""
		},
		want{state: inspect.StateCompleted, wrong: []string{"No: the task has succeeded."}, clears: []string{"It is deleted at "}, check: wantNoLock},
	},
	"aggregating": {
		func(b *bed) (string, string) {
			client := asynq.NewClientFromRedisClient(b.rdb)
			info, err := client.EnqueueContext(b.Context(), asynq.NewTask("test:note", nil), asynq.Queue(b.queue), asynq.Group("g"))
			b.must(err)
			return info.ID, ""
		},
		want{state: inspect.StateAggregating, wrong: []string{"waits for others of its group"}},
	},
	"waiting, a server takes no locks": {
		func(b *bed) (string, string) {
			id, holder := waits(b)
			b.unguarded()
			b.awaitServers(2)
			return id, holder
		},
		want{
			state: inspect.StateWaiting, position: 1, trouble: true, wrong: []string{"Yes: 1 of 2 servers of the queue {Q} takes no locks"},
			clears: []string{"any server of the queue may take the task"}, do: []string{"`lockctl queue pause --reason TEXT {Q}`", "`lockctl doctor`"},
		},
	},
	"no guarded server": {
		func(b *bed) (string, string) {
			b.do("set", b.lockKey(), "8f3a60", "px", 60000)
			s := b.serve()
			id := b.waiting(1, 1)[0]
			b.must(s.Shutdown(b.Context()))
			b.awaitServers(0)
			b.unguarded()
			b.awaitServers(1)
			return id, ""
		},
		want{
			state: inspect.StateWaiting, position: 1, trouble: true, wrong: []string{"no server of the queue {Q} takes locks"},
			clears: []string{"Not before a guarded server"}, do: []string{"Start a guarded worker of {Q}"},
		},
	},
	"lost position": {
		func(b *bed) (string, string) {
			b.do("set", b.lockKey(), "8f3a60", "px", 60000)
			s := b.serve()
			id := b.waiting(1, 1)[0]
			b.must(s.Shutdown(b.Context()))
			b.alive()
			b.do("zrem", "siding:{"+b.queue+"}:line:"+b.lockKey(), id)
			return id, ""
		},
		want{state: inspect.StateWaiting, trouble: true, wrong: []string{"has lost its position"}, clears: []string{"A server puts it back"}},
	},
	"held for a task that no queue has": {
		func(b *bed) (string, string) {
			b.serve()
			b.do("set", b.lockKey(), "siding:1:gone on "+b.host+" (pid 1)", "px", 60000)
			return b.waiting(1, 1)[0], ""
		},
		want{
			state: inspect.StateWaiting, position: 1, wrong: []string{"No: gone on {HOST} (pid 1) holds {R}."},
			do: []string{"`lockctl show {R}`"},
			check: func(b *bed, e inspect.Explanation) {
				if e.Lock.Task != nil || e.Lock.Gone {
					b.Errorf("want a holder that is no task, have %+v", e.Lock)
				}
			},
		},
	},
	"reserved for a goroutine": {
		func(b *bed) (string, string) {
			b.do("set", b.lockKey(), "siding-reserved:1:"+us(time.Now())+":siding-goroutine:x:1", "px", 60000)
			b.serve()
			return b.waiting(1, 1)[0], ""
		},
		want{
			state: inspect.StateWaiting, position: 1, wrong: []string{"reserved for a goroutine"}, clears: []string{"its reservation ends at "},
			do: []string{"`lockctl show {R}`"},
		},
	},
}

// wantNoLock wants nothing said of who has the lock of a resource that the task does not need any more.
func wantNoLock(b *bed, e inspect.Explanation) {
	b.Helper()
	if e.Resource != b.resource || e.Lock != nil {
		b.Errorf("want the resource without its lock, have %q, %+v", e.Resource, e.Lock)
	}
}

// The times in a verdict are in the zone of the settings.
func TestZone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.job(0, queue.Options{Delay: 48 * time.Hour})
	for _, zone := range []*time.Location{nil, time.FixedZone("XYZ", 5*3600)} {
		i, err := inspect.New(b.rdb, inspect.Config{Zone: zone})
		must(t, err)
		e, err := i.Why(t.Context(), "", id)
		must(t, err)
		if want := e.Next.In(cmp.Or(zone, time.UTC)).Format("at 2006-01-02 15:04:05 MST") + " (in 48 h)"; !strings.Contains(e.Verdict.Clears, want) || e.Next.Location() != time.UTC {
			t.Errorf("want %q, have %q with %v", want, e.Verdict.Clears, e.Next)
		}
	}
}

func TestWhy(t *testing.T) {
	t.Parallel()
	for name, tt := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			id, holder := tt.prepare(b)
			e := b.awaitWhy(id, tt.want.state)
			wrong := tt.want.differs(b, e, holder)
			if tt.want.position > 0 { // a task that is being parked is in line first
				_ = poll.Until(t.Context(), func() error {
					e = b.why(id)
					wrong = tt.want.differs(b, e, holder)
					return errors.Join(wrong...)
				})
			}
			for _, err := range wrong {
				t.Error(err)
			}
			if tt.want.check != nil {
				tt.want.check(b, e)
			}
			t.Logf("%s | %s | %s", e.Verdict.Wrong, e.Verdict.Clears, e.Verdict.Do)
			b.wantNoToken(e)
		})
	}
}

// differs returns where e is not as wanted.
func (w want) differs(b *bed, e inspect.Explanation, holder string) (wrong []error) {
	if e.State != w.state || e.Position != w.position || e.Verdict.Trouble != w.trouble {
		wrong = append(wrong, fmt.Errorf("want %s, position %d, trouble %v, have %+v", w.state, w.position, w.trouble, e))
	}
	if holder != "" && (e.Lock.Task == nil || e.Lock.Task.ID != holder) {
		wrong = append(wrong, fmt.Errorf("want the holder %s, have %+v", holder, e.Lock))
	}
	names := strings.NewReplacer("{Q}", b.queue, "{R}", b.resource, "{ID}", e.Task.ID, "{H}", holder, "{HOST}", b.host)
	for _, part := range []struct {
		what string
		have string
		want []string
	}{{"wrong", e.Verdict.Wrong, w.wrong}, {"clears", e.Verdict.Clears, w.clears}, {"do", e.Verdict.Do, w.do}} {
		if part.have == "" {
			wrong = append(wrong, fmt.Errorf("%s: want a sentence", part.what))
		}
		for _, text := range part.want {
			if text = names.Replace(text); !strings.Contains(part.have, text) {
				wrong = append(wrong, fmt.Errorf("%s: want %q in it, have %q", part.what, text, part.have))
			}
		}
	}
	return wrong
}

// The priority of a waiting task is shown, and its head start is no part of its wait.
func TestWhyWithAPriority(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve()
	b.holder()
	id := b.enqueue(job{Res: b.resource, N: 1}, queue.Options{Priority: 4, Policy: &queue.Policy{MaxWait: time.Hour}})
	e := b.awaitWhy(id, inspect.StateWaiting)
	if e.Priority != 4 || e.Policy != `{"max_wait":"1h0m0s"}` || e.Waited > inspect.Duration(30*time.Second) || time.Since(e.Since) > 30*time.Second {
		t.Errorf("want its priority, its policy, and how long it has waited, have %+v", e)
	}
}
