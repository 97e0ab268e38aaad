package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// occupy has job 0 hold the bundle's resource until the gate opens.
func (b *bundle) occupy() *gate {
	b.Helper()
	g, _ := b.begin(0)
	return g
}

// enqueueWaiter enqueues a task and waits until so many wait for the bundle's resource.
func (b *bundle) enqueueWaiter(n, waiters int, o queue.Options) string {
	b.Helper()
	id := b.enqueue(b.job(n), o)
	b.awaitState(id, asynq.TaskStateRetry)
	expect.Eventually(b, "it waits", func() bool { return len(b.waiters()) == waiters })
	return id
}

// A task of a higher level comes before those that came less than a minute before it. It tells how long
// it really waited.
func TestPriority(t *testing.T) {
	t.Parallel()
	everywhere(t, func(b *bundle) {
		b.serve(queue.ServerConfig{Observe: b.observe}, b.run)
		g := b.occupy()
		ids := make(map[int]string)
		for i, level := range []int{0, 0, 1, queue.MaxPriority, 1} {
			ids[i+1] = b.enqueueWaiter(i+1, i+1, queue.Options{Priority: level})
		}
		b.wantWaiters(ids[4], ids[3], ids[5], ids[1], ids[2])
		score := func(n int) time.Time {
			us := expect.Value(b.rdb.ZScore(b.Context(), b.lineKey(), ids[n]).Result())(b)
			return time.UnixMicro(int64(us))
		}
		ahead := score(2).Sub(score(3))
		expect.That(b, ahead >= 30*time.Second && ahead <= time.Minute, "want the third up to a minute before the second, have %v", ahead)
		g.open()
		b.awaitGone(slices.Collect(maps.Values(ids))...)
		b.wantOrder(0, 4, 3, 5, 1, 2)
		for _, e := range b.of(queue.EventAcquired, "") {
			expect.That(b, e.Waited <= patience, "want the time since it came, have %v for %s", e.Waited, e.TaskID)
		}
	})
}

// A task that is parked again, such as one whose reservation expired, keeps its place and gains none.
func TestPriorityCountsOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.serve(queue.ServerConfig{}, b.run)
		g := b.occupy()
		id := b.enqueueWaiter(1, 1, queue.Options{Priority: 2})
		ticket := b.rdb.HGet(b.Context(), b.taskKey(id), "siding_ticket").Val()
		b.rdb.Del(b.Context(), b.lineKey()) // as if it was evicted
		expect.OK(b, b.inspector.RunTask(b.queue, id))
		expect.Eventually(b, "it waits again", func() bool { return len(b.waiters()) == 1 })
		b.awaitState(id, asynq.TaskStateRetry)
		expect.Equal(b, "ticket", b.rdb.HGet(b.Context(), b.taskKey(id), "siding_ticket").Val(), ticket)
		g.open()
		b.awaitGone(id)
	})
}

func TestReject(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.serve(queue.ServerConfig{Observe: b.observe, Policies: map[string]queue.Policy{"test:job": {OnBusy: queue.OnBusyReject}}}, b.run)
		g := b.occupy()
		byKind := b.enqueue(b.job(1))
		info := b.awaitState(byKind, asynq.TaskStateArchived)
		expect.That(b, strings.HasPrefix(info.LastErr, "rejected: "+b.resource+" is held by test:job "),
			"want the reason, have %q", info.LastErr)
		charged := b.enqueue(b.job(2), queue.Options{Retries: 3, Policy: &queue.Policy{OnBusy: queue.OnBusyReject, UseRetries: true}})
		expect.Equal(b, "retries used", b.awaitState(charged, asynq.TaskStateRetry).Retried, 1)
		parked := b.enqueueWaiter(3, 1, queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyPark}})
		b.wantWaiters(parked)
		for _, id := range []string{byKind, charged} {
			var rejected *queue.RejectedError
			err := b.await(queue.EventRejected, id, 1).Err
			expect.That(b, errors.Is(err, queue.ErrRejected) && errors.As(err, &rejected) && rejected.Resource == b.resource && rejected.Waiting == 0,
				"want a typed error, have %v", err)
		}
		g.open()
		b.awaitGone(parked)
		b.awaitGone(b.enqueue(b.job(4))) // the lock is free
		b.awaitBalance()
	})
}

// A task that waits already keeps its place, also when it finds the lock busy again.
func TestMaxWaiting(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.serve(queue.ServerConfig{Observe: b.observe}, b.run)
		g := b.occupy()
		two := queue.Options{Policy: &queue.Policy{MaxWaiting: 2}}
		first := b.enqueueWaiter(1, 1, two)
		second := b.enqueueWaiter(2, 2, two)
		third := b.enqueue(b.job(3), two)
		info := b.awaitState(third, asynq.TaskStateArchived)
		want := "rejected: 2 wait for " + b.resource + " already"
		expect.That(b, strings.HasPrefix(info.LastErr, want), "want %q, have %q", want, info.LastErr)
		expect.OK(b, b.inspector.RunTask(b.queue, second))
		expect.Equal(b, "how often it was parked", b.await(queue.EventParked, second, 2).Parked, 2)
		b.awaitState(second, asynq.TaskStateRetry)
		b.wantWaiters(first, second)
		g.open()
		b.awaitGone(first, second)
		b.wantOrder(0, 1, 2)
	})
}

// A task that has waited for longer than its MaxWait is archived, or given to OnMaxWait. Its handler
// does not run, also if it gets the lock.
func TestMaxWait(t *testing.T) {
	t.Parallel()
	type row struct {
		maxWait time.Duration // a minute is over at once, as the test changes the ticket
		calls   bool
	}
	eachOf(t, everywhere, map[string]row{
		"while it waits": {time.Second, false}, "with the lock": {time.Minute, false}, "its own handler": {time.Second, true},
	}, func(b *bundle, test row) {
		cfg := queue.ServerConfig{Observe: b.observe}
		called := make(chan queue.Info, 1)
		if test.calls {
			cfg.OnMaxWait = func(ctx context.Context, task *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				_, err := task.ResultWriter().Write([]byte("too late: " + id))
				called <- queue.InfoFrom(ctx)
				return err
			}
		}
		b.serve(cfg, b.run)
		g := b.occupy()
		id := b.enqueue(b.job(1), queue.Options{Policy: &queue.Policy{MaxWait: test.maxWait}, Retention: time.Hour})
		// On a slow machine a second is over before the task has been parked.
		expect.Eventually(b, "it parked or too late", func() bool {
			return len(b.of(queue.EventParked, id))+len(b.of(queue.EventWaitedTooLong, id)) > 0
		})
		behind := b.enqueue(b.job(2))
		b.await(queue.EventParked, behind, 1)
		if test.maxWait == time.Minute {
			b.awaitState(id, asynq.TaskStateRetry)
			b.backdate(id, test.maxWait)
			g.open()
		}
		e := b.await(queue.EventWaitedTooLong, id, 1)
		expect.That(b, e.Waited >= test.maxWait && e.Waited <= test.maxWait+patience && errors.Is(e.Err, queue.ErrMaxWait),
			"want for how long it has waited, and why it ended, have %v, %v", e.Waited, e.Err)
		if test.calls {
			info := within(b, patience, "OnMaxWait", called)
			expect.That(b, info.ID == id && info.Resource == b.resource, "want the task, have %+v", info)
			expect.Equal(b, "result", string(b.awaitState(id, asynq.TaskStateCompleted).Result), "too late: "+id)
		} else if info := b.awaitState(id, asynq.TaskStateArchived); !strings.Contains(info.LastErr, "waited too long: for "+b.resource) || info.Retried != 0 {
			b.Errorf("want the reason and no retry used, have %q, %d", info.LastErr, info.Retried)
		}
		if test.maxWait == time.Second {
			g.open()
		}
		b.awaitGone(behind)
		b.wantOrder(0, 2)
	})
}

func TestCoalesce(t *testing.T) {
	t.Parallel()
	everywhere(t, func(b *bundle) {
		b.serve(queue.ServerConfig{Observe: b.observe, Policies: map[string]queue.Policy{"test:job": {OnBusy: queue.OnBusyCoalesce}}}, b.run)
		g := b.occupy()
		first := b.enqueueWaiter(1, 1, queue.Options{})
		other := b.enqueueWaiter(2, 2, queue.Options{})
		alike := b.enqueue(b.job(1), queue.Options{Retention: time.Hour})
		expect.Equal(b, "result", string(b.awaitState(alike, asynq.TaskStateCompleted).Result), "coalesced: "+first)
		expect.Equal(b, "the one that waits", b.await(queue.EventCoalesced, alike, 1).Other, first)
		b.wantWaiters(first, other)

		// A waiter whose task an operator has deleted is not the one that runs.
		expect.OK(b, b.inspector.DeleteTask(b.queue, other))
		again := b.enqueueWaiter(2, 3, queue.Options{}) // the deleted one is found when the lock is handed off to it
		g.open()
		b.awaitGone(first, again)
		b.wantOrder(0, 1, 2)
	})
}

// The latest of equal tasks runs, in the place of the first.
func TestReplace(t *testing.T) {
	t.Parallel()
	everywhere(t, func(b *bundle) {
		b.serve(queue.ServerConfig{Observe: b.observe}, b.run)
		g := b.occupy()
		replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace}}
		one := b.enqueueWaiter(1, 1, queue.Options{})
		unique := replace
		unique.Unique = true
		two := b.enqueueWaiter(2, 2, unique)
		three := b.enqueueWaiter(3, 3, queue.Options{})
		four := b.enqueueWaiter(4, 3, replace)
		b.wantWaiters(one, four, three)
		five := b.enqueueWaiter(2, 3, unique) // the replaced one is unique no more
		b.wantWaiters(one, five, three)
		for old, late := range map[string]string{two: four, four: five} {
			e := b.await(queue.EventReplaced, old, 1)
			expect.That(b, e.Other == late && e.TaskKind == (job{}).Kind(), "%s: want it told that %s has replaced it, have %+v", old, late, e)
			expect.That(b, b.state(old) == 0, "want %s gone", old)
		}
		g.open()
		b.awaitGone(one, three, five)
		b.wantOrder(0, 1, 2, 3)
	})
}

// A task takes over no time that is longer ago than it may wait: it would end as it comes.
func TestReplaceAfterALongWait(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.serve(queue.ServerConfig{}, b.run)
		g := b.occupy()
		old := b.enqueueWaiter(1, 1, queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace}})
		came := time.Now().Add(-time.Hour).UnixMicro()
		expect.OK(b, b.rdb.HSet(b.Context(), b.taskKey(old), "siding_ticket", came).Err())
		expect.OK(b, b.rdb.ZAdd(b.Context(), b.lineKey(), redis.Z{Score: float64(came), Member: old}).Err())
		late := b.enqueueWaiter(2, 1, queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace, MaxWait: time.Minute}})
		b.wantWaiters(late)
		g.open()
		b.awaitGone(late)
		b.wantOrder(0, 2)
	})
}

// Of many tasks that come at once, and are taken by several workers, the latest runs.
func TestReplaceKeepsTheLatest(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		const tasks = 40
		b.serve(queue.ServerConfig{Observe: b.observe}, b.run)
		g := b.occupy()
		var jobs []queue.Job
		for n := 1; n <= tasks; n++ {
			jobs = append(jobs, queue.Job{Task: b.job(n), Options: &queue.Options{Queue: b.queue, Policy: &queue.Policy{OnBusy: queue.OnBusyReplace}}})
		}
		results := expect.Value(b.client.EnqueueBatch(b.Context(), jobs))(b)
		expect.Eventually(b, "all of them compared", func() bool {
			return len(b.of(queue.EventReplaced, ""))+len(b.of(queue.EventCoalesced, "")) == tasks-1
		})
		b.wantWaiters(results[tasks-1].ID)
		g.open()
		b.awaitGone(results[tasks-1].ID)
		b.wantOrder(0, tasks)
	})
}

// A task that fails holds its line until it has run again, or stops it for good. Those behind it wait, in their order, and an
// operator sets the line going.
func TestOnFailure(t *testing.T) {
	t.Parallel()
	everywhere(t, func(b *bundle) {
		kind := b.job(0).Kind()
		var failed atomic.Int32
		b.act(1, func() error {
			if failed.Add(1) <= 2 {
				return errors.New("own failure")
			}
			return nil
		})
		b.act(2, func() error { return queue.Permanent(errors.New("never")) })
		b.serve(queue.ServerConfig{
			Asynq:    asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }},
			Policies: map[string]queue.Policy{kind: {OnFailure: queue.OnFailureHold}},
		}, b.run)
		g := b.hold(1)
		for n := 1; n <= 4; n++ {
			o := queue.Options{TaskID: fmt.Sprint(b.queue, n)}
			if n == 2 {
				o.Policy = &queue.Policy{OnFailure: queue.OnFailureStop} // of its own
			}
			b.enqueue(b.job(n), o)
			if n == 1 {
				within(b, patience, "the first", g.entered)
			}
		}
		g.open()
		b.awaitState(fmt.Sprint(b.queue, 2), asynq.TaskStateArchived)
		expect.Eventually(b, "the line has stopped", func() bool {
			return b.rdb.ZScore(b.Context(), taskredis.HeldKey(b.queue), b.placeKey()).Val() == math.Inf(1)
		})
		have := b.order()
		expect.That(b, slices.Equal(have, []int{1, 1, 1, 2}), "want 1 three times, and 2, have %v", have)
		for id, want := range map[string]error{fmt.Sprint(b.queue, 1): queue.ErrHoldsNoLine, fmt.Sprint(b.queue, 3): queue.ErrHoldsNoLine, fmt.Sprint(b.queue, 2): nil} {
			expect.Is(b, fmt.Sprintf("skip %s", id), queue.SkipHeld(b.Context(), b.rdb, b.queue, id, "alice", "drill"), want)
		}
		expect.Eventually(b, "the others have run", func() bool { return len(b.order()) == 6 })
		b.wantOrder(1, 1, 1, 2, 3, 4)
	})
}

func TestPoliciesAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for want, p := range map[string]queue.Policy{
		`on busy: want park, reject, coalesce or replace, have `:                {OnBusy: "sleep"},
		`on failure: want overtake, hold or stop, have `:                        {OnFailure: "halt"},
		`max wait: want 0, or 1s or more, have `:                                {MaxWait: time.Millisecond},
		`max waiting: want 0 or more, have `:                                    {MaxWaiting: -1},
		`max wait: want none with reject, as such a task never waits, have `:    {OnBusy: queue.OnBusyReject, MaxWait: time.Hour},
		`max waiting: want none with reject, as such a task never waits, have `: {OnBusy: queue.OnBusyReject, MaxWaiting: 1},
		`use retries: want reject, or a limit of waiting tasks, with it, have `: {UseRetries: true},
	} {
		cfg := queue.ServerConfig{Policies: map[string]queue.Policy{"test:job": p}}
		wantError(t, "config", "queue: policies: test:job: "+want, cfg.Validate())
		_, err := b.client.Enqueue(t.Context(), b.job(1), &queue.Options{Policy: &p})
		var refused *queue.TaskError
		expect.That(t, errors.As(err, &refused) && strings.HasPrefix(err.Error(), "test:job: policy: "+want), "want %q, have %v", want, err)
	}
	for want, o := range map[string]queue.Options{
		"test:note: priority: want none for a task without a resource": {Priority: 1},
		"test:note: policy: want none for a task without a resource":   {Policy: &queue.Policy{}},
		"test:note: priority: want 0 to 9":                             {Priority: 10},
	} {
		wantError(t, "enqueue", want, expect.Err(b.client.Enqueue(t.Context(), note{}, &o)))
	}
}

// Headers that another client has written wrongly are named, and the task is kept.
func TestHeadersAreChecked(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.serve(queue.ServerConfig{}, b.run)
		for value, want := range map[string]string{
			`reject`:                             `test:job: header siding-policy: want JSON such as {"on_busy":"reject"}, have "reject"`,
			`{} {"on_busy":"reject"}`:            `test:job: header siding-policy: want JSON such as {"on_busy":"reject"}, have "{} {\"on_busy\":\"reject\"}"`,
			`{"on_busy":"reject","charge":true}`: `test:job: header siding-policy: want JSON such as {"on_busy":"reject"}, have "{\"on_busy\":\"reject\",\"charge\":true}"`,
			`{"max_wait":"long"}`:                `test:job: header siding-policy: max_wait: want a duration such as 30s, have "long"`,
		} {
			info := b.enqueueWithHeader("siding-policy", value)
			expect.That(b, strings.HasPrefix(info.LastErr, want), "want %q, have %q", want, info.LastErr)
		}
		info := b.enqueueWithHeader("siding-priority", "high")
		wantError(b, "priority", `test:job: header siding-priority: want 0 to 9, have "high"`, errors.New(info.LastErr))
		b.awaitGone(b.enqueue(b.job(1))) // the lock is free
	})
}

// enqueueWithHeader enqueues a job by a plain asynq client, and returns it when it is archived.
func (b *bundle) enqueueWithHeader(header, value string) *asynq.TaskInfo {
	b.Helper()
	task := asynq.NewTaskWithHeaders("test:job", []byte(`{"res":"`+b.resource+`"}`), map[string]string{queue.HeaderResource: b.resource, header: value})
	return b.awaitState(b.enqueueTask(task), asynq.TaskStateArchived)
}
