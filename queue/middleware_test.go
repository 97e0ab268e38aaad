package queue_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// Middleware around the guard's that keeps errors to itself has asynq take its tasks for done.
// Tasks that did not get their lock wait all the same. So does a task that cannot be parked at
// once.
func TestMiddlewareThatKeepsErrors(t *testing.T) {
	t.Parallel()
	keeps := func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			_ = next.ProcessTask(ctx, task)
			return nil
		})
	}
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		(&plain{outermost: keeps, guardConfig: queue.GuardConfig{Resources: resources()}}).serve(t, b, st)
		holder := st.hold(0)
		ids := []string{b.enqueuePlain(t, b.job(0))}
		within(t, patience, "the holder", holder.entered)
		want := []int{0}
		for n := 1; n < 30; n++ {
			// Those without a retry and those that are kept once they are done have other calls.
			opts := [][]asynq.Option{nil, {asynq.MaxRetry(0)}, {asynq.Retention(patience)}, {asynq.Unique(patience)}}[n%4]
			ids, want = append(ids, b.enqueuePlain(t, b.job(n), opts...)), append(want, n)
		}
		poll.Eventually(t, "29 to wait", func() bool {
			info, err := b.inspector.GetQueueInfo(b.queue)
			return err == nil && info.Retry == len(ids)-1
		})
		holder.open()
		have := st.awaitRuns(len(ids))
		if slices.Sort(have); !slices.Equal(have, want) {
			t.Errorf("want each run once, have %v", have)
		}
	})
}

// A task may pass through the guard's middleware twice, as where the outermost mux and one below it use
// it. The task is locked once.
func TestMiddlewareTwice(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		p := &plain{guardConfig: queue.GuardConfig{Resources: resources()}}
		p.start(t, b, func(ctx context.Context, task *asynq.Task) error {
			if task.Type() == (note{}).Kind() {
				return nil
			}
			return p.guard.Middleware(handlerOf(st.run)).ProcessTask(ctx, task)
		})
		t.Cleanup(func() { p.stop(t) })
		ids := []string{b.enqueue(t, note{}), b.enqueuePlain(t, b.job(0)), b.enqueuePlain(t, b.job(1)), b.enqueue(t, b.job(2))}
		st.awaitRuns(3)
		for _, id := range ids {
			b.awaitGone(t, id)
		}
		if info := b.stats(t); info.Processed != len(ids) || info.Failed != 0 {
			t.Errorf("want %d tasks run once, have %+v", len(ids), info)
		}
	})
}

// Where Resources guards other kinds, the guard says once of each kind that its tasks run unguarded. So
// does a kind that is misspelt there.
func TestKindsThatRunUnguardedAreLogged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		resources map[string]queue.ResourceFunc
		want      int
	}{
		"another kind is guarded": {map[string]queue.ResourceFunc{"test:jbo": resources()[job{}.Kind()]}, 1},
		"this kind is guarded":    {resources(), 0},
		"no kind is guarded":      {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := &plain{guardConfig: queue.GuardConfig{Resources: tt.resources}}
			p.start(t, b, func(context.Context, *asynq.Task) error { return nil })
			for n := range 3 {
				b.awaitGone(t, b.enqueuePlain(t, b.job(n)))
			}
			p.stop(t)
			have := p.logs.lines("a task runs unguarded", slog.LevelInfo)
			if len(have) != tt.want {
				t.Fatalf("want %d lines, have %q", tt.want, have)
			}
			for _, line := range have {
				if !strings.Contains(line, "task_kind=test:job ") || !strings.Contains(line, "guarded_kinds=[test:jbo]") {
					t.Errorf("want the kind and those that are guarded, have %q", line)
				}
			}
		})
	}
}
