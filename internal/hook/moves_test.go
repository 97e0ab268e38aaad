package hook_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
)

// normal makes the states of two queues comparable. It leaves out what is ours, gives the queues
// one name, and counts times by the minute from now on.
func (s *state) normal(queue string) *state {
	now := time.Now().Unix()
	n := &state{
		strings: s.strings, lists: s.lists, expires: s.expires,
		scores: map[string]map[string]int64{}, hashes: map[string]map[string]string{},
	}
	for set, scores := range s.scores {
		n.scores[set] = maps.Clone(scores)
		for id, score := range scores {
			n.scores[set][id] = (score - now + 15) / 60 // all of them lie on whole or half minutes
		}
	}
	for name, task := range s.hashes {
		n.hashes[name] = map[string]string{}
		for field, value := range task {
			if slices.Contains(ourFields, field) {
				continue
			}
			if field == "pending_since" {
				value = "some time"
			}
			n.hashes[name][field] = strings.ReplaceAll(value, queue, "the queue")
		}
	}
	return n
}

// Two queues get the same tasks; one is worked off through the hook, one by
// plain asynq. After every dequeue they must hold the same.
func TestDequeueDoesWhatAsynqDoes(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, ours *fleet) {
		t.Helper()
		theirs := *ours
		theirs.queue = strings.Replace(ours.queue, "q-", "p-", 1)
		prepare := func(f *fleet) {
			// One whose hash an operator has deleted by hand.
			f.enqueue(t, asynq.TaskID("bare"))
			f.rdb.Del(t.Context(), f.prefix()+"t:bare")
			for i, opts := range [][]asynq.Option{
				{},
				{asynq.MaxRetry(0), asynq.Timeout(time.Minute)},
				{asynq.Unique(time.Hour), asynq.Retention(time.Hour)},
				{asynq.ProcessIn(time.Hour)},
				{asynq.Deadline(time.Now().Add(time.Hour).Truncate(time.Hour))},
			} {
				f.enqueue(t, append(opts, asynq.TaskID(fmt.Sprint("task-", i)))...)
			}
		}
		prepare(ours)
		prepare(&theirs)
		a, b := ours.worker(t), theirs.plain(t)
		for step := range 7 { // the bare one, 4 tasks, then none twice
			have, want := a.next(t), b.next(t)
			if (have == nil) != (want == nil) {
				t.Fatalf("step %d: want a task as asynq has: %v, have %v", step, want, have)
			}
			if want != nil {
				if have.id != want.id || have.task.Type() != want.task.Type() || string(have.task.Payload()) != string(want.task.Payload()) {
					t.Errorf("step %d: want task %s, have %s", step, want.id, have.id)
				}
			}
			compare(t, ours, &theirs)
		}
	})
}

// compare fails the test unless two queues are equal but for our fields.
func compare(t *testing.T, ours, theirs *fleet) {
	t.Helper()
	want, have := theirs.read(t).normal(theirs.queue), ours.read(t).normal(ours.queue)
	if diff := cmp.Diff(want, have, cmp.AllowUnexported(state{})); diff != "" {
		t.Fatalf("(-asynq's +ours):\n%s", diff)
	}
	if want, have := theirs.info(t), ours.info(t); want.Size != have.Size || want.Paused != have.Paused {
		t.Errorf("want the size %d, paused %v, have %d, %v", want.Size, want.Paused, have.Size, have.Paused)
	}
}

func TestDequeueLeavesPausedAndEmptyQueuesAlone(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.enqueue(t)
		if err := f.inspector.PauseQueue(f.queue); err != nil {
			t.Fatal(err)
		}
		before := f.check(t)
		if a := w.next(t); a != nil {
			t.Errorf("want nothing from a paused queue, have %s", a.id)
		}
		f.unchanged(t, before)
		if err := f.inspector.UnpauseQueue(f.queue); err != nil {
			t.Fatal(err)
		}
		w.take(t, id).mustEnd(t, nil)
		before = f.check(t)
		if a := w.next(t); a != nil {
			t.Errorf("want nothing from an empty queue, have %s", a.id)
		}
		f.unchanged(t, before)
	})
}

// unchanged fails the test if the queue is not sound, or not as it was.
func (f *fleet) unchanged(t *testing.T, before *state) {
	t.Helper()
	f.check(t)
	f.same(t, before)
}

// same fails the test if the queue is not as it was.
func (f *fleet) same(t *testing.T, before *state) {
	t.Helper()
	if diff := cmp.Diff(before, f.read(t), cmp.AllowUnexported(state{})); diff != "" {
		t.Errorf("want nothing changed (-before +after):\n%s", diff)
	}
}

func TestDequeueStampsEachAttemptAndWipesMarksOfParking(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.enqueue(t)
		a := w.take(t, id)
		first := f.check(t).task(id)["siding_attempt"]
		if first == "" {
			t.Fatal("want the attempt's name in the task's hash, have none")
		}
		f.wake(t, id, 6, asynqredis.Marked)
		a.park(t, 6)
		parked := f.check(t).task(id)
		if parked["siding_ticket"] != "6" || parked["siding_woken"] != "1" || parked["siding_parked"] != "1" {
			t.Fatalf("want the marks of a parking, have %v", parked)
		}
		w.take(t, id)
		again := f.check(t).task(id)
		want := map[string]string{
			"msg": again["msg"], "state": "active", "siding_parked": "1", "siding_attempt": again["siding_attempt"],
			"siding_came": again["siding_attempt"] + " 6 -1 ",
		}
		if diff := cmp.Diff(want, again); diff != "" {
			t.Errorf("(-want +have):\n%s", diff)
		}
		if again["siding_attempt"] == first {
			t.Errorf("want another name for another attempt, have %q twice", first)
		}
	})
}

// A task that comes to its end by itself ends as without the hook.
func TestAcknowledgementsDoWhatAsynqDoes(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		opts []asynq.Option
		err  error
	}{
		"done":                 {},
		"done, unique":         {opts: []asynq.Option{asynq.Unique(time.Hour)}},
		"completed":            {opts: []asynq.Option{asynq.Retention(time.Hour)}},
		"completed, unique":    {opts: []asynq.Option{asynq.Retention(time.Hour), asynq.Unique(time.Hour)}},
		"failed":               {err: errOwn},
		"failed, last attempt": {opts: []asynq.Option{asynq.MaxRetry(0)}, err: errOwn},
		"skipped":              {err: asynq.SkipRetry},
		"revoked":              {err: asynq.RevokeTask},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, ours *fleet) {
				t.Helper()
				theirs := *ours
				theirs.queue = strings.Replace(ours.queue, "q-", "p-", 1)
				for f, w := range map[*fleet]*worker{ours: ours.worker(t), &theirs: theirs.plain(t)} {
					id := f.enqueue(t, append(end.opts, asynq.TaskID("task"))...)
					w.take(t, id).mustEnd(t, end.err)
					if w.hook != nil && w.hook.Attempt(f.queue, id) != nil {
						t.Error("want the attempt forgotten, have it still")
					}
				}
				ours.check(t)
				compareFailed(t, ours, &theirs)
			})
		})
	}
}

// compareFailed is compare for messages that may hold the time of a failure or of a completion. Two
// runs may have these in different seconds.
func compareFailed(t *testing.T, ours, theirs *fleet) {
	t.Helper()
	for _, f := range []*fleet{ours, theirs} {
		for name := range f.read(t).hashes {
			info := f.task(t, strings.TrimPrefix(name, "t:"))
			info.Queue, info.NextProcessAt = "", time.Time{}
			for _, at := range []*time.Time{&info.LastFailedAt, &info.CompletedAt} {
				if !at.IsZero() {
					*at = time.Unix(1, 0)
				}
			}
			f.rdb.HSet(t.Context(), f.prefix()+name, "msg", fmt.Sprintf("%+v", *info))
		}
	}
	compare(t, ours, theirs)
}

func TestRequeuePassesThrough(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.enqueue(t)
		f.enqueue(t)
		a := w.take(t, id)
		a.ours.Park(asynqredis.Park{At: time.Now().Add(time.Hour)}) // too late, and asynq requeues it
		w.stop()
		if have := f.check(t).pending(); len(have) != 2 || have[0] != id {
			t.Errorf("want %s first of two, have %v", id, have)
		}
		if w.hook.Attempt(f.queue, id) != nil {
			t.Error("want the attempt forgotten, have it still")
		}
	})
}

// wake calls Wake and compares its outcome.
func (f *fleet) wake(t *testing.T, id string, ticket int64, want asynqredis.WakeResult) {
	t.Helper()
	have, err := asynqredis.Wake(t.Context(), f.rdb, f.queue, id, ticket)
	if err != nil {
		t.Fatal(err)
	}
	if have != want {
		t.Errorf("wake %s under %d: want %q, have %q", id, ticket, want, have)
	}
}
