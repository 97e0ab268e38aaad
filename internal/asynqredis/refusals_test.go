package asynqredis_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
)

// counting starts a worker that counts refusals.
func (f *fleet) counting(t *testing.T) *worker {
	t.Helper()
	hook := asynqredis.NewHook(slog.New(slog.DiscardHandler), func() {})
	hook.CountRefusals()
	return f.start(t, hook, &gate{})
}

// refused parks the task as one that was refused so often in a row.
func (a *turn) refused(t *testing.T, n int) {
	t.Helper()
	a.ours.Park(asynqredis.Park{At: time.Now().Add(time.Hour), Refusals: n})
	a.mustEnd(t, errWaiting)
}

// takeAgain makes a task that waits pending, takes it, and compares what its attempt knows. No
// mark of it must be left.
func (w *worker) takeAgain(t *testing.T, f *fleet, id string, want int) *turn {
	t.Helper()
	f.runNow(t, id)
	a := w.take(t, id)
	if a.ours.Refusals != want {
		t.Errorf("want %d refusals known to the attempt, have %d", want, a.ours.Refusals)
	}
	if have, left := f.check(t).task(id)["siding_refusals"]; left {
		t.Errorf("want no refusals kept while it is active, have %s", have)
	}
	return a
}

// The number outlives processes while the task waits, and nothing else.
func TestRefusalsAreKeptFromParkingToParking(t *testing.T) {
	t.Parallel()
	for where, store := range stores() {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			f := store(t)
			w, other := f.counting(t), f.counting(t)
			id := f.enqueue(t)
			a := w.take(t, id)
			if a.ours.Refusals != 0 {
				t.Errorf("first attempt: want no refusals, have %d", a.ours.Refusals)
			}
			a.refused(t, 1)
			other.takeAgain(t, f, id, 1).refused(t, 12)
			if have := f.check(t).task(id)["siding_refusals"]; have != "12" {
				t.Errorf("want 12 kept with the task, have %q", have)
			}
			w.takeAgain(t, f, id, 12).park(t, 7) // in a line
			w.takeAgain(t, f, id, 0).refused(t, 3)
			w.takeAgain(t, f, id, 3).mustEnd(t, errOwn)
			w.takeAgain(t, f, id, 0).refused(t, 4)
			// One that does not count leaves nothing for those who do.
			plainly := f.worker(t)
			plainly.takeAgain(t, f, id, 0).park(t, 0)
			w.takeAgain(t, f, id, 0).refused(t, 5)
			w.takeAgain(t, f, id, 5).mustEnd(t, nil)
			if have := f.check(t).places(); len(have) != 0 {
				t.Errorf("want it done, have it in %v", have)
			}
		})
	}
}
