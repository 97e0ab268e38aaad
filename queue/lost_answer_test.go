package queue_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// twice sends the scripts of the lock twice, as go-redis does that has lost an answer. The answer
// to the second one counts.
func twice(_ context.Context, cmd redis.Cmder, send func() error) error {
	if hasKeys(cmd, "lock:", ":fence", ":queue", ":paused") || hasKeys(cmd, "lock:", ":fence", ":queue", ":paused", "") || isFinish(cmd) {
		if err := send(); err != nil {
			return err
		}
	}
	return send()
}

// TestLockCallsAreSentTwice: the answer to each call that takes or releases a lock is lost, and the
// client sends it again. Every finished task has run once, and none has lost its lock. Others wait
// for the same resource, and take the lock between the two calls. The first task runs until all
// others wait: a release for which nobody waits is not recorded.
func TestLockCallsAreSentTwice(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		const tasks = 30
		st, j := newStage(t), &journal{}
		first := st.hold(0)
		(&plain{onLocks: twice, guardConfig: queue.GuardConfig{Observe: j.observe}}).serve(t, b, st)
		var ids []string
		for n := range tasks {
			ids = append(ids, b.enqueue(t, b.job(n), queue.Options{Retries: queue.NoRetries}))
			if n == 0 {
				within(t, patience, "the first", first.entered)
			}
		}
		poll.Eventually(t, "all others in the wait queue", func() bool { return len(b.waiters(t)) == tasks-1 })
		first.open()
		b.awaitGone(t, ids...)
		if have := len(st.order()); have != tasks {
			t.Errorf("want %d runs, have %d", tasks, have)
		}
		for _, id := range ids {
			if lost := j.of(queue.EventLost, id); len(lost) > 0 {
				t.Errorf("want no lock lost, have %+v", lost)
			}
		}
		if info := b.stats(t); info.Processed != tasks || info.Failed != 0 || info.Size != 0 {
			t.Errorf("want %d processed, none failed, none left, have %+v", tasks, info)
		}
	})
}

// TestReleaseIsSentTwice: a task that nobody waits behind keeps its result, too.
func TestReleaseIsSentTwice(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		(&plain{onLocks: twice, guardConfig: queue.GuardConfig{Observe: j.observe}}).serve(t, b, st)
		id := b.enqueue(t, b.job(1), queue.Options{Retries: queue.NoRetries})
		b.awaitGone(t, id)
		if have := len(st.order()); have != 1 {
			t.Errorf("want one run, have %d", have)
		}
		if lost := j.of(queue.EventLost, id); len(lost) > 0 {
			t.Errorf("want no lock lost, have %+v", lost)
		}
	})
}
