package hook_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
)

func TestAsynqKeepsDelaysInWholeSeconds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	at := time.Now().Add(time.Hour).Truncate(time.Second).Add(900 * time.Millisecond)
	id := b.enqueue(asynq.ProcessAt(at))
	if want, have := float64(at.Unix()), b.score("scheduled", id); have != want {
		t.Errorf("want the fraction of a second cut off, %.1f, have %.1f", want, have)
	}
}

// A delay of some milliseconds is no delay: what comes back is due at once.
func TestAsynqRoundsShortRetryDelaysToNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	id := b.enqueue()
	b.serve(asynq.Config{
		RetryDelayFunc:           retryAfter(20 * time.Millisecond),
		DelayedTaskCheckInterval: time.Hour, // let it lie there
	}, handler)
	next(t, "attempt", attempts).end <- errBusy
	b.await(id, asynq.TaskStateRetry)
	// Cut to whole seconds it lies in the past, unless the 20 ms went over the
	// end of a second; by now that has begun as well.
	if score, now := b.score("retry", id), float64(time.Now().UnixMilli())/1000; score > now+0.02 {
		t.Errorf("want it due by now, %.3f, have %.3f", now, score)
	}
}

func TestAsynqForwardsInBatchesOf100UntilNoneIsDue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const tasks = 250
	for range tasks {
		b.rescore("scheduled", b.enqueue(asynq.ProcessIn(time.Hour)), time.Now().Add(-time.Minute))
	}
	if err := b.inspector.PauseQueue(b.queue); err != nil { // for the forwarder it is not
		t.Fatal(err)
	}
	srv := b.serve(asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	isForward := func(c scriptCall) bool { return c.is("scheduled", "pending") }
	poll.Eventually(t, "four calls", func() bool { return len(srv.calls(isForward)) >= 4 })
	var moved []any
	for _, c := range srv.calls(isForward)[:4] {
		moved = append(moved, c.reply)
	}
	if diff := cmp.Diff([]any{int64(100), int64(100), int64(50), int64(0)}, moved); diff != "" {
		t.Errorf("tasks moved per call (-want +have):\n%s", diff)
	}
}

// An idle server sleeps from half to one and a half of TaskCheckInterval, and a
// task that comes meanwhile does not wake it.
func TestAsynqSleepsOnEmptyQueuesAndNothingWakesIt(t *testing.T) {
	t.Parallel()
	const interval = 300 * time.Millisecond
	b := newBench(t)
	handler, attempts := b.manual()
	empty := make(chan time.Time, 1)
	b.serve(asynq.Config{TaskCheckInterval: interval}, handler).onReply(func(c scriptCall) {
		if c.isDequeue() && c.err != nil {
			select {
			case empty <- time.Now():
			default:
			}
		}
	})
	slept := next(t, "empty dequeue", empty)
	b.enqueue()
	next(t, "attempt", attempts).end <- nil
	if took := time.Since(slept); took < interval/2 {
		t.Errorf("want the task to wait for at least %v, have %v", interval/2, took)
	}
}

func TestAsynqRunTaskAndForwarderPushToTheTail(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second := b.enqueue(), b.enqueue()
	woken, due := b.enqueue(asynq.ProcessIn(time.Hour)), b.enqueue(asynq.ProcessIn(time.Hour))
	if err := b.inspector.RunTask(b.queue, woken); err != nil {
		t.Fatal(err)
	}
	b.rescore("scheduled", due, time.Now())
	if err := b.inspector.PauseQueue(b.queue); err != nil { // nothing is dequeued, but forwarded
		t.Fatal(err)
	}
	b.serve(asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	b.await(due, asynq.TaskStatePending)
	if diff := cmp.Diff([]string{first, second, woken, due}, b.pending()); diff != "" {
		t.Errorf("tasks in the order of their turns (-want +have):\n%s", diff)
	}
}

func TestAsynqRequeuePushesToTheHead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	aborted := b.enqueue()
	srv := b.serve(asynq.Config{Concurrency: 1}, handler)
	a := next(t, "attempt", attempts)
	first, second := b.enqueue(), b.enqueue()
	srv.stop()
	if diff := cmp.Diff([]string{aborted, first, second}, b.pending()); diff != "" {
		t.Errorf("tasks in the order of their turns (-want +have):\n%s", diff)
	}
	a.end <- nil
}

func TestAsynqUniquenessRunsOutWhileParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	ctx := t.Context()
	const unique = time.Hour
	id := b.enqueue(asynq.Unique(unique))
	key, err := b.rdb.HGet(ctx, b.key("t:"+id), "unique_key").Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.rdb.PExpire(ctx, key, unique/2).Err(); err != nil { // half of it has passed
		t.Fatal(err)
	}
	b.serve(asynq.Config{IsFailure: notBusy, RetryDelayFunc: retryAfter(2 * unique)}, handler)
	next(t, "attempt", attempts).end <- errBusy
	b.await(id, asynq.TaskStateRetry)
	if left := b.rdb.PTTL(ctx, key).Val(); left > unique/2 {
		t.Errorf("want its time not prolonged by the retry, have %v left", left)
	}
	if err := b.rdb.Del(ctx, key).Err(); err != nil { // all of it has passed
		t.Fatal(err)
	}
	duplicate := b.enqueue(asynq.Unique(unique))
	next(t, "attempt of the duplicate", attempts).end <- nil
	b.awaitGone(duplicate)
	b.await(id, asynq.TaskStateRetry)
}

func TestAsynqRoundsTimeoutsBelowOneSecondTo30Minutes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	id := b.enqueue(asynq.Timeout(500 * time.Millisecond))
	b.serve(asynq.Config{}, handler)
	a := next(t, "attempt", attempts)
	if info := b.await(id, asynq.TaskStateActive); info.Timeout != 0 {
		t.Errorf("want a timeout of 0, have %v", info.Timeout)
	}
	deadline, _ := a.ctx.Deadline()
	if left := time.Until(deadline); left < 29*time.Minute || left > 30*time.Minute {
		t.Errorf("want about 30 min, have %v", left)
	}
	a.end <- nil
}

func TestAsynqCutsDurationsToWholeSeconds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	deadline := time.Now().Add(time.Hour).Truncate(time.Second).Add(900 * time.Millisecond)
	id := b.enqueue(asynq.Timeout(1900*time.Millisecond), asynq.Deadline(deadline), asynq.Unique(1900*time.Millisecond))
	info, err := b.inspector.GetTaskInfo(b.queue, id)
	if err != nil {
		t.Fatal(err)
	}
	if info.Timeout != time.Second {
		t.Errorf("timeout: want 1 s, have %v", info.Timeout)
	}
	if want := deadline.Truncate(time.Second); !info.Deadline.Equal(want) {
		t.Errorf("deadline: want %v, have %v", want, info.Deadline)
	}
	keys := b.rdb.HMGet(t.Context(), b.key("t:"+id), "unique_key").Val()
	key, _ := keys[0].(string)
	if ttl := b.rdb.PTTL(t.Context(), key).Val(); ttl > time.Second {
		t.Errorf("unique: want at most 1 s, have %v", ttl)
	}
}

func TestAsynqDropsRetentionBelowOneSecond(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dropped := b.enqueue(asynq.Retention(900 * time.Millisecond))
	if info, err := b.inspector.GetTaskInfo(b.queue, dropped); err != nil || info.Retention != 0 {
		t.Errorf("want a retention of 0, have %+v, %v", info, err)
	}
	kept := b.enqueue(asynq.Retention(time.Hour))
	b.serve(asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	b.await(kept, asynq.TaskStateCompleted)
	b.awaitGone(dropped)
}

// A task's own deadline ends it also while it waits. That is a failure of its own, and the handler
// is not called.
func TestAsynqEndsATaskWhoseDeadlineHasPassedWithoutCallingTheHandler(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.enqueue(asynq.MaxRetry(0), asynq.Deadline(time.Now().Add(-time.Minute)))
	var told []error
	done := make(chan struct{})
	b.serve(asynq.Config{
		ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
			told = append(told, err)
			close(done)
		}),
	}, func(context.Context, *asynq.Task) error {
		t.Error("want no call of the handler")
		return nil
	})
	b.await(id, asynq.TaskStateArchived)
	next(t, "call of the error handler", done)
	if !slices.ContainsFunc(told, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }) {
		t.Errorf("want %v, have %v", context.DeadlineExceeded, told)
	}
}
