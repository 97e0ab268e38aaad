package hook_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/testenv/poll"
)

// A retained task that has succeeded shows its last failure, if it had one. The task does not show
// for what it waited.
func TestKeptTaskShowsItsOwnFailure(t *testing.T) {
	t.Parallel()
	for name, failures := range map[string]int{"": 0, errOwn.Error(): 1} {
		t.Run("failure "+name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				w := f.worker(t)
				id := f.enqueue(t, asynq.MaxRetry(3), asynq.Retention(time.Hour))
				for range failures {
					w.take(t, id).mustEnd(t, errOwn)
					f.runNow(t, id)
				}
				for range 2 {
					w.take(t, id).park(t, 7)
					f.wake(t, id, 7, asynqredis.Woken)
				}
				w.take(t, id).mustEnd(t, nil)
				if have := f.task(t, id); have.State != asynq.TaskStateCompleted || have.LastErr != name {
					t.Errorf("want it completed with the last error %q, have %v with %q", name, have.State, have.LastErr)
				}
			})
		})
	}
}

// A task whose Deadline passes while it waits is not retried: it could not run.
func TestDeadlinePassesWhileItWaits(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		deadline := time.Now().Add(2 * time.Second).Truncate(time.Second)
		id := f.enqueue(t, asynq.Deadline(deadline), asynq.MaxRetry(5))
		a := w.take(t, id)
		a.ours.Park(asynqredis.Park{At: time.Now().Add(time.Hour), Ticket: 1, Key: "lock:a", Reason: errWaiting.Error()})
		a.mustEnd(t, errWaiting)
		poll.Eventually(t, "the deadline", func() bool { return time.Now().After(deadline) })
		w.runTimers(t)
		send(t, w.gate.dequeue, struct{}{}, "a dequeue")
		if err := receive(t, w.gate.dequeued, "the dequeued task").err; err != nil {
			t.Fatal(err)
		}
		if err := receive(t, w.gate.acks, "the acknowledgement").err; err != nil {
			t.Fatal(err)
		}
		f.check(t)
		have := f.task(t, id)
		if have.State != asynq.TaskStateArchived || have.MaxRetry != 5 || have.Retried != 0 {
			t.Errorf("want it archived, not retried, and as it was, have %+v", have)
		}
		want := "its deadline, " + deadline.UTC().Format(time.DateTime) + " UTC, passed while it waited: " + errWaiting.Error()
		if !strings.HasPrefix(have.LastErr, want) {
			t.Errorf("want the reason %q, have %q", want, have.LastErr)
		}
		if since := time.Since(have.LastFailedAt); since > time.Hour {
			t.Errorf("want it to have failed now, have %v", have.LastFailedAt)
		}
	})
}
