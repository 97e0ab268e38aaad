package hook_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
)

func TestAsynqHeadersReachEveryAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	headers := map[string]string{"resource": "order:536365"}
	client := asynq.NewClientFromRedisClient(b.rdb)
	if _, err := client.Enqueue(asynq.NewTaskWithHeaders("fact", nil, headers), asynq.Queue(b.queue)); err != nil {
		t.Fatal(err)
	}
	b.serve(asynq.Config{}, handler)
	for _, end := range []error{errBusy, nil} {
		a := next(t, "attempt", attempts)
		if diff := cmp.Diff(headers, a.task.Headers()); diff != "" {
			t.Errorf("headers (-want +have):\n%s", diff)
		}
		a.end <- end
	}
}

// The aggregated task is a new one: what the aggregator does not copy is gone.
func TestAsynqAggregationDropsHeaders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	client := asynq.NewClientFromRedisClient(b.rdb)
	task := asynq.NewTaskWithHeaders("fact", nil, map[string]string{"resource": "order:536365"})
	for range 2 {
		if _, err := client.Enqueue(task, asynq.Queue(b.queue), asynq.Group("g")); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(chan []*asynq.Task, 1)
	b.serve(asynq.Config{
		GroupGracePeriod: time.Second, // the shortest there is
		GroupMaxSize:     2,
		GroupAggregator: asynq.GroupAggregatorFunc(func(_ string, tasks []*asynq.Task) *asynq.Task {
			seen <- tasks
			return asynq.NewTask("group", nil)
		}),
	}, handler)
	for _, task := range next(t, "aggregation", seen) {
		if task.Headers()["resource"] == "" {
			t.Error("want the aggregator to see the headers")
		}
	}
	a := next(t, "attempt", attempts)
	if have := a.task.Headers(); a.task.Type() != "group" || len(have) != 0 {
		t.Errorf("want a group without headers, have %s with %v", a.task.Type(), have)
	}
	a.end <- nil
}

func TestAsynqSchedulerKeepsHeaders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	headers := map[string]string{"resource": "order:536365"}
	scheduler := asynq.NewSchedulerFromRedisClient(b.rdb, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	if _, err := scheduler.Register("@every 1s", asynq.NewTaskWithHeaders("fact", nil, headers), asynq.Queue(b.queue)); err != nil {
		t.Fatal(err)
	}
	if err := scheduler.Start(); err != nil {
		t.Fatal(err)
	}
	b.serve(asynq.Config{}, handler)
	a := next(t, "attempt", attempts)
	scheduler.Shutdown()
	if diff := cmp.Diff(headers, a.task.Headers()); diff != "" {
		t.Errorf("headers (-want +have):\n%s", diff)
	}
	a.end <- nil
}

// A hash of our own fields beside asynq's stays with the task: no move of asynq
// rewrites the whole hash.
func TestAsynqKeepsForeignFieldsOfATaskThroughARetry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handler, attempts := b.manual()
	id := b.enqueue()
	field := func() string { return b.rdb.HGet(context.Background(), b.key("t:"+id), "foreign").Val() }
	if err := b.rdb.HSet(t.Context(), b.key("t:"+id), "foreign", "kept").Err(); err != nil {
		t.Fatal(err)
	}
	b.serve(asynq.Config{}, handler)
	for _, end := range []error{errBusy, nil} {
		a := next(t, "attempt", attempts)
		if have := field(); have != "kept" {
			t.Errorf("want the field kept, have %q", have)
		}
		a.end <- end
	}
	b.awaitGone(id)
	if have := field(); have != "" {
		t.Errorf("want it gone with the task, have %q", have)
	}
}
