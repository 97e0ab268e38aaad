package asynqhandler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue/asynqhandler"
)

// onEach runs a test on the embedded Redis and on a real one, with the name of a queue of its own.
func onEach(t *testing.T, test func(t *testing.T, rdb *redis.Client, queue string)) {
	t.Helper()
	for name, client := range map[string]func(t *testing.T) *redis.Client{
		"miniredis": func(t *testing.T) *redis.Client {
			t.Helper()
			rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		},
		"redis": func(t *testing.T) *redis.Client { t.Helper(); return redistest.Shared(t).Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, client(t), strings.ReplaceAll(t.Name(), "/", "-"))
		})
	}
}

// begin puts a task into Redis as the engine does when an attempt begins.
func begin(ctx context.Context, t *testing.T, rdb *redis.Client, m *taskredis.Message, attempt string) *engine.Task {
	t.Helper()
	encoded := m.Encode()
	err := rdb.HSet(ctx, taskredis.TaskKey(m.Queue, m.ID), "msg", encoded, "state", "active", "siding_attempt", attempt).Err()
	expect.OK(t, err)
	decoded := expect.Value(taskredis.DecodeMessage(encoded))(t)
	return &engine.Task{Message: decoded, Taken: &taskredis.Taken{Name: taskredis.Name{Queue: m.Queue, ID: m.ID, Attempt: attempt}}}
}

func newHandler(t *testing.T, rdb redis.UniversalClient, h asynq.HandlerFunc) engine.Handler {
	t.Helper()
	handler := expect.Value(asynqhandler.New(rdb, h))(t)
	return handler
}

// valueKey is the key of a value that a server's BaseContext sets.
type valueKey struct{}

// A view is what a handler can see of its task.
type view struct {
	Type, Payload string
	Headers       map[string]string
	ID, Queue     string
	Retry         int
	Retried       int
	Known         [4]bool // whether asynq's functions know the four above
	HasDeadline   bool
	Value         any      // of the server's BaseContext
	Path          []string // through mux and middleware
	WriterID      string
	Written       int
	Result        string // as Redis then has it
}

func viewOf(ctx context.Context, task *asynq.Task) view {
	v := view{Type: task.Type(), Payload: string(task.Payload()), Headers: task.Headers(), Value: ctx.Value(valueKey{})}
	v.ID, v.Known[0] = asynq.GetTaskID(ctx)
	v.Queue, v.Known[1] = asynq.GetQueueName(ctx)
	v.Retry, v.Known[2] = asynq.GetMaxRetry(ctx)
	v.Retried, v.Known[3] = asynq.GetRetryCount(ctx)
	_, v.HasDeadline = ctx.Deadline()
	return v
}

// watch returns a mux with middleware whose handler writes a result and sends what it sees.
func watch(rdb *redis.Client, seen chan<- view) *asynq.ServeMux {
	mux := asynq.NewServeMux()
	type pathKey struct{}
	through := func(name string) asynq.MiddlewareFunc {
		return func(next asynq.Handler) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				path, _ := ctx.Value(pathKey{}).([]string)
				id, _ := asynq.GetTaskID(ctx)
				return next.ProcessTask(context.WithValue(ctx, pathKey{}, append(path, name+" "+id)), task)
			})
		}
	}
	mux.Use(through("outer"), through("inner"))
	mux.HandleFunc("mail:", func(ctx context.Context, task *asynq.Task) (err error) {
		v := viewOf(ctx, task)
		v.Path, _ = ctx.Value(pathKey{}).([]string)
		writer := task.ResultWriter()
		v.WriterID = writer.TaskID()
		if _, err := writer.Write([]byte("the first of two")); err != nil {
			return err
		}
		if v.Written, err = writer.Write([]byte("r\x00\xff")); err != nil {
			return err
		}
		if v.Result, err = rdb.HGet(ctx, taskredis.TaskKey(v.Queue, v.ID), "result").Result(); err != nil {
			return err
		}
		seen <- v
		return nil
	})
	return mux
}

// onAsynq runs a task on asynq's server, and returns what h, or onError, has then sent.
func onAsynq(t *testing.T, rdb *redis.Client, m *taskredis.Message, h asynq.Handler, onError asynq.ErrorHandler, seen <-chan view) view {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, taskredis.TaskKey(m.Queue, m.ID), "msg", m.Encode(), "state", "pending", "pending_since", time.Now().UnixNano())
		p.LPush(ctx, taskredis.PendingKey(m.Queue), m.ID)
		return nil
	})
	expect.OK(t, err)
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency: 1, Queues: map[string]int{m.Queue: 1}, TaskCheckInterval: 10 * time.Millisecond, LogLevel: asynq.FatalLevel, ErrorHandler: onError,
		BaseContext: func() context.Context { return context.WithValue(context.Background(), valueKey{}, "value") },
	})
	expect.OK(t, server.Start(h))
	defer server.Shutdown()
	select {
	case v := <-seen:
		return v
	case <-ctx.Done():
		t.Fatalf("%s: asynq's server has not run the task", m.Type)
		return view{}
	}
}

// ourContext is the context of an attempt on our server.
func ourContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "value"), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// messages are tasks of a queue with as little and as much as a task can have.
func messages(queue string) []*taskredis.Message {
	return []*taskredis.Message{
		{Type: "mail:least", ID: "1", Queue: queue},
		{
			Type: "mail:most", ID: "2/ü}:t:{ ", Queue: queue + "}", Payload: []byte("p\x00\xff"), Headers: map[string]string{"a": "b", "": "ü"},
			Retry: 25, Retried: 3, Timeout: 60, Retention: 60, ErrorMsg: "failed", LastFailedAt: 1, UniqueKey: "u", GroupKey: "g",
		},
		{Type: "mail:deadline", ID: "3", Queue: queue, Retry: 1, Retried: 1, Deadline: time.Now().Add(time.Hour).Unix()},
	}
}

// A handler sees of the same message the same on asynq's server and on ours.
func TestSeesWhatItSeesOnAsynq(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, rdb *redis.Client, queue string) {
		t.Helper()
		seen := make(chan view, 1)
		mux := watch(rdb, seen)
		h := expect.Value(asynqhandler.New(rdb, mux))(t)
		for _, m := range messages(queue) {
			want := onAsynq(t, rdb, m, mux, nil, seen)
			expect.That(t, want.ID == m.ID && want.Result == "r\x00\xff" && len(want.Path) == 2, "%s: want the test to see what a task has, have %+v", m.Type, want)
			expect.OK(t, h(ourContext(t), begin(t.Context(), t, rdb, m, "attempt")))
			diff := cmp.Diff(want, <-seen)
			expect.That(t, diff == "", "%s: on asynq's server (-) and on ours (+):\n%s", m.Type, diff)
		}
	})
}

// An ErrorHandler sees the same, too. asynq's documentation has it ask the context for the retries.
func TestErrorHandlerSeesWhatItSeesOnAsynq(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, rdb *redis.Client, queue string) {
		t.Helper()
		seen, failure := make(chan view, 1), errors.New("failure")
		onError := asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
			if err != failure || task.ResultWriter() != nil { //nolint:errorlint // this very error
				t.Errorf("%s: want the handler's error and no writer, have %v, %v", task.Type(), err, task.ResultWriter())
			}
			seen <- viewOf(ctx, task)
		})
		ours := expect.Value(asynqhandler.NewErrorHandler(onError))(t)
		for _, m := range messages(queue) {
			want := onAsynq(t, rdb, m, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return failure }), onError, seen)
			ours(ourContext(t), begin(t.Context(), t, rdb, m, "attempt"), failure)
			diff := cmp.Diff(want, <-seen)
			expect.That(t, diff == "", "%s: on asynq's server (-) and on ours (+):\n%s", m.Type, diff)
		}
	})
}

// The context is the server's, and ends at once with it and for its cause. asynq's own has another deadline and no
// cause, and must not come in between.
func TestContextIsTheServers(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	cause := errors.New("the lock is lost")
	for name, parent := range map[string]func() (context.Context, context.CancelFunc){
		"deadline":    func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Hour) },
		"no deadline": func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
	} {
		parent, stop := parent()
		defer stop()
		ctx, cancel := context.WithCancelCause(context.WithValue(parent, valueKey{}, "value"))
		h := newHandler(t, rdb, func(have context.Context, _ *asynq.Task) error {
			deadline, ok := have.Deadline()
			want, wantOK := ctx.Deadline()
			expect.That(t, deadline.Equal(want) && ok == wantOK, "%s: want the deadline %v, have %v", name, want, deadline)
			expect.That(t, have.Value(valueKey{}) == "value", "%s: want the value, have %v", name, have.Value(valueKey{}))
			expect.That(t, have.Err() == nil && context.Cause(have) == nil, "%s: want a context that goes on, have %v", name, context.Cause(have))
			child, cancelChild := context.WithCancel(have)
			defer cancelChild()
			cancel(cause)
			if have.Err() != context.Canceled || context.Cause(have) != cause || context.Cause(child) != cause { //nolint:errorlint // this very error
				t.Errorf("%s: want the cause %v, have %v", name, cause, context.Cause(have))
			}
			return nil
		})
		if err := h(ctx, &engine.Task{Message: &taskredis.Message{ID: "id", Queue: "queue"}}); err != nil {
			t.Error(err)
		}
	}
}

// A result is kept for the latest attempt while it runs, and otherwise changes nothing.
func TestResultIsOfTheLatestAttempt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, rdb *redis.Client, queue string) {
		t.Helper()
		m := &taskredis.Message{Type: "type", ID: "id", Queue: queue}
		key := taskredis.TaskKey(queue, "id")
		writers := make(chan *asynq.ResultWriter, 1)
		h := newHandler(t, rdb, func(_ context.Context, task *asynq.Task) error { writers <- task.ResultWriter(); return nil })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// attempt begins another attempt, whose handler lets go of its writer.
		attempt := func(name string) *asynq.ResultWriter {
			task := begin(ctx, t, rdb, m, name)
			expect.OK(t, h(ctx, task))
			return <-writers
		}
		write := func(w *asynq.ResultWriter, data string, wantKept bool, want string) {
			t.Helper()
			n, err := w.Write([]byte(data))
			switch {
			case wantKept && (err != nil || n != len(data)):
				t.Errorf("%s: want it kept, have %d bytes: %v", data, n, err)
			case !wantKept && (n != 0 || !errors.Is(err, taskredis.ErrEnded)):
				t.Errorf("%s: want it refused, have %d bytes: %v", data, n, err)
			}
			have := rdb.HGet(t.Context(), key, "result").Val()
			expect.That(t, have == want, "%s: want the result %q, have %q", data, want, have)
		}
		first := attempt("first")
		write(first, "of first", true, "of first")
		second := attempt("second")
		write(first, "late of first", false, "of first")
		write(second, "of second", true, "of second")
		write(first, "later of first", false, "of second")
		write(second, "", true, "")
		for _, state := range []string{"retry", "completed", "archived", "pending"} {
			expect.OK(t, rdb.HSet(t.Context(), key, "state", state).Err())
			write(second, "in state "+state, false, "")
		}
		expect.OK(t, rdb.Del(t.Context(), key).Err())
		write(second, "of a task that is gone", false, "")
		if n := rdb.Exists(t.Context(), key).Val(); n != 0 {
			t.Errorf("want no task, have one: %v", rdb.HGetAll(t.Context(), key).Val())
		}
		expect.OK(t, rdb.Set(t.Context(), key, "no task", 0).Err())
		if n, err := second.Write([]byte("on another type")); n != 0 || err == nil || errors.Is(err, taskredis.ErrEnded) {
			t.Errorf("want an error of Redis, have %d bytes: %v", n, err)
		}
		expect.OK(t, rdb.Del(t.Context(), key).Err())
		third := attempt("third")
		cancel()
		const want = "failed to write task result: context canceled" // as asynq says it
		if n, err := third.Write([]byte("after the end")); n != 0 || err == nil || err.Error() != want {
			t.Errorf("want %s, have %d bytes: %v", want, n, err)
		}
	})
}

// Attempts that run at the same time share nothing.
func TestTasksAtTheSameTime(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, rdb *redis.Client, queue string) {
		t.Helper()
		const n = 50
		var together sync.WaitGroup // of all handlers, before any of them goes on
		together.Add(n)
		h := newHandler(t, rdb, func(ctx context.Context, task *asynq.Task) error {
			together.Done()
			together.Wait()
			id, _ := asynq.GetTaskID(ctx)
			if retried, _ := asynq.GetRetryCount(ctx); id != string(task.Payload()) || id != fmt.Sprint(retried) || task.ResultWriter().TaskID() != id {
				return fmt.Errorf("want task %s, have %s, retried %d, with the writer of %s", task.Payload(), id, retried, task.ResultWriter().TaskID())
			}
			_, err := task.ResultWriter().Write([]byte(id))
			return err
		})
		var all sync.WaitGroup
		for i := range n {
			id := fmt.Sprint(i)
			task := begin(t.Context(), t, rdb, &taskredis.Message{Type: "type", ID: id, Queue: queue, Payload: []byte(id), Retried: i}, "attempt "+id)
			all.Go(func() {
				if err := h(t.Context(), task); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for i := range n {
			id := fmt.Sprint(i)
			have := rdb.HGet(t.Context(), taskredis.TaskKey(queue, id), "result").Val()
			expect.That(t, have == id, "%s: have the result %q", id, have)
		}
	})
}

// A handler's error comes through as it is, as asynq's own errors say what becomes of the task.
func TestErrorsComeThrough(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	for _, want := range []error{nil, asynq.SkipRetry, asynq.RevokeTask, errors.New("own")} {
		h := newHandler(t, rdb, func(context.Context, *asynq.Task) error { return want })
		if have := h(t.Context(), &engine.Task{Message: &taskredis.Message{}}); have != want { //nolint:errorlint // this very error
			t.Errorf("want %v, have %v", want, have)
		}
	}
}

func TestNoHandler(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	_, err := asynqhandler.New(rdb, nil)
	expect.Equal(t, "error", fmt.Sprint(err), "asynqhandler: want a handler, have nil")
}
