package hook_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
)

// asynq asks for a retry or for the archive, or takes the task for done: each becomes a parking.
func TestParkNeitherChargesNorArchives(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		retries, failures int
		err               error
		opts              []asynq.Option
	}{
		"no retries: from the archive call":   {retries: 0, err: errWaiting},
		"last attempt: from the archive call": {retries: 2, failures: 2, err: errWaiting},
		"first attempt: from the retry call":  {retries: 3, err: errWaiting},
		"later attempt: from the retry call":  {retries: 3, failures: 2, err: errWaiting},
		"skipped retries: from the archive":   {retries: 3, failures: 1, err: fmt.Errorf("%w: %w", errWaiting, asynq.SkipRetry)},
		// asynq takes it for a failure, as with another configuration than the guard's.
		"an error that counts as a failure":    {retries: 3, failures: 1, err: errOwn},
		"one that counts, on the last attempt": {retries: 1, failures: 1, err: errOwn},
		"kept from asynq: from the done call":  {retries: 1},
		"kept from asynq, after a failure":     {retries: 3, failures: 1},
		"kept from asynq, kept when done":      {retries: 3, failures: 2, opts: []asynq.Option{asynq.Retention(time.Hour)}},
		"revoked: from the done call":          {retries: 3, failures: 1, err: fmt.Errorf("%w: %w", errWaiting, asynq.RevokeTask)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				w := f.worker(t)
				id := f.enqueue(t, append(c.opts, asynq.MaxRetry(c.retries))...)
				for range c.failures {
					w.take(t, id).mustEnd(t, errOwn)
					f.runNow(t, id)
				}
				a := w.take(t, id)
				f.check(t)
				info, task := f.info(t), f.task(t, id)
				at := time.Now().Add(90*time.Second + 700*time.Millisecond)
				var told []int
				a.ours.Park(asynqredis.Park{At: at, Ticket: 7, Reason: "waiting: ü", Done: func(n int) { told = append(told, n) }})
				a.mustEnd(t, c.err)

				f.check(t)
				have := f.task(t, id)
				if have.State != asynq.TaskStateRetry || have.NextProcessAt.Unix() != at.Unix() {
					t.Errorf("want it in retry until %d, have it in %v until %d", at.Unix(), have.State, have.NextProcessAt.Unix())
				}
				want := "waiting: ü"
				if c.failures > 0 {
					want += "; last failure: " + errOwn.Error()
				}
				if have.LastErr != want {
					t.Errorf("want the reason %q, have %q", want, have.LastErr)
				}
				if have.LastFailedAt != task.LastFailedAt {
					t.Errorf("want its own last failure at %v, have %v", task.LastFailedAt, have.LastFailedAt)
				}
				if have.Retried != c.failures {
					t.Errorf("want %d retries counted, have %d", c.failures, have.Retried)
				}
				if have.MaxRetry != task.MaxRetry || have.Timeout != task.Timeout || string(have.Payload) != string(task.Payload) {
					t.Errorf("want the rest of the task as it was, %+v, have %+v", task, have)
				}
				after := f.info(t)
				if after.Processed != info.Processed || after.Failed != info.Failed ||
					after.ProcessedTotal != info.ProcessedTotal || after.FailedTotal != info.FailedTotal {
					t.Errorf("want nothing counted, %+v, have %+v", info, after)
				}
				if after.Size != 1 || after.Retry != 1 || after.Active != 0 || after.Archived != 0 {
					t.Errorf("want one task, in retry, have %+v", after)
				}
				if !slices.Equal(told, []int{1}) {
					t.Errorf("want Done told once that it is the first parking, have %v", told)
				}
				if w.hook.Attempt(f.queue, id) != nil {
					t.Error("want the attempt forgotten, have it still")
				}
			})
		})
	}
}

// runNow does what the dashboard's Run button does.
func (f *fleet) runNow(t *testing.T, id string) {
	t.Helper()
	if err := f.inspector.RunTask(f.queue, id); err != nil {
		t.Fatal(err)
	}
}

// An id of a plain client's task may hold what ends a queue's name in a key.
func TestTaskIDsMayHoldAnything(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"}:", "a}:b", "{x}:t:y", "asynq:{x}:active", " :\x00*?[ü", strings.Repeat("}:", 100)} {
		t.Run(strconv.Quote(id), func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				w := f.worker(t)
				f.enqueue(t, asynq.TaskID(id), asynq.MaxRetry(0))
				f.wake(t, id, 7, asynqredis.Gone)
				w.take(t, id).park(t, 7)
				f.wantToRun(t, w, id)
			})
		})
	}
}

// wantToRun fails the test unless a task that is parked under ticket 7 can be woken, and ends.
func (f *fleet) wantToRun(t *testing.T, w *worker, id string) {
	t.Helper()
	f.wantIn(t, id, "retry")
	f.wake(t, id, 7, asynqredis.Woken)
	w.take(t, id).mustEnd(t, nil)
	f.wantEmpty(t)
}

func TestQueueNamesMayHoldAnything(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a}", "{a", "a}:b", "}:active", "t:x", " ü:"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				f.queue = name + f.queue
				w := f.worker(t)
				id := f.parked(t, w, 7, asynq.MaxRetry(0))
				f.wantToRun(t, w, id)
			})
		})
	}
}

func TestParkedTaskRunsAtItsFallbackTime(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.enqueue(t, asynq.MaxRetry(0))
		for n := 1; n <= 3; n++ {
			a := w.take(t, id)
			a.ours.Park(asynqredis.Park{At: time.Now().Add(-time.Second), Ticket: 7, Done: func(have int) {
				if have != n {
					t.Errorf("want parking %d, have %d", n, have)
				}
			}})
			a.mustEnd(t, errWaiting)
			w.runTimers(t)
			f.check(t)
		}
		w.take(t, id).mustEnd(t, errOwn) // now a failure of its own, and its last attempt
		f.wantIn(t, id, "archived")
		if info := f.info(t); info.Processed != 1 || info.Failed != 1 {
			t.Errorf("want one attempt counted, have %d processed, %d failed", info.Processed, info.Failed)
		}
	})
}

func TestParkExtendsUniqueness(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		owner  string // "" is the task itself
		ttl    time.Duration
		extend bool
	}{
		"its own, shorter":      {ttl: time.Minute, extend: true},
		"its own, longer":       {ttl: 2 * time.Hour},
		"its own, without end":  {ttl: 0},
		"another's, shorter":    {owner: "another", ttl: time.Minute},
		"another's, its prefix": {owner: "tas", ttl: time.Minute},
	} {
		for _, woken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, woken %v", name, woken), func(t *testing.T) {
				t.Parallel()
				onStores(t, func(t *testing.T, f *fleet) {
					t.Helper()
					ctx := t.Context()
					w := f.worker(t)
					id := f.enqueue(t, asynq.TaskID("task"), asynq.Unique(time.Minute))
					key := f.check(t).task(id)["unique_key"]
					owner := id
					if c.owner != "" {
						owner = c.owner
					}
					if err := f.rdb.Set(ctx, key, owner, c.ttl).Err(); err != nil {
						t.Fatal(err)
					}
					a := w.take(t, id)
					if woken {
						f.wake(t, id, 7, asynqredis.Marked)
					}
					a.park(t, 7)

					have, ttl := f.rdb.Get(ctx, key).Val(), f.rdb.PTTL(ctx, key).Val()
					want := c.ttl
					if c.extend {
						want = time.Hour + time.Minute
					} else if c.ttl == 0 {
						want = -1 // as Redis says it
					}
					const slack = 10 * time.Second
					if have != owner || ttl > want || ttl < want-slack || (want < 0 && ttl != want) {
						t.Errorf("want %q for %v, have %q for %v", owner, want, have, ttl)
					}
				})
			})
		}
	}
}

func TestParkDoesNotRenewUniquenessThatHasRunOut(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.enqueue(t, asynq.Unique(time.Minute))
		a := w.take(t, id)
		key := f.check(t).task(id)["unique_key"]
		f.rdb.Del(t.Context(), key)
		a.park(t, 7)
		f.check(t)
		if n := f.rdb.Exists(t.Context(), key).Val(); n != 0 {
			t.Errorf("want no %s, have it", key)
		}
	})
}

// disagreements make the hash of a task differ from the list or set that the task is in. An operator
// may do that, or a restart of Redis that has lost half a write.
var disagreements = map[string]func(ctx context.Context, f *fleet, in, id string) error{
	"not in the list or set": func(ctx context.Context, f *fleet, in, id string) error {
		if in == "active" {
			return f.rdb.LRem(ctx, f.prefix()+in, 0, id).Err()
		}
		return f.rdb.ZRem(ctx, f.prefix()+in, id).Err()
	},
	"another state": func(ctx context.Context, f *fleet, _, id string) error {
		return f.rdb.HSet(ctx, f.prefix()+"t:"+id, "state", "archived").Err()
	},
	"no hash": func(ctx context.Context, f *fleet, _, id string) error {
		return f.rdb.Del(ctx, f.prefix()+"t:"+id).Err()
	},
}

// A parking makes neither the hash nor the list worse if the two do not agree.
func TestParkNeedsBothHashAndListOfActiveTasks(t *testing.T) {
	t.Parallel()
	for name, disagree := range disagreements {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				w := f.worker(t)
				id := f.enqueue(t)
				a := w.take(t, id)
				must(t, disagree(t.Context(), f, "active", id))
				before := f.read(t)
				a.park(t, 7)
				f.same(t, before)
			})
		})
	}
}

// The recovery of a worker's own attempt, whose acknowledgement was lost, parks the task, too, and
// uses no retry.
func TestRecoveryOfAParkedAttemptParks(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.enqueue(t, asynq.MaxRetry(0))
		a := w.take(t, id)
		a.ours.Park(asynqredis.Park{At: time.Now().Add(time.Hour), Ticket: 7})
		f.expire(t, id)
		f.recoverExpired(t, w.hook)
		f.wantIn(t, id, "retry")
		if info := f.info(t); info.Processed != 0 || info.Failed != 0 {
			t.Errorf("want nothing counted, have %d processed, %d failed", info.Processed, info.Failed)
		}
		f.wake(t, id, 7, asynqredis.Woken)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
