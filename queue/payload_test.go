package queue_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// A task runs under the lock of the resource that its payload names. Its header may name another
// one by now, or none.
func TestPayloadNamesTheResource(t *testing.T) {
	t.Parallel()
	edited := func(t *testing.T, b *bundle) string {
		t.Helper()
		id := b.enqueue(t, job{Res: b.resource + ".before", N: 1}, queue.Options{Delay: time.Hour})
		payload, err := json.Marshal(b.job(1))
		must(t, err)
		must(t, b.inspector.UpdateTaskPayload(b.queue, id, payload))
		must(t, b.inspector.RunTask(b.queue, id))
		return id
	}
	fromAPlainClient := func(t *testing.T, b *bundle) string {
		t.Helper()
		return b.enqueuePlain(t, b.job(1))
	}
	for name, enqueue := range map[string]func(*testing.T, *bundle) string{"edited": edited, "from a plain client": fromAPlainClient} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st, j := newStage(t), &journal{}
				b.serve(t, queue.ServerConfig{Lock: longTimeout, Observe: j.observe}, st.run)
				holder := b.occupy(t, st)
				id := enqueue(t, b)
				info := b.awaitState(t, id, asynq.TaskStateRetry)
				if want := "waits for " + b.resource + ", held by "; !strings.HasPrefix(info.LastErr, want) {
					t.Errorf("want the reason %q, have %q", want, info.LastErr)
				}
				b.soonFree(t, b.resource+".before")
				b.wantWaiters(t, id)
				behind := b.park(t, 2)
				holder.open()
				b.awaitGone(t, append(behind, id)...)
				st.wantOrder(0, 1, 2)
				b.soonFree(t, b.resource+".before")
				j.awaitBalance(t)
			})
		})
	}
}

// A task from a plain client has no header. Its payload is read before its lock is taken, so the task runs
// once: for middleware, and for those who observe.
func TestPayloadOfAPlainClientIsReadFirst(t *testing.T) {
	t.Parallel()
	b, st, j := setup(t), newStage(t), &journal{}
	var calls atomic.Int64
	s := b.newServer(t, queue.ServerConfig{Observe: j.observe})
	s.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			calls.Add(1)
			return next.ProcessTask(ctx, task)
		})
	})
	queue.Handle(s, st.run)
	start(t, s)
	id := b.enqueuePlain(t, b.job(1))
	b.awaitGone(t, id)
	poll.Eventually(t, "its release", func() bool { return len(j.of(queue.EventReleased, id)) > 0 })
	for kind, want := range map[queue.EventKind]int{queue.EventStarted: 0, queue.EventFinished: 0, queue.EventAcquired: 1, queue.EventReleased: 1} {
		if have := len(j.of(kind, id)); have != want {
			t.Errorf("%s: want %d, have %d", kind, want, have)
		}
	}
	if have := calls.Load(); have != 1 {
		t.Errorf("want one call of the middleware, have %d", have)
	}
}

// A fickle task names another resource each time it is asked.
type fickle struct{ job }

var asked atomic.Int64

func (fickle) Kind() string { return "test:fickle" }
func (f fickle) Resource() string {
	return f.Res + "." + time.Unix(asked.Add(1), 0).Format(time.TimeOnly)
}

func TestPayloadThatNamesAnotherResourceEachTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newServer(t, queue.ServerConfig{})
	queue.Handle(s, func(context.Context, fickle) error {
		t.Error("want it not run")
		return nil
	})
	start(t, s)
	info := b.awaitState(t, b.enqueue(t, fickle{b.job(1)}), asynq.TaskStateArchived)
	if !strings.Contains(info.LastErr, "another one each time") {
		t.Errorf("want the reason, have %q", info.LastErr)
	}
}

// A task without a resource may carry what looks like a header in its payload, such as another task
// that it stores. The lock that comes with such a task is released before its handler begins.
func TestPayloadLikeAHeader(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	p := &plain{}
	p.start(t, b, func(ctx context.Context, task *asynq.Task) error {
		if task.Type() == (note{}).Kind() {
			close(entered)
			<-leave
			return nil
		}
		return st.run(ctx, b.job(1))
	})
	t.Cleanup(func() { p.stop(t) })
	letter := "\x0a\x0f" + queue.HeaderResource + "\x12" + string(protowire.AppendString(nil, b.resource))
	id := b.enqueueTask(t, asynq.NewTask(note{}.Kind(), []byte(letter)))
	within(t, patience, "the task without a resource", entered)
	b.soonFree(t, b.resource)
	b.awaitGone(t, b.enqueue(t, b.job(1)))
	st.wantOrder(1)
	close(leave)
	b.awaitGone(t, id)
}
