package hook_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/testenv/poll"
)

// An attempt whose task asynq has given to another since changes nothing.
func TestSupersededAttemptChangesNothing(t *testing.T) {
	t.Parallel()
	ends := func(err error) func(*testing.T, *run) {
		return func(t *testing.T, a *run) {
			t.Helper()
			a.mustEnd(t, err)
		}
	}
	for name, c := range map[string]struct {
		opts []asynq.Option
		end  func(t *testing.T, late *run)
	}{
		"parks":                  {end: func(t *testing.T, a *run) { t.Helper(); a.park(t, 7) }},
		"parks without a ticket": {end: func(t *testing.T, a *run) { t.Helper(); a.park(t, 0) }},
		"done":                   {end: ends(nil)},
		"done, unique":           {opts: []asynq.Option{asynq.Unique(time.Hour)}, end: ends(nil)},
		"completed":              {opts: []asynq.Option{asynq.Retention(time.Hour)}, end: ends(nil)},
		"completed, unique":      {opts: []asynq.Option{asynq.Retention(time.Hour), asynq.Unique(time.Hour)}, end: ends(nil)},
		"failed":                 {end: ends(errOwn)},
		"archived":               {end: ends(asynq.SkipRetry)},
		"revoked":                {end: ends(asynq.RevokeTask)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				first, second := f.worker(t), f.worker(t)
				id := f.enqueue(t, c.opts...)
				late := first.take(t, id)
				f.expire(t, id)
				f.recoverExpired(t, nil)
				f.runNow(t, id)
				a := second.take(t, id)
				before := f.check(t)
				c.end(t, late)
				f.unchanged(t, before)
				if first.hook.Attempt(f.queue, id) != nil {
					t.Error("want the superseded attempt forgotten, have it still")
				}
				a.mustEnd(t, nil) // and the later one is not disturbed
				if have := f.check(t).places()[id]; len(have) > 0 && have[0] != "completed" {
					t.Errorf("want the task done, have it in %v", have)
				}
			})
		})
	}
}

// The later attempt may run in the same process, side by side with the late one
// and under the same hook.
func TestSupersededAttemptOfTheSameProcessChangesNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, a *run){
		"parks": func(t *testing.T, a *run) { t.Helper(); a.park(t, 7) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				w := f.worker(t)
				id := f.enqueue(t)
				again := func() *run {
					// Leases are known to the second.
					began := time.Now().Unix()
					poll.Eventually(t, "another second", func() bool { return time.Now().Unix() != began })
					f.expire(t, id)
					f.recoverExpired(t, nil)
					f.runNow(t, id)
					return w.take(t, id)
				}
				first := w.take(t, id)
				second := again()
				third := again()
				before := f.check(t)
				end(t, second)
				f.unchanged(t, before)
				end(t, first)
				f.unchanged(t, before)
				if w.hook.Attempt(f.queue, id) != third.ours {
					t.Error("want the latest attempt known, have another")
				}
				third.park(t, 8)
				if have := f.check(t).task(id); have["state"] != "retry" || have["siding_ticket"] != "8" {
					t.Errorf("want it parked by the latest attempt, have %v", have)
				}
				if w.hook.Attempt(f.queue, id) != nil {
					t.Error("want all attempts forgotten, have one still")
				}
			})
		})
	}
}

// An attempt outlives the next one of the same process: it has its say, and no more.
func TestLateAttemptThatOutlivesItsSuccessor(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w, other := f.worker(t), f.worker(t)
		id := f.enqueue(t)
		late := w.take(t, id)
		f.expire(t, id)
		f.recoverExpired(t, nil)
		f.runNow(t, id)
		w.take(t, id).park(t, 7)
		f.runNow(t, id)
		a := other.take(t, id)
		before := f.check(t)
		late.park(t, 6)
		f.unchanged(t, before)
		a.mustEnd(t, nil)
	})
}

// expire makes a task's lease as old as one whose worker has died.
func (f *fleet) expire(t *testing.T, id string) {
	t.Helper()
	f.rescore(t, "lease", id, time.Now().Add(-time.Minute).Unix())
}

// rescore changes the score of a task that is in set.
func (f *fleet) rescore(t *testing.T, set, id string, score int64) {
	t.Helper()
	must(t, f.rdb.ZAddXX(t.Context(), f.prefix()+set, redis.Z{Score: float64(score), Member: id}).Err())
}

// The task is not active any more: recovered, or gone. asynq's own answer would
// be an error.
func TestAttemptOfATaskThatIsNotActiveMovesNothing(t *testing.T) {
	t.Parallel()
	moves := map[string]func(f *fleet, id string) error{
		"recovered":              func(*fleet, string) error { return nil },
		"recovered and pending":  func(f *fleet, id string) error { return f.inspector.RunTask(f.queue, id) },
		"recovered and archived": func(f *fleet, id string) error { return f.inspector.ArchiveTask(f.queue, id) },
		"recovered and deleted":  func(f *fleet, id string) error { return f.inspector.DeleteTask(f.queue, id) },
	}
	for name, c := range map[string]struct {
		park bool
		err  error
	}{
		"parks":  {park: true, err: errWaiting},
		"done":   {},
		"failed": {err: errOwn},
	} {
		for moved, move := range moves {
			t.Run(moved+", "+name, func(t *testing.T) {
				t.Parallel()
				onStores(t, func(t *testing.T, f *fleet) {
					t.Helper()
					w := f.worker(t)
					id := f.enqueue(t, asynq.Unique(time.Minute))
					a := w.take(t, id)
					f.expire(t, id)
					f.recoverExpired(t, nil)
					must(t, move(f, id))
					before := f.check(t)
					told := false
					if c.park {
						a.ours.Park(asynqredis.Park{At: time.Now().Add(time.Hour), Ticket: 7, Done: func(int) { told = true }})
					}
					a.mustEnd(t, c.err)
					f.unchanged(t, before)
					if told {
						t.Error("want Done not told of what was no parking")
					}
				})
			})
		}
	}
}
