package queue_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// The lock of these tests is held for heldFor by a task of another program of ours, or is
// reserved; its last grant was at heldSince.
const (
	heldBy      = "siding:token:order:audit 5f on web-3 (pid 7)"
	reservedFor = "siding-reserved:n:1782907384056000:3:abc:d"
	heldSince   = "1782907384056000" // 12:03:04.056
	heldFor     = time.Minute
)

// holdFor puts value into the bundle's lock, behind which others is in the wait queue.
func (b *bundle) holdFor(t *testing.T, value string, others int) {
	t.Helper()
	ctx, pipe := t.Context(), b.rdb.TxPipeline()
	pipe.Set(ctx, b.lockKey(), value, heldFor)
	pipe.Set(ctx, "{"+b.lockKey()+"}:fence", heldSince, time.Hour)
	pipe.Del(ctx, b.waitQueueKey())
	for n := range others {
		pipe.ZAdd(ctx, b.waitQueueKey(), redis.Z{Score: float64(n + 1), Member: fmt.Sprintf("3:abc:other-%d", n)})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) waitQueueKey() string { return "{" + b.lockKey() + "}:queue" }

// again has a task that waits for its fallback time come to its lock now.
func (b *bundle) again(t *testing.T, id string) {
	t.Helper()
	if err := b.inspector.RunTask(b.queue, id); err != nil {
		t.Fatal(err)
	}
}

// payloadOf is what a job's task carries.
func payloadOf(t *testing.T, j job) []byte {
	t.Helper()
	return plainTask(t, j).Payload()
}

// A parking is what one leaves in Redis and tells the observer, without its times.
type parking struct {
	Hash    map[string]string
	Task    asynq.TaskInfo
	Line    []string
	Active  []string
	Leases  []string
	Waiting []string
	Event   queue.Event
	Reason  string
	Parked  int
}

// whenever returns the reason for which a task waits without when it was parked.
func whenever(reason string) string {
	return regexp.MustCompile(`, at \d\d:\d\d:\d\d\.\d{3}: `).ReplaceAllString(reason, ": ")
}

// parking returns what has become of the n-th parking of a task. It began at start, and its
// fallback time is an hour or two away.
func (b *bundle) parking(t *testing.T, j *journal, id, unique string, n int, start time.Time) parking {
	t.Helper()
	told := j.await(t, queue.EventParked, id, n)
	ctx, end := t.Context(), time.Now()
	info := b.awaitState(t, id, asynq.TaskStateRetry)
	pipe := b.rdb.TxPipeline()
	hash, score := pipe.HGetAll(ctx, b.taskKey(id)), pipe.ZScore(ctx, b.key("retry"), id)
	active, leases := pipe.LRange(ctx, b.key("active"), 0, -1), pipe.ZRange(ctx, b.key("lease"), 0, -1)
	pending, retry := pipe.LRange(ctx, b.key("pending"), 0, -1), pipe.ZRange(ctx, b.key("retry"), 0, -1)
	ticket := pipe.ZScore(ctx, b.waitQueueKey(), "siding-task:"+b.queue+":"+id)
	ttl, left := pipe.PTTL(ctx, b.lockKey()), pipe.PTTL(ctx, "none")
	if unique != "" {
		left = pipe.PTTL(ctx, unique)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	p := parking{
		Hash: hash.Val(), Task: *info, Line: b.waiters(t), Active: active.Val(), Leases: leases.Val(),
		Waiting: append(pending.Val(), retry.Val()...), Event: told, Reason: told.Err.Error(), Parked: told.Parked,
	}

	passed := end.Sub(start)
	const wait, spread = time.Hour, time.Hour
	// The fallback time counts whole seconds.
	earliest, latest := start.Add(wait-passed-time.Second), end.Add(wait+spread)
	if at := time.Unix(int64(score.Val()), 0); at.Before(earliest) || at.After(latest) || ttl.Val() > heldFor {
		t.Errorf("fallback time: want it from %v to %v, have %v", earliest, latest, at)
	}
	if p.Hash["siding_ticket"] != fmt.Sprintf("%.0f", ticket.Val()) {
		t.Errorf("ticket: want that in the wait queue, %.0f, have %s", ticket.Val(), p.Hash["siding_ticket"])
	}
	if unique != "" && (left.Val() < wait+time.Minute-2*passed-time.Second || left.Val() > wait+spread+time.Minute) {
		t.Errorf("uniqueness: want it for a minute more than %v, have it for %v", wait, left.Val())
	}
	if !errors.Is(told.Err, lock.ErrBusy) {
		t.Errorf("event: want a busy lock, have %v", told.Err)
	}
	delete(p.Hash, "msg") // as decoded
	delete(p.Hash, "siding_ticket")
	p.Reason, p.Task.LastErr = whenever(p.Reason), whenever(p.Task.LastErr)
	p.Task.Headers, p.Task.NextProcessAt, p.Task.LastFailedAt, p.Event.Err = nil, time.Time{}, time.Time{}, nil
	return p
}

// A task that finds its lock busy is parked in the same way by its dequeue and by its worker.
func TestParkingInTheDequeueIsAsStepwise(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		value  string
		others int
		times  int
		unique bool
		want   string // the last error, after the resource
	}{
		"first in the wait queue": {value: heldBy, times: 1, want: "; when parked: held by order:audit 5f on web-3 (pid 7) since 12:03:04.056, number 1 in the wait queue"},
		"second":                  {value: heldBy, others: 1, times: 1, want: "; when parked: held by order:audit 5f on web-3 (pid 7) since 12:03:04.056, number 2 in the wait queue"},
		"third":                   {value: heldBy, others: 2, times: 1, want: "; when parked: held by order:audit 5f on web-3 (pid 7) since 12:03:04.056, number 3 in the wait queue"},
		"eleventh":                {value: heldBy, others: 10, times: 1, want: "; when parked: held by order:audit 5f on web-3 (pid 7) since 12:03:04.056, number 11 in the wait queue"},
		"refused again":           {value: heldBy, others: 1, times: 2, want: "; when parked: held by order:audit 5f on web-3 (pid 7) since 12:03:04.056, number 2 in the wait queue"},
		"unique":                  {value: heldBy, times: 1, unique: true, want: "; when parked: held by order:audit 5f on web-3 (pid 7) since 12:03:04.056, number 1 in the wait queue"},
		"unique, again":           {value: heldBy, others: 2, times: 2, unique: true, want: "; when parked: held by order:audit 5f on web-3 (pid 7) since 12:03:04.056, number 3 in the wait queue"},
		"reserved":                {value: reservedFor, times: 1, want: "; when parked: held by the next in the wait queue, number 1 in the wait queue"},
		"reserved, again":         {value: reservedFor, others: 2, times: 2, want: "; when parked: held by the next in the wait queue, number 3 in the wait queue"},
		"a holder of no name":     {value: "siding:token:", times: 1, want: "; when parked: held by  since 12:03:04.056, number 1 in the wait queue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupFast(t)
			parkings := map[bool]parking{}
			for _, inDequeue := range []bool{true, false} {
				j, st, asked := &journal{}, newStage(t), &acquires{}
				failing := errors.New("its own failure")
				st.act(1, func() error { return failing })
				p := &plain{onLocks: asked.tap, guardConfig: queue.GuardConfig{Resources: resources(), Observe: j.observe}}
				p.serve(t, b, st)
				task := plainTask(t, b.job(1))
				if inDequeue {
					task = guarded(job{}.Kind(), b.resource, task.Payload())
				}
				opts := []asynq.Option{asynq.TaskID("task"), asynq.MaxRetry(5), asynq.Deadline(time.Now().Add(4 * time.Hour).Truncate(time.Hour)), asynq.Retention(time.Hour)}
				unique := ""
				if tt.unique {
					opts = append(opts, asynq.Unique(20*time.Second))
				}
				id := b.enqueueTask(t, task, opts...)
				b.awaitState(t, id, asynq.TaskStateRetry)
				b.soonFree(t, b.resource)
				if tt.unique {
					unique = b.rdb.HGet(t.Context(), b.taskKey(id), "unique_key").Val()
				}
				asked.Store(0)
				for n := range tt.times {
					start := time.Now()
					b.holdAgain(t, tt.value, tt.others, n == 0)
					b.again(t, id)
					parkings[inDequeue] = b.parking(t, j, id, unique, n+1, start)
				}
				if have := asked.Load() == 0; have != inDequeue {
					t.Errorf("want the lock asked for: %v, have %d calls", !inDequeue, asked.Load())
				}
				p.stop(t)
				keys := []string{b.taskKey(id), b.key("retry"), b.waitQueueKey(), b.lockKey(), "{" + b.lockKey() + "}:fence"}
				if unique != "" {
					keys = append(keys, unique)
				}
				if err := b.rdb.Del(t.Context(), keys...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(parkings[false], parkings[true]); diff != "" {
				t.Errorf("(-stepwise +in the dequeue)\n%s", diff)
			}
			have, reason := parkings[true], "waiting for "+b.resource+tt.want
			shown := reason + "; last failure: its own failure"
			if have.Task.LastErr != shown || have.Reason != reason || have.Parked != tt.times || have.Task.Retried != 1 {
				t.Errorf("want the reason %q, told %d times, and 1 retry used, have %+v", reason, tt.times, have)
			}
			if len(have.Active) != 0 || len(have.Leases) != 0 || len(have.Waiting) != 1 || have.Hash["state"] != "retry" {
				t.Errorf("want it in the retry set alone, have %+v", have)
			}
			for _, field := range []string{"siding_attempt", "siding_woken", "pending_since"} {
				if v, ok := have.Hash[field]; ok {
					t.Errorf("want no %s, have %q", field, v)
				}
			}
		})
	}
}

// holdAgain renews what holds the lock. The wait queue is made the first time only.
func (b *bundle) holdAgain(t *testing.T, value string, others int, first bool) {
	t.Helper()
	if first {
		b.holdFor(t, value, others)
		return
	}
	if err := b.rdb.PExpire(t.Context(), b.lockKey(), heldFor).Err(); err != nil {
		t.Fatal(err)
	}
}

// A task that is parked time and again stays the same except for its last error.
func TestBusyTaskDoesNotGrow(t *testing.T) {
	t.Parallel()
	b, st, j := setup(t), newStage(t), &journal{}
	(&plain{guardConfig: queue.GuardConfig{Observe: j.observe}}).serve(t, b, st)
	b.holdFor(t, heldBy, 0)
	headers := map[string]string{queue.HeaderResource: b.resource, "trace": "größe \x01", "a": ""}
	payload := []byte("\x00\xff \x0a\x0fsiding-resource\x12")
	id := b.enqueueTask(t, asynq.NewTaskWithHeaders(job{}.Kind(), payload, headers), asynq.MaxRetry(7), asynq.Timeout(time.Hour))
	var sizes []int64
	for n := 1; n <= 5; n++ {
		j.await(t, queue.EventParked, id, n)
		info := b.awaitState(t, id, asynq.TaskStateRetry)
		if !strings.HasPrefix(info.LastErr, "waiting for "+b.resource) || string(info.Payload) != string(payload) ||
			info.MaxRetry != 7 || info.Retried != 0 || info.Timeout != time.Hour || info.Type != (job{}).Kind() || info.Queue != b.queue {
			t.Errorf("refusal %d: want the task as it was, have %+v", n, info)
		}
		if diff := cmp.Diff(headers, info.Headers); diff != "" {
			t.Errorf("refusal %d: headers (-want +have)\n%s", n, diff)
		}
		sizes = append(sizes, int64(len(b.rdb.HGet(t.Context(), b.taskKey(id), "msg").Val())))
		if n < 5 {
			b.again(t, id)
		}
	}
	for _, size := range sizes {
		if size != sizes[0] {
			t.Errorf("want it of one size, have %v", sizes)
		}
	}
}

// Only a header parks a task, whatever looks like one.
func TestImitationOfAHeldResourceIsNotParked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]func(imitation, own string) *asynq.Task{
		"payload": func(imitation, own string) *asynq.Task { return guarded("test:job", own, []byte(imitation)) },
		"payload of a task without headers": func(imitation, _ string) *asynq.Task {
			return asynq.NewTask("test:job", []byte(imitation))
		},
		"payload like a field": func(imitation, own string) *asynq.Task {
			return guarded("test:job", own, []byte("\x7a"+string(rune(len(imitation)))+imitation))
		},
		"value of another header": func(imitation, _ string) *asynq.Task {
			return asynq.NewTaskWithHeaders("test:job", nil, map[string]string{"a": imitation})
		},
		"name of another header": func(imitation, _ string) *asynq.Task {
			return asynq.NewTaskWithHeaders("test:job", nil, map[string]string{imitation: "a"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, j, ran := setup(t), &journal{}, make(chan struct{}, 1)
			b.resource = b.resource[len(b.resource)-20:]
			p := &plain{guardConfig: queue.GuardConfig{Observe: j.observe}}
			p.start(t, b, func(context.Context, *asynq.Task) error { ran <- struct{}{}; return nil })
			t.Cleanup(func() { p.stop(t) })
			b.holdFor(t, heldBy, 0)
			imitation := "\x0a\x0fsiding-resource\x12" + string(rune(len(b.resource))) + b.resource
			id := b.enqueueTask(t, tt(imitation, b.resource+":own"))
			within(t, prompt, "its run", ran)
			b.awaitGone(t, id)
			b.wantWaiters(t)
			if have := j.of(queue.EventParked, ""); len(have) != 0 {
				t.Errorf("want nothing parked, have %+v", have)
			}
		})
	}
}

// A message that is not an encoded task is left to asynq.
func TestCorruptTaskIsNotParked(t *testing.T) {
	t.Parallel()
	for name, corrupt := range map[string]func(msg string) string{
		"cut off":            func(msg string) string { return msg[:len(msg)-1] },
		"and half a field":   func(msg string) string { return msg + "\x7a\x7f" },
		"and an endless tag": func(msg string) string { return msg + "\xff" },
		"and a group":        func(msg string) string { return msg + "\x1b" },
		"and a long number":  func(msg string) string { return msg + "\x30" + strings.Repeat("\xff", 10) + "\x01" },
		"and field 0":        func(msg string) string { return msg + "\x02\x01x" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j := setup(t), newStage(t), &journal{}
			if err := b.rdb.Set(t.Context(), b.key("paused"), "1", 0).Err(); err != nil {
				t.Fatal(err)
			}
			b.holdFor(t, heldBy, 0)
			id := b.enqueue(t, b.job(1))
			msg := corrupt(b.rdb.HGet(t.Context(), b.taskKey(id), "msg").Val())
			if err := b.rdb.HSet(t.Context(), b.taskKey(id), "msg", msg).Err(); err != nil {
				t.Fatal(err)
			}
			(&plain{guardConfig: queue.GuardConfig{Observe: j.observe}}).serve(t, b, st)
			if err := b.rdb.Del(t.Context(), b.key("paused")).Err(); err != nil {
				t.Fatal(err)
			}
			poll.Eventually(t, "it taken", func() bool {
				return b.rdb.HGet(t.Context(), b.taskKey(id), "state").Val() == "active"
			})
			b.wantWaiters(t)
			if have := b.rdb.HGet(t.Context(), b.taskKey(id), "msg").Val(); have != msg {
				t.Errorf("want it left as it is, %q, have %q", msg, have)
			}
			if have := j.of(queue.EventParked, ""); len(have) != 0 {
				t.Errorf("want nothing parked, have %+v", have)
			}
		})
	}
}

// A holder's name that the script does not write into a task is left to the worker.
func TestHolderOfAnUnusualName(t *testing.T) {
	t.Parallel()
	for name, holder := range map[string]string{
		"beyond ASCII": "größe 尺寸", "control": "a\x01b", "delete": "a\x7fb", "zero": "a\x00b", "line": "a\nb",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, asked := setup(t), newStage(t), &acquires{}
			(&plain{onLocks: asked.tap}).serve(t, b, st)
			b.holdFor(t, "siding:token:"+holder, 0)
			id := b.enqueue(t, b.job(1))
			info := b.awaitState(t, id, asynq.TaskStateRetry)
			want := "waiting for " + b.resource + "; when parked: held by " + holder + " since 12:03:04.056, number 1 in the wait queue"
			if whenever(info.LastErr) != want || string(info.Payload) != string(payloadOf(t, b.job(1))) || info.Headers[queue.HeaderResource] != b.resource {
				t.Errorf("want the reason %q, have %+v", want, info)
			}
			if asked.Load() != 1 {
				t.Errorf("want the lock asked for once, have %d", asked.Load())
			}
			b.wantWaiters(t, id)
		})
	}
}

// A task whose deadline has passed is at its end, also where its lock is held.
func TestDeadlinePassedAtAHeldLock(t *testing.T) {
	t.Parallel()
	for name, deadline := range map[string]time.Time{"just now": {}, "before 1970": time.Unix(-5, 0)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j := setup(t), newStage(t), &journal{}
			(&plain{guardConfig: queue.GuardConfig{Observe: j.observe}}).serve(t, b, st)
			b.holdFor(t, heldBy, 0)
			if err := b.rdb.Set(t.Context(), b.key("paused"), "1", 0).Err(); err != nil {
				t.Fatal(err)
			}
			if deadline.IsZero() {
				deadline = time.Now()
			}
			id := b.enqueueTask(t, guarded(job{}.Kind(), b.resource, payloadOf(t, b.job(1))), asynq.Deadline(deadline), asynq.MaxRetry(0))
			poll.Eventually(t, "the deadline", func() bool { return time.Since(deadline) > time.Second })
			if err := b.rdb.Del(t.Context(), b.key("paused")).Err(); err != nil {
				t.Fatal(err)
			}
			info := b.awaitState(t, id, asynq.TaskStateArchived)
			if info.LastErr != context.DeadlineExceeded.Error() {
				t.Errorf("last error: have %q", info.LastErr)
			}
			b.wantWaiters(t)
			if have := j.of(queue.EventParked, ""); len(have) != 0 || len(st.order()) != 0 {
				t.Errorf("want it neither parked nor run, have %+v, %v", have, st.order())
			}
		})
	}
}

// Many tasks of a resource that is held do not keep tasks of another from a server, and do not stay
// in pending. While their queue is paused, none is touched.
func TestManyBusyTasksInARow(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		held int
		cfg  queue.ServerConfig
	}{
		"11":                    {held: 11, cfg: queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll}}},
		"11, without notifier":  {held: 11, cfg: queue.ServerConfig{Guard: queue.GuardConfig{NoNotifier: true}}},
		"620":                   {held: 620, cfg: queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll}}},
		"620, without notifier": {held: 620, cfg: queue.ServerConfig{Asynq: asynq.Config{Concurrency: 1}, Guard: queue.GuardConfig{NoNotifier: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j := setup(t), newStage(t), &journal{}
			b.holdFor(t, heldBy, 0)
			if err := b.rdb.Set(t.Context(), b.key("paused"), "1", 0).Err(); err != nil {
				t.Fatal(err)
			}
			for n := range tt.held {
				b.enqueue(t, b.job(n))
			}
			free := b.enqueue(t, job{Res: b.resource + ":free", N: -1})
			cfg := tt.cfg
			cfg.Guard.Observe = j.observe
			b.serve(t, cfg, st.run)
			steadily(t, 100*time.Millisecond, "a paused queue left alone", func() bool {
				return b.rdb.LLen(t.Context(), b.key("pending")).Val() == int64(tt.held+1) && len(j.of(queue.EventParked, "")) == 0
			})
			start := time.Now()
			if err := b.rdb.Del(t.Context(), b.key("paused")).Err(); err != nil {
				t.Fatal(err)
			}
			b.enqueue(t, job{Res: b.resource + ":late", N: -2}) // and its notice
			b.awaitGone(t, free)
			if took := time.Since(start); took > prompt {
				t.Errorf("want the free one run at once, have it after %v", took)
			}
			if have := st.awaitRuns(2); len(have) != 2 {
				t.Errorf("want the free ones run, have %v", have)
			}
			poll.Eventually(t, "all the others parked", func() bool {
				return b.rdb.ZCard(t.Context(), b.key("retry")).Val() == int64(tt.held)
			})
			if have := b.rdb.LLen(t.Context(), b.key("pending")).Val(); have != 0 || len(b.waiters(t)) != tt.held {
				t.Errorf("want none in pending and %d in the wait queue, have %d, %d", tt.held, have, len(b.waiters(t)))
			}
			poll.Eventually(t, "all of them told", func() bool { return len(j.of(queue.EventParked, "")) >= tt.held })
			if have := len(j.of(queue.EventParked, "")); have != tt.held {
				t.Errorf("want %d told, have %d", tt.held, have)
			}
		})
	}
}
