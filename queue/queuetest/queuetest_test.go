package queuetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/queue/queuetest"
)

type audit struct {
	Order string `json:"order"`
}

func (audit) Kind() string       { return "order:audit" }
func (a audit) Resource() string { return "order:" + a.Order }
func (a audit) Validate() error {
	if a.Order == "" {
		return &queue.TaskError{Kind: a.Kind(), Field: "order", Want: "it is empty"}
	}
	return nil
}

type ping struct{}

func (ping) Kind() string { return "ping" }

func TestRunGivesInfoAndRisingFence(t *testing.T) {
	t.Parallel()
	var w queuetest.Worker
	var fences []int64
	var infos []queue.Info
	for range 2 {
		err := queuetest.Run(t.Context(), &w, audit{Order: "1"}, func(ctx context.Context, a audit) error {
			fences = append(fences, lock.Fence(ctx, a.Resource()))
			infos = append(infos, queue.InfoFrom(ctx))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	expect.That(t, fences[0] > 0 && fences[1] > fences[0], "fences: want rising above 0, have %v", fences)
	expect.That(t, infos[0].ID != infos[1].ID && infos[0].Resource == "order:1" && infos[0].Kind == "order:audit", "infos: want two ids on order:1, have %+v", infos)
}

func TestRunKeepsTheGivenID(t *testing.T) {
	t.Parallel()
	var w queuetest.Worker
	ctx := queuetest.WithInfo(t.Context(), queue.Info{ID: "again", Retried: 2})
	err := queuetest.Run(ctx, &w, ping{}, func(ctx context.Context, _ ping) error {
		if have := queue.InfoFrom(ctx); have.ID != "again" || have.Retried != 2 {
			t.Errorf("info: want the given one, have %+v", have)
		}
		if have := lock.Fence(ctx, queue.InfoFrom(ctx).Resource); have != 0 {
			t.Errorf("fence of an unguarded task: want 0, have %d", have)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A handler finds asynq's task, with a writer for its result.
func TestRunGivesAsynqsTask(t *testing.T) {
	t.Parallel()
	ctx := queuetest.WithInfo(t.Context(), queue.Info{ID: "again", Retried: 2})
	err := queuetest.Run(ctx, &queuetest.Worker{}, audit{Order: "1"}, func(ctx context.Context, _ audit) error {
		task := queue.AsynqTask(ctx)
		expect.Need(t, task != nil, "want a task")
		expect.That(t, task.Type() == "order:audit" && string(task.Payload()) == `{"order":"1"}`, "have %s %s", task.Type(), task.Payload())
		expect.Equal(t, "header", task.Headers()[queue.HeaderResource], "order:1")
		retried, ok := asynq.GetRetryCount(ctx)
		expect.That(t, ok && retried == 2, "want asynq's functions to know the task, have %d, %v", retried, ok)
		expect.Equal(t, "id", task.ResultWriter().TaskID(), "again")
		return expect.Err(task.ResultWriter().Write([]byte("done")))
	})
	expect.OK(t, err)
}

// A transfer needs two resources.
type transfer struct{}

func (transfer) Kind() string     { return "transfer" }
func (transfer) Resource() string { return queue.AllOf("account:1", "account:2") }

// A task of several resources loses them by their text, or one by its name.
func TestLoseOneOfSeveral(t *testing.T) {
	t.Parallel()
	for name, resource := range map[string]string{"all": transfer{}.Resource(), "one": "account:2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w queuetest.Worker
			err := queuetest.Run(t.Context(), &w, transfer{}, func(ctx context.Context, _ transfer) error {
				expect.That(t, w.Lose(resource), "lose: want true while the task runs")
				return ctx.Err()
			})
			expect.Is(t, "run", err, lock.ErrLost)
			expect.That(t, !w.Lose(resource), "lose: want false while nobody runs")
		})
	}
}

func TestRunNamesWhatIsNil(t *testing.T) {
	t.Parallel()
	fine := func(context.Context, audit) error { return nil }
	for want, err := range map[string]error{
		"queuetest: order:audit: want a Worker, have nil":  queuetest.Run(t.Context(), nil, audit{Order: "1"}, fine),
		"queuetest: order:audit: want a handler, have nil": queuetest.Run(t.Context(), &queuetest.Worker{}, audit{Order: "1"}, nil),
	} {
		expect.That(t, err != nil && err.Error() == want, "want %q, have %v", want, err)
	}
}

func TestRunsOfOneResourceDoNotOverlap(t *testing.T) {
	t.Parallel()
	var w queuetest.Worker
	var inside, most int
	var mu sync.Mutex
	var wg sync.WaitGroup
	enter := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		inside += by
		most = max(most, inside)
	}
	for range 20 {
		wg.Go(func() {
			if err := queuetest.Run(t.Context(), &w, audit{Order: "1"}, func(context.Context, audit) error {
				enter(1)
				defer enter(-1)
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	expect.That(t, most == 1, "at once: want 1, have %d", most)
}

func TestLoseEndsTheContextWithTheCause(t *testing.T) {
	t.Parallel()
	var w queuetest.Worker
	expect.That(t, !w.Lose("order:1"), "lose: want false while nobody runs")
	err := queuetest.Run(t.Context(), &w, audit{Order: "1"}, func(ctx context.Context, _ audit) error {
		expect.That(t, w.Lose("order:1"), "lose: want true while the task runs")
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("cause: want ErrLost, have %v", cause)
		}
		return nil
	})
	expect.That(t, errors.Is(err, lock.ErrLost), "want ErrLost although the handler returned nil, have %v", err)

	ctx, cancel := context.WithCancel(t.Context())
	err = queuetest.Run(ctx, &w, audit{Order: "1"}, func(context.Context, audit) error {
		cancel()
		expect.That(t, w.Lose("order:1"), "lose: want true while the task runs")
		return nil
	})
	expect.That(t, errors.Is(err, lock.ErrLost), "want ErrLost although the time of the task was over before, have %v", err)
}

func TestRecorder(t *testing.T) {
	t.Parallel()
	var r queuetest.Recorder
	ctx := t.Context()
	unique := &queue.Options{UniqueFor: time.Minute}
	for _, step := range []struct {
		name string
		task queue.Task
		opts *queue.Options
		want error
	}{
		{"plain", ping{}, nil, nil},
		{"same again", ping{}, nil, nil},
		{"with id", ping{}, &queue.Options{TaskID: "x"}, nil},
		{"id taken", ping{}, &queue.Options{TaskID: "x"}, queue.ErrTaskIDConflict},
		{"id in another queue", ping{}, &queue.Options{TaskID: "x", Queue: "low"}, nil},
		{"unique", audit{Order: "1"}, unique, nil},
		{"unique again", audit{Order: "1"}, unique, queue.ErrDuplicate},
		{"another payload", audit{Order: "2"}, unique, nil},
		{"unique while unfinished", audit{Order: "3"}, &queue.Options{Unique: true}, nil},
		{"that again", audit{Order: "3"}, &queue.Options{Unique: true}, queue.ErrDuplicate},
		{"that for a time", audit{Order: "3"}, unique, queue.ErrDuplicate},
	} {
		if _, err := r.Enqueue(ctx, step.task, step.opts); !errors.Is(err, step.want) {
			t.Errorf("%s: want %v, have %v", step.name, step.want, err)
		}
	}
	if have := len(r.Jobs()); have != 7 {
		t.Errorf("jobs: want 7, have %d", have)
	}
	if _, err := r.Enqueue(ctx, ping{}, &queue.Options{Timeout: time.Millisecond}); err == nil {
		t.Error("timeout of 1 ms: want an error")
	}
	r.Reset()
	r.Err = errors.New("away")
	results, err := r.EnqueueBatch(ctx, []queue.Job{{Task: ping{}}})
	expect.That(t, errors.Is(err, r.Err) && errors.Is(results[0].Err, r.Err) && len(r.Jobs()) == 0, "batch while away: want %v for all, have %v, %v", r.Err, results, err)
}

// Of the tasks with one debounce the last is kept, as none of them runs.
func TestRecorderDebounces(t *testing.T) {
	t.Parallel()
	var r queuetest.Recorder
	opts := &queue.Options{Debounce: "x", Delay: time.Second, MaxDelay: time.Minute}
	var ids []string
	for i, step := range []struct {
		task     queue.Task
		opts     *queue.Options
		replaces int // -1 for none
	}{
		{audit{Order: "1"}, opts, -1},
		{audit{Order: "1"}, opts, 0},
		{audit{Order: "2"}, opts, -1}, // another resource
		{ping{}, opts, -1},
		{ping{}, nil, -1},
		{ping{}, &queue.Options{Queue: "low", Debounce: "x", Delay: time.Second, MaxDelay: time.Minute}, -1},
		{ping{}, &queue.Options{Debounce: "y", Delay: time.Second, MaxDelay: time.Minute}, -1},
		{ping{}, opts, 3},
		{audit{Order: "1"}, opts, 1},
	} {
		receipt, err := r.Enqueue(t.Context(), step.task, step.opts)
		want := ""
		if step.replaces >= 0 {
			want = ids[step.replaces]
		}
		expect.That(t, err == nil && receipt.Replaced == want && !slices.Contains(ids, receipt.ID), "%d: want a new id and %q replaced, have %+v, %v", i, want, receipt, err)
		ids = append(ids, receipt.ID)
	}
	var have []string
	for _, j := range r.Jobs() {
		have = append(have, j.Options.TaskID)
	}
	if want := []string{ids[2], ids[4], ids[5], ids[6], ids[7], ids[8]}; !slices.Equal(have, want) {
		t.Errorf("want the jobs %v, have %v", want, have)
	}
	r.Reset()
	if receipt, err := r.Enqueue(t.Context(), ping{}, opts); err != nil || receipt.Replaced != "" {
		t.Errorf("after a reset: want none replaced, have %+v, %v", receipt, err)
	}
}

func ExampleRun() {
	var w queuetest.Worker
	err := queuetest.Run(context.Background(), &w, audit{Order: "536365"}, func(ctx context.Context, a audit) error {
		fmt.Println("auditing", a.Order, "fenced:", lock.Fence(ctx, a.Resource()) > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// auditing 536365 fenced: true
	// <nil>
}

// A hidden task loses what names its resource on its way, and so does one that is valid only before it.
type hidden struct{ order string }

func (hidden) Kind() string       { return "order:hidden" }
func (h hidden) Resource() string { return h.order }

type unsent struct{ order string }

func (unsent) Kind() string { return "order:unsent" }
func (u unsent) Validate() error {
	if u.order == "" {
		return errors.New("order is empty")
	}
	return nil
}

// A client refuses a task that is not valid, and a worker archives one that is not when it arrives. Nothing of it runs.
func TestRunRefusesWhatIsNotValid(t *testing.T) {
	t.Parallel()
	var w queuetest.Worker
	for want, err := range map[string]error{
		"order:audit: order: it is empty": queuetest.Run(t.Context(), &w, audit{}, mustNotRun[audit](t)),
		"order is empty":                  queuetest.Run(t.Context(), &w, unsent{"1"}, mustNotRun[unsent](t)),
		"order:hidden: resource: lock: bad resource name: it is empty": queuetest.Run(t.Context(), &w, hidden{"1"}, mustNotRun[hidden](t)),
	} {
		expect.That(t, err != nil && strings.HasSuffix(err.Error(), want), "want %q, have %v", want, err)
	}
}

func mustNotRun[T any](t *testing.T) func(context.Context, T) error {
	t.Helper()
	return func(context.Context, T) error {
		t.Error("the handler ran")
		return nil
	}
}
