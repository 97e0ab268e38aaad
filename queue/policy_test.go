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

	"github.com/sidingq/siding/internal/embedded"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// occupy has job 0 hold the bundle's resource until the gate opens.
func (b *bundle) occupy(t *testing.T, st *stage) *gate {
	t.Helper()
	g, _ := b.begin(t, st, 0)
	return g
}

// everywhere runs a test on both paths, and on the embedded Redis.
func everywhere(t *testing.T, run func(*testing.T, *bundle)) {
	t.Helper()
	onBoth(t, run)
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		server, err := embedded.Start(embedded.Config{Port: embedded.AnyPort})
		must(t, err)
		t.Cleanup(server.Close)
		run(t, setupOn(t, redis.UniversalOptions{Addrs: []string{server.Addr()}}))
	})
}

// enqueueWaiter enqueues a task and waits until so many wait for the bundle's resource.
func (b *bundle) enqueueWaiter(t *testing.T, n, waiters int, o queue.Options) string {
	t.Helper()
	id := b.enqueue(t, b.job(n), o)
	b.awaitState(t, id, asynq.TaskStateRetry)
	poll.Eventually(t, "it waits", func() bool { return len(b.waiters(t)) == waiters })
	return id
}

// A task of a higher level comes before those that came less than a minute before it. It tells how long
// it really waited.
func TestPriority(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Observe: j.observe}, st.run)
		g := b.occupy(t, st)
		ids := make(map[int]string)
		for i, level := range []int{0, 0, 1, queue.MaxPriority, 1} {
			ids[i+1] = b.enqueueWaiter(t, i+1, i+1, queue.Options{Priority: level})
		}
		b.wantWaiters(t, ids[4], ids[3], ids[5], ids[1], ids[2])
		score := func(n int) time.Time {
			us, err := b.rdb.ZScore(t.Context(), b.lineKey(), ids[n]).Result()
			must(t, err)
			return time.UnixMicro(int64(us))
		}
		if ahead := score(2).Sub(score(3)); ahead < 30*time.Second || ahead > time.Minute {
			t.Errorf("want the third a minute before when it came, have it %v before the second", ahead)
		}
		g.open()
		b.awaitGone(t, slices.Collect(maps.Values(ids))...)
		st.wantOrder(0, 4, 3, 5, 1, 2)
		for _, e := range j.of(queue.EventAcquired, "") {
			if e.Waited > patience {
				t.Errorf("want the time since it came, have %v for %s", e.Waited, e.TaskID)
			}
		}
	})
}

// A task that is parked again, such as one whose reservation expired, keeps its place and gains none.
func TestPriorityCountsOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		b.serve(t, queue.ServerConfig{}, st.run)
		g := b.occupy(t, st)
		id := b.enqueueWaiter(t, 1, 1, queue.Options{Priority: 2})
		ticket := b.rdb.HGet(t.Context(), b.taskKey(id), "siding_ticket").Val()
		b.rdb.Del(t.Context(), b.lineKey()) // as if it was evicted
		must(t, b.inspector.RunTask(b.queue, id))
		poll.Eventually(t, "it waits again", func() bool { return len(b.waiters(t)) == 1 })
		b.awaitState(t, id, asynq.TaskStateRetry)
		if have := b.rdb.HGet(t.Context(), b.taskKey(id), "siding_ticket").Val(); have != ticket {
			t.Errorf("want its ticket %s, have %s", ticket, have)
		}
		g.open()
		b.awaitGone(t, id)
	})
}

func TestReject(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Observe: j.observe, Policies: map[string]queue.Policy{"test:job": {OnBusy: queue.OnBusyReject}}}, st.run)
		g := b.occupy(t, st)
		byKind := b.enqueue(t, b.job(1))
		info := b.awaitState(t, byKind, asynq.TaskStateArchived)
		if !strings.HasPrefix(info.LastErr, "rejected: "+b.resource+" is held by test:job ") {
			t.Errorf("want the reason, have %q", info.LastErr)
		}
		charged := b.enqueue(t, b.job(2), queue.Options{Retries: 3, Policy: &queue.Policy{OnBusy: queue.OnBusyReject, UseRetries: true}})
		if info := b.awaitState(t, charged, asynq.TaskStateRetry); info.Retried != 1 {
			t.Errorf("want one retry used, have %d", info.Retried)
		}
		parked := b.enqueueWaiter(t, 3, 1, queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyPark}})
		b.wantWaiters(t, parked)
		for _, id := range []string{byKind, charged} {
			var rejected *queue.RejectedError
			err := j.await(t, queue.EventRejected, id, 1).Err
			if !errors.Is(err, queue.ErrRejected) || !errors.As(err, &rejected) || rejected.Resource != b.resource || rejected.Waiting != 0 {
				t.Errorf("want a typed error, have %v", err)
			}
		}
		g.open()
		b.awaitGone(t, parked)
		b.awaitGone(t, b.enqueue(t, b.job(4))) // the lock is free
		j.awaitBalance(t)
	})
}

// A task that waits already keeps its place, also when it finds the lock busy again.
func TestMaxWaiting(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Observe: j.observe}, st.run)
		g := b.occupy(t, st)
		two := queue.Options{Policy: &queue.Policy{MaxWaiting: 2}}
		first := b.enqueueWaiter(t, 1, 1, two)
		second := b.enqueueWaiter(t, 2, 2, two)
		third := b.enqueue(t, b.job(3), two)
		info := b.awaitState(t, third, asynq.TaskStateArchived)
		if want := "rejected: 2 wait for " + b.resource + " already"; !strings.HasPrefix(info.LastErr, want) {
			t.Errorf("want %q, have %q", want, info.LastErr)
		}
		must(t, b.inspector.RunTask(b.queue, second))
		if e := j.await(t, queue.EventParked, second, 2); e.Parked != 2 {
			t.Errorf("want it parked twice, have %d", e.Parked)
		}
		b.awaitState(t, second, asynq.TaskStateRetry)
		b.wantWaiters(t, first, second)
		g.open()
		b.awaitGone(t, first, second)
		st.wantOrder(0, 1, 2)
	})
}

// A task that has waited for longer than its MaxWait is archived, or given to OnMaxWait. Its handler
// does not run, also if it gets the lock.
func TestMaxWait(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		maxWait time.Duration // a minute is over at once, as the test changes the ticket
		calls   bool
	}{
		"while it waits": {time.Second, false}, "with the lock": {time.Minute, false}, "its own handler": {time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st, j := newStage(t), &journal{}
				cfg := queue.ServerConfig{Observe: j.observe}
				called := make(chan queue.Info, 1)
				if test.calls {
					cfg.OnMaxWait = func(ctx context.Context, _ *asynq.Task) error {
						called <- queue.InfoFrom(ctx)
						return nil
					}
				}
				b.serve(t, cfg, st.run)
				g := b.occupy(t, st)
				id := b.enqueue(t, b.job(1), queue.Options{Policy: &queue.Policy{MaxWait: test.maxWait}})
				// On a slow machine a second is over before the task has been parked.
				poll.Eventually(t, "it parked or too late", func() bool {
					return len(j.of(queue.EventParked, id))+len(j.of(queue.EventWaitedTooLong, id)) > 0
				})
				behind := b.enqueue(t, b.job(2))
				j.await(t, queue.EventParked, behind, 1)
				if test.maxWait == time.Minute {
					b.awaitState(t, id, asynq.TaskStateRetry)
					b.backdate(t, id, test.maxWait)
					g.open()
				}
				e := j.await(t, queue.EventWaitedTooLong, id, 1)
				if e.Waited < test.maxWait || e.Waited > test.maxWait+patience || !errors.Is(e.Err, queue.ErrMaxWait) {
					t.Errorf("want for how long it has waited, and why it ended, have %v, %v", e.Waited, e.Err)
				}
				if test.calls {
					if info := within(t, patience, "OnMaxWait", called); info.ID != id || info.Resource != b.resource {
						t.Errorf("want the task, have %+v", info)
					}
					b.awaitGone(t, id)
				} else if info := b.awaitState(t, id, asynq.TaskStateArchived); !strings.Contains(info.LastErr, "waited too long: for "+b.resource) || info.Retried != 0 {
					t.Errorf("want the reason and no retry used, have %q, %d", info.LastErr, info.Retried)
				}
				if test.maxWait == time.Second {
					g.open()
				}
				b.awaitGone(t, behind)
				st.wantOrder(0, 2)
			})
		})
	}
}

func TestCoalesce(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Observe: j.observe, Policies: map[string]queue.Policy{"test:job": {OnBusy: queue.OnBusyCoalesce}}}, st.run)
		g := b.occupy(t, st)
		first := b.enqueueWaiter(t, 1, 1, queue.Options{})
		other := b.enqueueWaiter(t, 2, 2, queue.Options{})
		equal := b.enqueue(t, b.job(1), queue.Options{Retention: time.Hour})
		if info := b.awaitState(t, equal, asynq.TaskStateCompleted); string(info.Result) != "coalesced: "+first {
			t.Errorf("want the id of the one that waits, have %q", info.Result)
		}
		if e := j.await(t, queue.EventCoalesced, equal, 1); e.Other != first {
			t.Errorf("want %s, have %s", first, e.Other)
		}
		b.wantWaiters(t, first, other)

		// A waiter whose task an operator has deleted is not the one that runs.
		must(t, b.inspector.DeleteTask(b.queue, other))
		again := b.enqueueWaiter(t, 2, 3, queue.Options{}) // the deleted one is found when the lock is handed off to it
		g.open()
		b.awaitGone(t, first, again)
		st.wantOrder(0, 1, 2)
	})
}

// The latest of equal tasks runs, in the place of the first.
func TestReplace(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Observe: j.observe}, st.run)
		g := b.occupy(t, st)
		replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace}}
		one := b.enqueueWaiter(t, 1, 1, queue.Options{})
		unique := replace
		unique.Unique = true
		two := b.enqueueWaiter(t, 2, 2, unique)
		three := b.enqueueWaiter(t, 3, 3, queue.Options{})
		four := b.enqueueWaiter(t, 4, 3, replace)
		b.wantWaiters(t, one, four, three)
		five := b.enqueueWaiter(t, 2, 3, unique) // the replaced one is unique no more
		b.wantWaiters(t, one, five, three)
		for old, late := range map[string]string{two: four, four: five} {
			if e := j.await(t, queue.EventReplaced, old, 1); e.Other != late {
				t.Errorf("want %s replaced by %s, have %s", old, late, e.Other)
			}
			if b.state(old) != 0 {
				t.Errorf("want %s gone", old)
			}
		}
		g.open()
		b.awaitGone(t, one, three, five)
		st.wantOrder(0, 1, 2, 3)
	})
}

// Of many tasks that come at once, and are taken by several workers, the latest runs.
func TestReplaceKeepsTheLatest(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		const tasks = 40
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Observe: j.observe}, st.run)
		g := b.occupy(t, st)
		var jobs []queue.Job
		for n := 1; n <= tasks; n++ {
			jobs = append(jobs, queue.Job{Task: b.job(n), Options: &queue.Options{Queue: b.queue, Policy: &queue.Policy{OnBusy: queue.OnBusyReplace}}})
		}
		results, err := b.client.EnqueueBatch(t.Context(), jobs)
		must(t, err)
		poll.Eventually(t, "all of them compared", func() bool {
			return len(j.of(queue.EventReplaced, ""))+len(j.of(queue.EventCoalesced, "")) == tasks-1
		})
		b.wantWaiters(t, results[tasks-1].ID)
		g.open()
		b.awaitGone(t, results[tasks-1].ID)
		st.wantOrder(0, tasks)
	})
}

// A task that fails holds its line until it has run again, or stops it for good. Those behind it wait, in their order, and an
// operator sets the line going.
func TestOnFailure(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		kind := b.job(0).Kind()
		var failed atomic.Int32
		st.act(1, func() error {
			if failed.Add(1) <= 2 {
				return errors.New("own failure")
			}
			return nil
		})
		st.act(2, func() error { return queue.Permanent(errors.New("never")) })
		b.serve(t, queue.ServerConfig{
			Asynq:    asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }},
			Policies: map[string]queue.Policy{kind: {OnFailure: queue.OnFailureHold}},
		}, st.run)
		g := st.hold(1)
		for n := 1; n <= 4; n++ {
			o := queue.Options{TaskID: fmt.Sprint(b.queue, n)}
			if n == 2 {
				o.Policy = &queue.Policy{OnFailure: queue.OnFailureStop} // of its own
			}
			b.enqueue(t, b.job(n), o)
			if n == 1 {
				within(t, patience, "the first", g.entered)
			}
		}
		g.open()
		b.awaitState(t, fmt.Sprint(b.queue, 2), asynq.TaskStateArchived)
		poll.Eventually(t, "the line has stopped", func() bool {
			return b.rdb.ZScore(t.Context(), taskredis.HeldKey(b.queue), b.placeKey()).Val() == math.Inf(1)
		})
		if have := st.order(); !slices.Equal(have, []int{1, 1, 1, 2}) {
			t.Errorf("want 1 three times, and 2, have %v", have)
		}
		for id, want := range map[string]error{fmt.Sprint(b.queue, 1): queue.ErrHoldsNoLine, fmt.Sprint(b.queue, 3): queue.ErrHoldsNoLine, fmt.Sprint(b.queue, 2): nil} {
			if err := queue.SkipHeld(t.Context(), b.rdb, b.queue, id, "alice", "drill"); !errors.Is(err, want) {
				t.Errorf("skip %s: want %v, have %v", id, want, err)
			}
		}
		poll.Eventually(t, "the others have run", func() bool { return len(st.order()) == 6 })
		if have := st.order(); !slices.Equal(have, []int{1, 1, 1, 2, 3, 4}) {
			t.Errorf("want the order of arrival, have %v", have)
		}
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
		if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), "queue: policies: test:job: "+want) {
			t.Errorf("want %q, have %v", want, err)
		}
		_, err := b.client.Enqueue(t.Context(), b.job(1), &queue.Options{Policy: &p})
		var refused *queue.TaskError
		if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), "test:job: policy: "+want) {
			t.Errorf("want %q, have %v", want, err)
		}
	}
	for want, o := range map[string]queue.Options{
		"test:note: priority: want none for a task without a resource": {Priority: 1},
		"test:note: policy: want none for a task without a resource":   {Policy: &queue.Policy{}},
		"test:note: priority: want 0 to 9":                             {Priority: 10},
	} {
		if _, err := b.client.Enqueue(t.Context(), note{}, &o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, have %v", want, err)
		}
	}
}

// Headers that another client has written wrongly are named, and the task is kept.
func TestHeadersAreChecked(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		b.serve(t, queue.ServerConfig{}, st.run)
		for value, want := range map[string]string{
			`reject`:                             `test:job: header siding-policy: want JSON such as {"on_busy":"reject"}, have "reject"`,
			`{"on_busy":"reject","charge":true}`: `test:job: header siding-policy: want JSON such as {"on_busy":"reject"}, have "{\"on_busy\":\"reject\",\"charge\":true}"`,
			`{"max_wait":"long"}`:                `test:job: header siding-policy: max_wait: want a duration such as 30s, have "long"`,
		} {
			info := b.enqueueWithHeader(t, "siding-policy", value)
			if !strings.HasPrefix(info.LastErr, want) {
				t.Errorf("want %q, have %q", want, info.LastErr)
			}
		}
		info := b.enqueueWithHeader(t, "siding-priority", "high")
		if want := `test:job: header siding-priority: want 0 to 9, have "high"`; !strings.HasPrefix(info.LastErr, want) {
			t.Errorf("want %q, have %q", want, info.LastErr)
		}
		b.awaitGone(t, b.enqueue(t, b.job(1))) // the lock is free
	})
}

// enqueueWithHeader enqueues a job by a plain asynq client, and returns it when it is archived.
func (b *bundle) enqueueWithHeader(t *testing.T, header, value string) *asynq.TaskInfo {
	t.Helper()
	task := asynq.NewTaskWithHeaders("test:job", []byte(`{"res":"`+b.resource+`"}`), map[string]string{queue.HeaderResource: b.resource, header: value})
	info, err := asynq.NewClientFromRedisClient(b.rdb).EnqueueContext(t.Context(), task, asynq.Queue(b.queue))
	must(t, err)
	return b.awaitState(t, info.ID, asynq.TaskStateArchived)
}
