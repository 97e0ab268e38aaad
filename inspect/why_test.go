package inspect_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// A want is what Why has to say of the task that prepare returns. A sentence of the verdict has to hold all parts of its text, with
// "…" between two, in which {Q}, {R}, {ID}, {H} and {HOST} stand for the queue, the resource, the task, the job that runs, which
// has to be the holder then, and a host of the bed.
type want struct {
	prepare           func(b *bed) (id string)
	state             inspect.State
	position          int
	trouble           bool
	wrong, clears, do string
	check             func(b *bed, e inspect.Explanation) bool
}

// runs has a job run until the test ends.
func runs(b *bed) (id string) {
	b.Helper()
	b.serve()
	return b.running(0)
}

// waits has a job wait for one that runs.
func waits(b *bed) (id string) {
	b.Helper()
	runs(b)
	return b.waiting(1, 1)[0]
}

// orphaned has a job run whose lease ends after so many crashes.
func orphaned(crashes int, opts ...queue.Options) func(b *bed) (id string) {
	return func(b *bed) string {
		b.Helper()
		b.serve(unrecovered)
		id := b.running(0, opts...)
		b.do("hset", b.taskKey(id), "siding_crashes", crashes)
		b.silence(id)
		return id
	}
}

// revoke has an operator take the bed's lock.
func (b *bed) revoke() {
	b.Helper()
	expect.OK(b, expect.Err(queue.Revoke(b.Context(), b.rdb, queue.Revocation{Resource: b.resource, By: "ann", Reason: "stuck"})))
}

// states are those that a task may be in.
var states = map[string]want{
	"running": {
		prepare: runs, state: inspect.StateRunning, wrong: "No: the task has run on ", clears: "when its handler returns",
		do: "`lockctl release --reason TEXT {R}`",
		check: func(_ *bed, e inspect.Explanation) bool {
			host, _ := os.Hostname()
			l, left := e.Lock, time.Until(e.LeaseEnds)
			return e.Worker != nil && *e.Worker == inspect.Worker{Host: host, PID: os.Getpid()} && !e.Started.IsZero() && left > 8*time.Second && left < 16*time.Second &&
				l.State == inspect.Held && l.Task != nil && *l.Task == e.Task && l.Left > 0 && l.Fence != 0
		},
	},
	"resource like a flag": {
		prepare: func(b *bed) string {
			b.serve()
			b.resource = "-" + b.resource
			return b.running(0)
		},
		state: inspect.StateRunning, wrong: "No: the task has run on ", do: "`lockctl release --reason TEXT -- {R}`",
	},
	"unguarded task runs": {
		prepare: func(b *bed) string {
			b.serve()
			return b.runningNote()
		},
		state: inspect.StateRunning, wrong: "No: the task runs",
		check: func(_ *bed, e inspect.Explanation) bool { return e.Resource == "" && e.Lock == nil },
	},
	"waiting first": {
		prepare: waits, state: inspect.StateWaiting, position: 1, wrong: "No: the task {H} on … has held {R} since ",
		clears: "When the holder ends, the first waiter gets the lock at once. This task is the first.", do: "`lockctl why {H}`",
		check: func(b *bed, e inspect.Explanation) bool {
			l := e.Lock
			return e.Parks == 1 && e.Waited > 0 && time.Until(e.Next) > 59*time.Minute && strings.HasPrefix(e.LastError, "waits for "+b.resource) && e.Failure == "" &&
				l.State == inspect.Held && l.Task.Queue == b.queue && l.Worker != nil && !l.Gone && !l.Since.IsZero()
		},
	},
	"waiting tenth": {
		prepare: func(b *bed) string {
			b.serve()
			b.running(0)
			return b.waiting(1, 10)[9]
		},
		state: inspect.StateWaiting, position: 10, wrong: "No: the task {H}", clears: "9 waiters are before this task", do: "`lockctl why {H}`",
	},
	"waiting for a service": {
		prepare: func(b *bed) string {
			b.holder()
			b.serve()
			return b.waiting(1, 1)[0]
		},
		state: inspect.StateWaiting, position: 1, wrong: "has held {R} since", clears: "When the holder ends", do: "`lockctl show {R}`",
		check: func(_ *bed, e inspect.Explanation) bool {
			return e.Lock.Task == nil && e.Lock.Worker.PID == os.Getpid() && !e.Lock.Gone
		},
	},
	"ready, and no slot is free": {
		prepare: func(b *bed) string {
			id := b.ready(1)[0]
			for range 3 {
				b.enqueue(note{8})
			}
			at := func(ago time.Duration) string { return us(time.Now().Add(-ago)) }
			b.do("ZADD", "siding:{"+b.queue+"}:ready", 1, "lock:a", at(40*time.Second), "lock:b", at(20*time.Second), "lock:c", at(-time.Hour), "lock:d")
			return id
		},
		state: inspect.StateReady, position: 1, trouble: true,
		wrong:  "Yes: the lock has been free for the task for …no server of the queue {Q} has taken it…: 3 resources and 3 new tasks are before it.",
		clears: "The next server of its queue with a free slot", do: "Start more workers",
		check: func(b *bed, e inspect.Explanation) bool {
			// The fence tells when the lock was taken last, as the Locks pages say that.
			ago := time.Since(time.UnixMicro(e.Lock.Fence))
			return ago > 0 && ago < time.Minute && e.Lock.State == inspect.Free && e.Lock.Unserved >= inspect.Duration(3*time.Second) && !e.Lock.Ready.IsZero()
		},
	},
	"behind a ready one": {
		prepare: func(b *bed) string { return b.ready(2)[1] }, state: inspect.StateWaiting, position: 2,
		wrong: "No: the lock is free for those who came before.", clears: "The first waiter gets the lock as soon as…This task is the second.",
		do: "`lockctl why {ID}`",
	},
	"orphaned, without a resource": {
		prepare: func(b *bed) string {
			b.serve(unrecovered)
			id := b.runningNote()
			b.silence(id)
			return id
		},
		state: inspect.StateOrphaned, trouble: true, wrong: "dead or cut off", do: "see whether that worker lives",
		clears: "The task uses a retry by ",
	},
	"lock elsewhere, busy there": {
		prepare: func(b *bed) string {
			memory := locktest.NewMemory()
			b.holdIn(memory)
			b.serve(queue.ServerConfig{Store: memory})
			return b.job(1)
		},
		state: inspect.StateWaiting, position: 1, wrong: "did not get the lock from its store: ", clears: "asks again about once a second",
		do: "find the holder there",
	},
	"snoozed": {
		prepare: func(b *bed) string {
			b.serve()
			b.inner[1] = func(context.Context) error { return fmt.Errorf("the second: %w", lock.ErrBusy) }
			return b.job(1)
		},
		state: inspect.StateSnoozed, wrong: "No: the task comes again by itself: the second: ", clears: "The task comes again at ",
		do: "`lockctl run --queue={Q} {ID}`",
	},
	"key of a wrong type": {
		prepare: func(b *bed) string {
			b.do("SET", "{"+b.lockKey()+"}:starts", "another type")
			b.serve(limited(1, lock.Rate{Starts: 1, Period: time.Minute}))
			return b.job(1)
		},
		state: inspect.StateSnoozed, trouble: true, wrong: "Yes: nothing says why the task waits: a key of its resource has a wrong type", clears: "The task comes again at ",
		do: "logs of the queue's servers…`lockctl run --queue={Q} {ID}`",
	},
	"cannot be read": {
		prepare: func(b *bed) string {
			b.serve()
			id := b.job(-1)
			b.awaitWhy(id, inspect.StateRetrying)
			b.do("HSET", b.taskKey(id), "msg", "\xff")
			return id
		},
		state: inspect.StateSnoozed, trouble: true, wrong: "Yes: …or the task cannot be read.", clears: "The task comes again at ",
	},
	"lock taken by an operator": {
		prepare: func(b *bed) string {
			b.serve()
			b.inner[1] = func(ctx context.Context) error {
				b.mu.Lock()
				first := b.runs[1] == 1
				b.mu.Unlock()
				if first {
					return errBoom // a failure of its own, before
				}
				<-ctx.Done()
				return ctx.Err()
			}
			id := b.job(1)
			b.awaitWhy(id, inspect.StateRetrying)
			b.must(b.operator.RunTask(b.queue, id))
			b.awaitWhy(id, inspect.StateRunning)
			b.revoke()
			return id
		},
		state: inspect.StateSnoozed, wrong: "No: the task comes again by itself: lost {R} after …: ann released it: stuck: ",
		clears: "The task comes again at …and then comes behind those who wait.", do: "`lockctl run --queue={Q} {ID}`",
		check: func(_ *bed, e inspect.Explanation) bool {
			return e.Retried == 1 && e.Failure == "" && e.FailedAt.IsZero()
		},
	},
	"own back-off": {
		prepare: func(b *bed) string {
			b.serve()
			return b.job(-1, queue.Options{Retries: 5})
		},
		state: inspect.StateRetrying, trouble: true, wrong: "Yes: the task has failed: boom.", clears: "It runs again at …as retry 1 of 5.",
		do: "`lockctl run --queue={Q} {ID}`",
		check: func(_ *bed, e inspect.Explanation) bool {
			return e.Retried == 1 && e.Retries == 5 && e.Failure == "boom" && !e.Next.IsZero() && !e.FailedAt.IsZero() && e.Position == 0
		},
	},
	"own back-off, then waiting": {
		prepare: func(b *bed) string {
			b.serve()
			id := b.job(-1)
			b.awaitWhy(id, inspect.StateRetrying)
			b.running(0)
			b.must(b.operator.RunTask(b.queue, id))
			return id
		},
		state: inspect.StateWaiting, position: 1, wrong: "No: the task {H}",
		check: func(_ *bed, e inspect.Explanation) bool { return e.Failure == "boom" && e.Retried == 1 },
	},
	"holder cut off": {
		prepare: func(b *bed) string {
			b.serve(unrecovered)
			holder := b.running(0)
			id := b.waiting(1, 2)[1]
			b.silence(holder)
			return id
		},
		state: inspect.StateWaiting, position: 2, trouble: true,
		wrong:  "the worker of the holder, the task {H} on …is dead or cut off from Redis, and Redis cannot tell which",
		clears: "The lock expires at …This task is the second.…The task of the holder runs again before those that wait, by …as crash 1 of 3",
		do:     "Wait, as the holder may still trust its lock",
		check:  func(_ *bed, e inspect.Explanation) bool { return e.Lock.Gone },
	},
	"orphaned": {
		prepare: orphaned(0), state: inspect.StateOrphaned, trouble: true, wrong: "Yes: its worker …dead or cut off",
		clears: "The lock expires at …The task runs again before those that wait, by …as crash 1 of 3 that use no retry",
		do:     "Wait, as the worker may still trust its lock",
	},
	"crashed three times": {
		prepare: orphaned(3), state: inspect.StateOrphaned, trouble: true, wrong: "Before, its worker died or was cut off 3 times; 3 such crashes use no retry.",
		clears: "The task uses a retry by …and comes again after its delay.", do: "Wait, as the worker may still trust its lock",
		check: func(_ *bed, e inspect.Explanation) bool { return e.Crashes == 3 && e.Tolerated == 3 },
	},
	"crashed three times, no retry left": {
		prepare: orphaned(3, queue.Options{Retries: queue.NoRetries}), state: inspect.StateOrphaned, trouble: true, clears: "The task is archived by …as it has no retry left",
	},
	"no retries, handler at work": {
		prepare: orphaned(0, queue.Options{Retries: queue.NoRetries}), state: inspect.StateOrphaned, trouble: true,
		clears: "The task is archived by …as it has no retry left",
		check: func(_ *bed, e inspect.Explanation) bool { // not before it has been silent for half a minute
			_, in, _ := strings.Cut(e.Verdict.Clears, "archived by ")
			_, in, _ = strings.Cut(in, "(in ")
			seconds, _, _ := strings.Cut(in, " s)")
			have, err := strconv.Atoi(seconds)
			left := time.Duration(e.Lock.Left)
			return err == nil && (time.Duration(have)*time.Second-left-33*time.Second).Abs() < 3*time.Second
		},
	},
	"no retries, no lock yet": {
		prepare: func(b *bed) string {
			id := b.job(0, queue.Options{Retries: queue.NoRetries})
			b.alive()
			b.do("rpoplpush", b.key("pending"), b.key("active"))
			b.do("zadd", b.key("lease"), time.Now().Add(-time.Second).Unix(), id)
			b.do("hset", b.taskKey(id), "state", "active", "siding_attempt", "siding:x-0-1-1:"+id+" on x (pid 1)", "siding_began", "an earlier one")
			return id
		},
		state: inspect.StateOrphaned, trouble: true, clears: "The task runs again before those that wait, by …as crash 1 of 3",
	},
	"crashed and runs again": {
		prepare: func(b *bed) string {
			id := runs(b)
			b.do("hset", b.taskKey(id), "siding_crashes", 1)
			return id
		},
		state: inspect.StateRunning, wrong: "No: the task has run on …Before, its worker died or was cut off once",
	},
	"queue paused, waiting": {
		prepare: func(b *bed) string {
			id := waits(b)
			b.pause()
			return id
		},
		state: inspect.StateWaiting, position: 1, trouble: true, wrong: "Yes: the queue {Q} is paused.",
		clears: "somebody has to resume the queue…keeps its place", do: "`lockctl queue resume {Q}`",
		check: func(b *bed, e inspect.Explanation) bool {
			return e.Paused && e.Lock.Task.ID == b.runner && e.Lock.Paused == 1 && e.Lock.Waiting == 1 && e.Waited > 0
		},
	},
	"queue paused, pending": {
		prepare: func(b *bed) string {
			b.serve()
			id := b.job(-1, queue.Options{Delay: time.Hour})
			b.pause()
			b.must(b.operator.RunTask(b.queue, id))
			return id
		},
		state: inspect.StatePending, trouble: true, wrong: "Yes: the queue {Q} is paused.", do: "`lockctl queue resume {Q}`",
	},
	"no server": {
		prepare: func(b *bed) string { return b.job(0) }, state: inspect.StatePending, trouble: true,
		wrong: "Yes: no server serves the queue {Q}.", clears: "Not before a server of that queue starts",
		do:    "Start a worker that serves {Q}; if Redis was just away, look again",
		check: func(_ *bed, e inspect.Explanation) bool { return e.Pending == 1 && e.Servers == 0 && !e.Since.IsZero() },
	},
	"pending": {
		prepare: func(b *bed) string {
			b.serve(queue.ServerConfig{Asynq: asynq.Config{Concurrency: 1}})
			b.running(0)
			b.job(1)
			return b.job(2)
		},
		state: inspect.StatePending, wrong: "No: the task waits for a worker.",
		clears: "once those before it are taken, 1 in all.…It then waits for {R}",
		check:  func(_ *bed, e inspect.Explanation) bool { return e.Pending == 2 && e.PendingMore == 0 },
	},
	"pending beside an unguarded server": {
		prepare: func(b *bed) string {
			b.serve(queue.ServerConfig{Asynq: asynq.Config{Concurrency: 1}})
			b.unguarded()
			b.awaitServers(2)
			b.hold(0)
			for n := range 2 { // one for each server
				id := b.enqueue(job{b.resource + strconv.Itoa(n), 0})
				expect.Eventually(b, "an active task", func() bool { return b.why(id).State != inspect.StatePending })
			}
			return b.job(1)
		},
		state: inspect.StatePending, trouble: true, wrong: "Yes: 1 of 2 servers of the queue {Q} takes no locks, and runs tasks without their locks.",
		do: "`lockctl queue pause --reason TEXT {Q}`",
	},
	"foreign holder": {
		prepare: func(b *bed) string {
			b.do("set", b.lockKey(), "8f3a60", "px", 60000)
			b.serve()
			return b.waiting(1, 1)[0]
		},
		state: inspect.StateWaiting, position: 1, wrong: "a program that is not Siding's holds {R}", clears: "it expires at …This task is the first.",
		do: "`lockctl release --reason TEXT {R}`",
		check: func(_ *bed, e inspect.Explanation) bool {
			return e.Lock.State == inspect.Foreign && e.Lock.Holder == "another program" && e.Lock.Since.IsZero() && e.Lock.Left > 0
		},
	},
	"foreign holder for ever": {
		prepare: func(b *bed) string {
			b.do("set", b.lockKey(), "8f3a60")
			b.Cleanup(func() { b.rdb.Del(context.WithoutCancel(b.Context()), b.lockKey()) })
			b.serve()
			return b.waiting(1, 1)[0]
		},
		state: inspect.StateWaiting, position: 1, trouble: true, wrong: "holds {R} without a TTL", clears: "Not by itself",
		do: "`lockctl release --reason TEXT {R}`",
	},
	"lock of another type": {
		prepare: func(b *bed) string {
			b.do("rpush", b.lockKey(), "x")
			b.Cleanup(func() { b.rdb.Del(context.WithoutCancel(b.Context()), b.lockKey()) })
			return b.job(1)
		},
		state: inspect.StatePending, trouble: true,
		check: func(_ *bed, e inspect.Explanation) bool { return e.Lock.State == inspect.Foreign && e.Lock.Endless },
	},
	"lock elsewhere": {
		prepare: func(b *bed) string {
			b.serve(queue.ServerConfig{Store: locktest.NewMemory()})
			b.running(0)
			return b.waiting(1, 1)[0]
		},
		state: inspect.StateWaiting, position: 1, wrong: "No: the task {H} on …has held {R}", do: "`lockctl why {H}`",
		check: func(_ *bed, e inspect.Explanation) bool {
			return e.Lock.Elsewhere && e.Lock.State == inspect.Held && e.Lock.Waiting == 1
		},
	},
	"lock elsewhere, running": {
		prepare: func(b *bed) string {
			b.serve(queue.ServerConfig{Store: locktest.NewMemory()})
			return b.running(0)
		},
		state: inspect.StateRunning, wrong: "No: the task has run on ",
		check: func(_ *bed, e inspect.Explanation) bool { return e.Lock.Elsewhere && e.Worker != nil },
	},
	"lost": {
		prepare: func(b *bed) string {
			id := runs(b)
			b.do("set", b.lockKey(), "siding:1:thief", "px", 60000)
			b.worker(id)
			return id
		},
		state: inspect.StateLost, trouble: true, wrong: "Yes: the task has lost its lock while it ran on ",
		do: "See why the worker could not renew its lock; if the handler…`lockctl show {R}`",
	},
	"revoked": {
		prepare: func(b *bed) string {
			id := runs(b)
			b.do("hset", "{lock:"+b.resource+"}:revoked", "at", us(time.Now()), "by", "ann", "reason", "stuck", "holder", id+" on x (pid 1)")
			b.do("set", b.lockKey(), "siding:1:thief", "px", 60000)
			b.worker(id)
			return id
		},
		state: inspect.StateLost, trouble: true, wrong: "the operator ann took the lock from it: stuck.",
		do: "Wait; if the handler does not return, restart its worker.…`lockctl show {R}`",
	},
	"lock revoked, handler goes on": {
		prepare: func(b *bed) string {
			id := runs(b)
			b.revoke()
			return id
		},
		state: inspect.StateRunning, wrong: "No: the task has run on …the operator ann took the lock from it: stuck.",
		clears: "the lock is free when its handler returns, and at ", do: "`lockctl show {R}`",
	},
	"waiting for a revoked lock": {
		prepare: func(b *bed) string {
			id := waits(b)
			b.revoke()
			return id
		},
		state: inspect.StateWaiting, position: 1, wrong: "No: an operator takes {R} from the task {H}", clears: "when the holder returns, and at ",
		do: "`lockctl show {R}`",
		check: func(_ *bed, e inspect.Explanation) bool {
			return e.Lock.State == inspect.Revoked && e.Lock.Revoked != nil && e.Lock.Revoked.By == "ann"
		},
	},
	"starting": {
		prepare: func(b *bed) string {
			b.holder()
			id := b.job(0)
			b.do("rpoplpush", b.key("pending"), b.key("active"))
			b.do("zadd", b.key("lease"), time.Now().Add(30*time.Second).Unix(), id)
			b.do("hset", b.taskKey(id), "state", "active")
			return id
		},
		state: inspect.StateStarting, wrong: "No: a worker has taken the task, and asks for its lock.", do: "`lockctl why {ID}`",
	},
	"unguarded server": {
		prepare: func(b *bed) string {
			entered := b.unguarded()
			id := b.job(0)
			<-entered
			b.awaitServers(1)
			b.worker(id)
			return id
		},
		state: inspect.StateRunning, trouble: true, wrong: "takes no locks, and runs the task without its lock",
		do: "`lockctl queue pause --reason TEXT {Q}`",
	},
	"scheduled": {
		prepare: func(b *bed) string {
			b.serve()
			b.awaitServers(1)
			return b.job(0, queue.Options{Delay: time.Hour})
		},
		state: inspect.StateScheduled, wrong: "No: its client has chosen a later time.", clears: "(in 60 min).", do: "`lockctl run --queue={Q} {ID}`",
	},
	"archived": {
		prepare: func(b *bed) string {
			b.serve()
			id := b.job(-1, queue.Options{Retries: queue.NoRetries})
			b.awaitWhy(id, inspect.StateArchived)
			b.running(0)
			return id
		},
		state: inspect.StateArchived, trouble: true, wrong: "Yes: the task is archived: boom.", clears: "does not run again by itself",
		do: "`lockctl run --queue={Q} {ID}`", check: wantNoLock,
	},
	"archived by an operator": {
		prepare: func(b *bed) string {
			id := b.job(0)
			b.must(b.operator.ArchiveTask(b.queue, id))
			return id
		},
		state: inspect.StateArchived, trouble: true, wrong: "an operator has archived it",
	},
	"archived by an operator while it waited": {
		prepare: func(b *bed) string {
			id := waits(b)
			b.must(b.operator.ArchiveTask(b.queue, id))
			return id
		},
		state: inspect.StateArchived, trouble: true, wrong: "Yes: the task is archived: an operator has archived it.",
	},
	"completed": {
		prepare: func(b *bed) string {
			b.serve()
			id := b.job(1, queue.Options{Retention: time.Hour})
			b.awaitWhy(id, inspect.StateCompleted)
			b.running(0)
			return id
		},
		state: inspect.StateCompleted, wrong: "No: the task has succeeded.", clears: "It is deleted at ", check: wantNoLock,
	},
	"aggregating": {
		prepare: func(b *bed) string {
			client := asynq.NewClientFromRedisClient(b.rdb)
			info := expect.Value(client.EnqueueContext(b.Context(), asynq.NewTask("test:note", nil), asynq.Queue(b.queue), asynq.Group("g")))(b)
			return info.ID
		},
		state: inspect.StateAggregating, wrong: "waits for others of its group",
	},
	"waiting, a server takes no locks": {
		prepare: func(b *bed) string {
			id := waits(b)
			b.unguarded()
			b.awaitServers(2)
			return id
		},
		state: inspect.StateWaiting, position: 1, trouble: true, wrong: "Yes: 1 of 2 servers of the queue {Q} takes no locks",
		clears: "any server of the queue may take the task", do: "`lockctl queue pause --reason TEXT {Q}`…`lockctl doctor`",
	},
	"no guarded server": {
		prepare: func(b *bed) string {
			b.do("set", b.lockKey(), "8f3a60", "px", 60000)
			s := b.serve()
			id := b.waiting(1, 1)[0]
			b.must(s.Shutdown(b.Context()))
			b.awaitServers(0)
			b.unguarded()
			b.awaitServers(1)
			return id
		},
		state: inspect.StateWaiting, position: 1, trouble: true, wrong: "no server of the queue {Q} takes locks",
		clears: "Not before a guarded server", do: "Start a guarded worker of {Q}",
	},
	"lost position": {
		prepare: func(b *bed) string {
			b.do("set", b.lockKey(), "8f3a60", "px", 60000)
			s := b.serve()
			id := b.waiting(1, 1)[0]
			b.must(s.Shutdown(b.Context()))
			b.alive()
			b.do("zrem", "siding:{"+b.queue+"}:line:"+b.lockKey(), id)
			return id
		},
		state: inspect.StateWaiting, trouble: true, wrong: "has lost its place", clears: "A server puts it back",
	},
	"held for a task that no queue has": {
		prepare: func(b *bed) string {
			b.serve()
			b.do("set", b.lockKey(), "siding:1:gone on "+b.host+" (pid 1)", "px", 60000)
			return b.waiting(1, 1)[0]
		},
		state: inspect.StateWaiting, position: 1, wrong: "No: gone on {HOST} (pid 1) holds {R}.", do: "`lockctl show {R}`",
		check: func(_ *bed, e inspect.Explanation) bool { return e.Lock.Task == nil && !e.Lock.Gone },
	},
	"reserved for a goroutine": {
		prepare: func(b *bed) string {
			b.do("set", b.lockKey(), "siding-reserved:1:"+us(time.Now())+":siding-goroutine:x:1", "px", 60000)
			b.serve()
			return b.waiting(1, 1)[0]
		},
		state: inspect.StateWaiting, position: 1, wrong: "reserved for a goroutine", clears: "its reservation ends at ", do: "`lockctl show {R}`",
	},
}

// wantNoLock wants nothing said of who has the lock of a resource that the task does not need any more.
func wantNoLock(b *bed, e inspect.Explanation) bool { return e.Resource == b.resource && e.Lock == nil }

// The times in a verdict are in the zone of the settings.
func TestZone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.job(0, queue.Options{Delay: 50 * time.Hour})
	for _, zone := range []*time.Location{nil, time.FixedZone("XYZ", 5*3600)} {
		i := expect.Value(inspect.New(b.rdb, inspect.Config{Zone: zone}))(t)
		e := expect.Value(i.Why(t.Context(), "", id))(t)
		want := e.Next.In(cmp.Or(zone, time.UTC)).Format("at 2006-01-02 15:04:05 MST") + " (in 2 d)"
		expect.That(t, strings.Contains(e.Verdict.Clears, want) && e.Next.Location() == time.UTC, "want %q, have %q with %v", want, e.Verdict.Clears, e.Next)
	}
}

func TestWhy(t *testing.T) {
	t.Parallel()
	for name, tt := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			id := tt.prepare(b)
			e := b.awaitWhy(id, tt.state)
			wrong := tt.differs(b, e)
			if tt.position > 0 { // a task that is being parked is in line first
				_ = expect.Until(t.Context(), func() error {
					e = b.why(id)
					wrong = tt.differs(b, e)
					return errors.Join(wrong...)
				})
			}
			for _, err := range wrong {
				t.Error(err)
			}
			expect.That(t, tt.check == nil || tt.check(b, e), "want what the check of %q wants, have %+v with the lock %+v", name, e, e.Lock)
			t.Logf("%s | %s | %s", e.Verdict.Wrong, e.Verdict.Clears, e.Verdict.Do)
			b.wantNoToken(e)
		})
	}
}

// differs returns where e is not as wanted.
func (w want) differs(b *bed, e inspect.Explanation) (wrong []error) {
	if e.State != w.state || e.Position != w.position || e.Verdict.Trouble != w.trouble {
		wrong = append(wrong, fmt.Errorf("want %s, position %d, trouble %v, have %+v", w.state, w.position, w.trouble, e))
	}
	if strings.Contains(w.wrong, "{H}") && (e.Lock.Task == nil || e.Lock.Task.ID != b.runner) {
		wrong = append(wrong, fmt.Errorf("want the holder %s, have %+v", b.runner, e.Lock))
	}
	names := strings.NewReplacer("{Q}", b.queue, "{R}", b.resource, "{ID}", e.Task.ID, "{H}", b.runner, "{HOST}", b.host)
	for _, part := range []struct{ what, have, want string }{
		{"wrong", e.Verdict.Wrong, w.wrong}, {"clears", e.Verdict.Clears, w.clears}, {"do", e.Verdict.Do, w.do},
	} {
		if part.have == "" {
			wrong = append(wrong, fmt.Errorf("%s: want a sentence", part.what))
		}
		for text := range strings.SplitSeq(names.Replace(part.want), "…") {
			if !strings.Contains(part.have, text) {
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
	expect.That(t, e.Priority == 4 && e.Policy == `{"max_wait":"1h0m0s"}` && e.Waited <= inspect.Duration(30*time.Second) && time.Since(e.Since) <= 30*time.Second, "want its priority, its policy, and how long it has waited, have %+v", e)
}
