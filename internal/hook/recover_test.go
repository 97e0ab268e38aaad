package hook_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

// orphans returns the orphans of the queue, by id.
func (f *fleet) orphans(t *testing.T) map[string]asynqredis.Orphan {
	t.Helper()
	found := map[string]asynqredis.Orphan{}
	list, err := asynqredis.Orphans(t.Context(), f.rdb, f.queue, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		found[s.ID] = s
	}
	return found
}

// left makes a task's lease end so many seconds from now.
func (f *fleet) left(t *testing.T, id string, seconds int64) {
	t.Helper()
	f.rescore(t, "lease", id, time.Now().Unix()+seconds)
}

// A task is an orphan once its lease has missed two heartbeats. A live worker's task is none. asynq
// takes the task for lost much later.
func TestOrphans(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w, plain := f.worker(t), f.plain(t)
		f.enqueue(t) // pending
		live, dead := w.next(t).id, f.enqueue(t, asynq.MaxRetry(3))
		w.take(t, dead)
		stranger := f.enqueue(t)
		plain.take(t, stranger)
		if have := f.orphans(t); len(have) != 0 {
			t.Errorf("want no orphan yet, have %v", have)
		}
		f.left(t, live, 21)
		f.left(t, dead, 15)
		f.left(t, stranger, 15)
		have := f.orphans(t)
		if len(have) != 2 {
			t.Fatalf("want two orphans, have %v", have)
		}
		s := have[dead]
		if !s.Known() || s.Type != "order:audit" || string(s.Payload) != `{"order":"7"}` || s.Retries != 3 || s.Crashes != 0 || s.Started {
			t.Errorf("want it as it was enqueued, have %+v", s)
		}
		if have[stranger].Known() {
			t.Error("want one that was dequeued without the hook not known")
		}
		before := f.check(t)
		if moved, err := asynqredis.Recover(t.Context(), f.rdb, have[stranger], "crash"); moved || err != nil {
			t.Errorf("want it left alone, have %v, %v", moved, err)
		}
		f.unchanged(t, before)
	})
}

// A recovered task goes to the tail. Only the crash is counted, also on the last attempt.
func TestRecoverRequeuesAtTheTail(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		task := asynq.NewTaskWithHeaders("order:audit", []byte(`{"order":"7"}`), map[string]string{"siding-resource": "order:7", "": "none"})
		info, err := f.client.EnqueueContext(t.Context(), task, asynq.Queue(f.queue), asynq.MaxRetry(0), asynq.Unique(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		id := info.ID
		zombie := w.take(t, id)
		others := f.others(t, 2)
		stats := f.info(t)
		for crash := 1; crash <= 2; crash++ {
			f.left(t, id, 15)
			s := f.orphans(t)[id]
			if diff := cmp.Diff(map[string]string{"siding-resource": "order:7", "": "none"}, s.Headers); diff != "" {
				t.Errorf("headers (-want +have):\n%s", diff)
			}
			if s.Crashes != crash-1 {
				t.Errorf("want %d crashes so far, have %d", crash-1, s.Crashes)
			}
			if moved, err := asynqredis.Recover(t.Context(), f.rdb, s, "crash"); !moved || err != nil {
				t.Fatalf("want it requeued, have %v, %v", moved, err)
			}
			before := f.check(t)
			f.wantPending(t, append(append([]string{}, others...), id)...)
			if moved, err := asynqredis.Recover(t.Context(), f.rdb, s, "again"); moved || err != nil {
				t.Errorf("want a second call to move nothing, have %v, %v", moved, err)
			}
			zombie.ours.Park(asynqredis.Park{At: time.Now(), Ticket: 7})
			if crash == 1 {
				zombie.mustEnd(t, errWaiting) // too late
			}
			f.unchanged(t, before)
			have := f.task(t, id)
			if have.Retried != 0 || have.LastErr != "crash" {
				t.Errorf("want no retry used, and the reason, have %+v", have)
			}
			if now := f.info(t); now.Processed != stats.Processed || now.Failed != stats.Failed {
				t.Errorf("want nothing counted, have %+v", now)
			}
			for range others {
				w.next(t).park(t, 0)
			}
			others = nil
			last := w.take(t, id)
			if crash == 2 {
				last.mustEnd(t, nil)
			}
		}
		if have := f.check(t).places()[id]; len(have) != 0 {
			t.Errorf("want it done, have it in %v", have)
		}
	})
}

// Recover leaves alone a task that has changed since it was listed.
func TestRecoverOfWhatHasMovedOn(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(t *testing.T, f *fleet, w *worker, a *run){
		"a beat came":   func(t *testing.T, f *fleet, _ *worker, a *run) { t.Helper(); f.left(t, a.id, 30) },
		"it ended":      func(t *testing.T, _ *fleet, _ *worker, a *run) { t.Helper(); a.mustEnd(t, nil) },
		"it failed":     func(t *testing.T, _ *fleet, _ *worker, a *run) { t.Helper(); a.mustEnd(t, errOwn) },
		"it was parked": func(t *testing.T, _ *fleet, _ *worker, a *run) { t.Helper(); a.park(t, 7) },
		"it was recovered": func(t *testing.T, f *fleet, _ *worker, a *run) {
			t.Helper()
			f.expire(t, a.id)
			f.recoverExpired(t, nil)
		},
		"taken anew, an orphan again": func(t *testing.T, f *fleet, w *worker, a *run) {
			t.Helper()
			f.expire(t, a.id)
			f.recoverExpired(t, nil)
			f.runNow(t, a.id)
			w.take(t, a.id)
			f.left(t, a.id, 10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				a := f.worker(t).take(t, f.enqueue(t))
				f.left(t, a.id, 15)
				s := f.orphans(t)[a.id]
				move(t, f, f.worker(t), a)
				before := f.check(t)
				if moved, err := asynqredis.Recover(t.Context(), f.rdb, s, "crash"); moved || err != nil {
					t.Errorf("want it left alone, have %v, %v", moved, err)
				}
				f.unchanged(t, before)
			})
		})
	}
}

// The mark is that of one attempt, and of one that is the latest.
func TestBegin(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		a := w.take(t, f.enqueue(t))
		begin := func(want bool) {
			t.Helper()
			if have, err := a.ours.MarkStarted(t.Context(), f.rdb); have != want || err != nil {
				t.Fatalf("want %v, have %v, %v", want, have, err)
			}
		}
		begin(true)
		f.left(t, a.id, 15)
		s := f.orphans(t)[a.id]
		if !s.Started {
			t.Error("want it started")
		}
		must(t, a.ours.UnmarkStarted(t.Context(), f.rdb))
		if f.orphans(t)[a.id].Started {
			t.Error("want it not started after all")
		}
		begin(true)
		if moved, err := asynqredis.Recover(t.Context(), f.rdb, s, "crash"); !moved || err != nil {
			t.Fatalf("want it requeued, have %v, %v", moved, err)
		}
		begin(false)
		late := a
		a = w.take(t, a.id)
		f.left(t, a.id, 15)
		if f.orphans(t)[a.id].Started {
			t.Error("want the second attempt not started")
		}
		begin(true)
		must(t, late.ours.UnmarkStarted(t.Context(), f.rdb))
		if !f.orphans(t)[a.id].Started {
			t.Error("want the mark of the later attempt kept")
		}
		a.mustEnd(t, nil)
		a = late
		begin(false)
		if n := f.rdb.Exists(t.Context(), f.prefix()+"t:"+a.id).Val(); n != 0 {
			t.Error("want no hash made for a task that is gone")
		}
	})
}

// There are more orphans than one call lists.
func TestOrphansInBatches(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		const extra = 7
		for i := range asynqredis.OrphanBatch + extra {
			must(t, f.rdb.ZAdd(t.Context(), f.prefix()+"lease", redis.Z{Score: float64(i), Member: string(rune('a' + i))}).Err())
		}
		first, err1 := asynqredis.Orphans(t.Context(), f.rdb, f.queue, 0)
		rest, err2 := asynqredis.Orphans(t.Context(), f.rdb, f.queue, len(first))
		if err1 != nil || err2 != nil || len(first) != asynqredis.OrphanBatch || len(rest) != extra || rest[0].ID == first[0].ID {
			t.Errorf("want %d and %d others, have %d and %d, %v, %v", asynqredis.OrphanBatch, extra, len(first), len(rest), err1, err2)
		}
	})
}

// A loss is counted once for each attempt, whose latest must be the one that says so.
func TestLossesAreCounted(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.enqueue(t)
		want := func(a *run, times int) {
			t.Helper()
			if have, err := a.ours.CountLoss(t.Context(), f.rdb); have != times || err != nil {
				t.Errorf("want %d losses, have %d, %v", times, have, err)
			}
		}
		first := w.take(t, id)
		want(first, 1)
		want(first, 1) // its answer was lost
		first.park(t, 7)
		want(first, 0)
		f.wake(t, id, 7, asynqredis.Woken)
		second := w.take(t, id)
		want(first, 0)
		want(second, 2)
		second.mustEnd(t, nil)
		want(second, 0)
		if n := f.rdb.Exists(t.Context(), "asynq:{"+f.queue+"}:t:"+id).Val(); n != 0 {
			t.Error("want the task gone, and not created anew")
		}
	})
}

func TestLease(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		active, lease := "asynq:{"+f.queue+"}:active", "asynq:{"+f.queue+"}:lease"
		kept, lost, pending := f.enqueue(t), f.enqueue(t), f.enqueue(t)
		runs := []*run{w.take(t, kept), w.take(t, lost)}
		ends := f.rdb.ZScore(t.Context(), lease, kept).Val()
		must(t, f.rdb.ZRem(t.Context(), lease, lost).Err())
		for _, want := range []int{1, 0} {
			if have, err := asynqredis.Lease(t.Context(), f.rdb, f.queue); have != want || err != nil {
				t.Errorf("want %d given a lease, have %d, %v", want, have, err)
			}
		}
		if have := f.rdb.ZScore(t.Context(), lease, kept).Val(); have != ends {
			t.Errorf("want a lease that is there left as it is, %v, have %v", ends, have)
		}
		now := float64(time.Now().Unix())
		if have := f.rdb.ZScore(t.Context(), lease, lost).Val(); have < now+25 || have > now+31 {
			t.Errorf("want a lease of 30 s, have one of %v", have-now)
		}
		if err := f.rdb.ZScore(t.Context(), lease, pending).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("want no lease of one that is not active, have %v", err)
		}
		for _, run := range runs {
			run.mustEnd(t, nil)
		}
		f.check(t)
		ids := make([]any, 2500)
		for i := range ids {
			ids[i] = strconv.Itoa(i)
		}
		must(t, f.rdb.RPush(t.Context(), active, ids...).Err())
		if have, err := asynqredis.Lease(t.Context(), f.rdb, f.queue); have != len(ids) || err != nil {
			t.Errorf("want %d given a lease, have %d, %v", len(ids), have, err)
		}
	})
}
