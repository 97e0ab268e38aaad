package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// slowOutside is middleware around the guard's. Once the handler of the first attempt has returned, it
// waits until release is closed, and returns err.
func slowOutside(release <-chan struct{}, err error) asynq.MiddlewareFunc {
	var first atomic.Bool
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			if herr := next.ProcessTask(ctx, task); herr != nil || first.Swap(true) {
				return herr
			}
			<-release
			return err
		})
	}
}

// A task is done when its handler has returned. So its id can be used again while middleware around the
// guard's is still at work. The error that the middleware returns does not change the second task.
func TestLateEndOfAnEarlierTaskOfTheId(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]error{
		"done": nil, "failed": errors.New("too late"), "to be archived": asynq.SkipRetry, "revoked": asynq.RevokeTask,
	} {
		for kind, guarded := range map[string]bool{"guarded": true, "unguarded": false} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				b, st := setup(t), newStage(t)
				release := make(chan struct{})
				p := &plain{outermost: slowOutside(release, late)}
				if guarded {
					p.guardConfig.Resources = resources()
				}
				// The first attempt begins early in a second of the clock, so that both attempts
				// begin in that second.
				poll.Eventually(t, "a second to begin", func() bool { return time.Now().Nanosecond() < int(200*time.Millisecond) })
				const id = "again"
				p.serve(t, b, st)
				b.enqueuePlain(t, b.plainJob(1, guarded), asynq.TaskID(id))
				b.awaitGone(t, id)
				second := st.hold(2)
				b.enqueuePlain(t, b.plainJob(2, guarded), asynq.TaskID(id))
				// The second task may have to wait until asynq has acknowledged the first.
				poll.Eventually(t, "the second to have been taken", func() bool { return b.state(id) != asynq.TaskStatePending })
				close(release)
				within(t, patience, "the second", second.entered)
				steadily(t, 200*time.Millisecond, "it to be active", func() bool { return b.state(id) == asynq.TaskStateActive })
				second.open()
				b.awaitGone(t, id)
				if have := st.order(); !slices.Equal(have, []int{1, 2}) {
					t.Errorf("want each to run once, have %v", have)
				}
				if info := b.stats(t); info.Processed != 2 || info.Failed != 0 {
					t.Errorf("want two processed, none failed, have %+v", info)
				}
			})
		}
	}
}

// plainJob is the n-th job, with or without a resource.
func (b *bundle) plainJob(n int, guarded bool) job {
	if guarded {
		return b.job(n)
	}
	return job{N: n}
}

// asynq keeps one lease per id and server. The lease of a task is renewed even if an earlier task
// of its id was done just before. asynq acknowledged that one only after the later task had begun.
func TestLeaseOfATaskWhoseIdWasUsedJustBefore(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	release := make(chan struct{})
	p := &plain{outermost: slowOutside(release, nil), guardConfig: queue.GuardConfig{Resources: resources()}}
	p.serve(t, b, st)
	const id = "again"
	b.enqueuePlain(t, b.job(1), asynq.TaskID(id))
	b.awaitGone(t, id)
	second := st.hold(2)
	defer second.open()
	b.enqueuePlain(t, b.job(2), asynq.TaskID(id))
	poll.Eventually(t, "the second to have been taken", func() bool { return b.state(id) != asynq.TaskStatePending })
	close(release)
	within(t, patience, "the second", second.entered)
	lease := func() float64 { return b.rdb.ZScore(t.Context(), b.key("lease"), id).Val() }
	first := lease()
	poll.Eventually(t, "its lease to be renewed", func() bool { return lease() > first })
}

// An attempt of an unguarded task may come to the guard only when asynq has given that attempt up.
// The task runs again by then. The earlier attempt does not end the later one.
func TestLateAttemptDoesNotFinishTheNext(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	st.unsafe = true // the first attempt comes late
	var first atomic.Bool
	late, returned := make(chan struct{}), make(chan struct{})
	p := &plain{
		config: asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }},
		outermost: func(next asynq.Handler) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				if !first.Swap(true) {
					defer close(returned)
					<-late
				}
				return next.ProcessTask(ctx, task)
			})
		},
	}
	p.serve(t, b, st)
	held := st.hold(1) // the second attempt, which comes to the handler first
	id := b.enqueuePlain(t, job{N: 1}, asynq.Timeout(time.Second))
	within(t, patience, "the second attempt", held.entered)
	close(late)
	within(t, patience, "the end of the first attempt", returned)
	if have := b.state(id); have != asynq.TaskStateActive {
		t.Errorf("want the later attempt active, have %v", have)
	}
	held.open()
	b.awaitGone(t, id)
}
