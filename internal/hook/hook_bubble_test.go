package hook_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/hook"
)

// An attempt that asynq never acknowledges, as its lease has expired, must not be remembered for
// ever. But an attempt whose handler still runs must be remembered, as its acknowledgement may yet
// come.
func TestHookForgetsWhatNobodyAcknowledges(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	queue := queueOf(calls)
	synctest.Test(t, func(t *testing.T) {
		h := quiet()
		dequeue := func(id string) *hook.Attempt {
			w := &wire{answer: replies(t, dequeued(fmt.Sprintf("\x1a%c%s", len(id), id)))}
			if err := h.ProcessHook(w.process)(t.Context(), redis.NewCmd(t.Context(), calls["dequeue"]...)); err != nil {
				t.Fatal(err)
			}
			return h.Attempt(queue, id)
		}
		known := func(when string, want ...string) {
			t.Helper()
			for _, id := range []string{"left", "running", "ended", "young"} {
				have := h.Attempt(queue, id) != nil
				found := false
				for _, w := range want {
					found = found || w == id
				}
				if have != found {
					t.Errorf("%s: %s: want it known: %v, have %v", when, id, found, have)
				}
			}
		}
		dequeue("left")
		handlerReturns := dequeue("running").Running(t.Context())
		endedReturns := dequeue("ended").Running(t.Context())
		time.Sleep(9 * time.Minute)
		endedReturns()
		dequeue("young")
		known("before ten minutes", "left", "running", "ended", "young")
		time.Sleep(2 * time.Minute)
		dequeue("next")
		known("after ten minutes", "running", "ended", "young")
		time.Sleep(11 * time.Minute)
		dequeue("next")
		known("ten minutes after the others' end", "running")
		handlerReturns()
		time.Sleep(11 * time.Minute)
		dequeue("next")
		known("ten minutes after its own end")
	})
}

// If the leases of a task expire again and again in one process, the hook remembers only the
// attempts that may still be acknowledged.
func TestHookForgetsEarlierAttemptsOfATask(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	synctest.Test(t, func(t *testing.T) {
		h := quiet()
		first := asDequeued(t, h, calls)
		handlerReturns := first.Running(t.Context())
		time.Sleep(9 * time.Minute)
		asDequeued(t, h, calls)
		time.Sleep(9 * time.Minute)
		third := asDequeued(t, h, calls)
		done := func(want *hook.Attempt) {
			t.Helper()
			process(t, h, replies(t, "OK"), calls["done"])
			if have := h.Attempt(first.Queue, first.ID); have != want {
				t.Errorf("want %p known, have %p", want, have)
			}
		}
		time.Sleep(2 * time.Minute) // the second is too old now
		asDequeued(t, h, calls)
		done(third)
		done(first)
		handlerReturns()
		asDequeued(t, h, calls)
		done(first)
		time.Sleep(11 * time.Minute)
		asDequeued(t, h, calls)
		done(nil)
	})
}
