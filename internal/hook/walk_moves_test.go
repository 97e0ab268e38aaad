package hook_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/hook"
)

// The moves of a random walk: each is made on Redis and on the model.

func (w *walk) enqueue(t *testing.T) {
	t.Helper()
	moving := 0
	for _, m := range w.tasks {
		if !in("archived", "completed")(m) {
			moving++
		}
	}
	if moving >= 12 {
		return
	}
	w.created++
	id := fmt.Sprintf("task-%d", w.created)
	m := &modelTask{state: "pending", max: w.rand.IntN(3), retention: w.rand.IntN(8) == 0}
	opts := []asynq.Option{asynq.TaskID(id), asynq.MaxRetry(m.max)}
	if m.retention {
		opts = append(opts, asynq.Retention(time.Hour))
	}
	if w.rand.IntN(6) == 0 {
		m.state = "scheduled"
		opts = append(opts, asynq.ProcessIn(time.Hour))
	} else {
		w.pending = append(w.pending, id)
	}
	w.f.enqueue(t, opts...)
	w.tasks[id] = m
	w.did("enqueue %s max %d %s", id, m.max, m.state)
}

func (w *walk) dequeue(t *testing.T) {
	t.Helper()
	taker := w.workers[w.rand.IntN(len(w.workers))]
	if known := taker.fetcher.prefetched(); len(known) > 0 {
		w.tasks[known[0].ID].run = taker.take(t, known[0].ID)
		w.did("take %s: done", known[0].ID)
		return
	}
	want := ""
	if !w.paused && len(w.pending) > 0 {
		want = w.pending[0]
		// A hook tells attempts of a task apart by the second only. So the other worker takes a
		// task of which this one still has an attempt, unless the other has prefetched one.
		if other := w.workers[1-slices.Index(w.workers, taker)]; w.lateOf(want, taker) >= 0 && len(other.fetcher.prefetched()) == 0 {
			taker = other
		}
		w.endLateOf(t, want, taker)
		w.pending = w.pending[1:]
	}
	a := taker.next(t)
	w.did("dequeue %q: %v", want, want != "")
	if want == "" {
		if a != nil {
			t.Fatalf("want no task, have %s", a.id)
		}
		return
	}
	if a == nil || a.id != want {
		t.Fatalf("want task %s, have %v", want, a)
	}
	m := w.tasks[want]
	m.state, m.ticket, m.woken, m.run = "active", "", "", a
}

// lateOf returns the place of a worker's late attempt of a task, -1 if there is none.
func (w *walk) lateOf(id string, by *worker) int {
	return slices.IndexFunc(w.late, func(a *run) bool { return a.id == id && a.worker == by })
}

func (w *walk) endLateOf(t *testing.T, id string, by *worker) {
	t.Helper()
	if i := w.lateOf(id, by); i >= 0 {
		w.endLateAt(t, i)
	}
}

// park ends an attempt as the guard does when the lock is taken.
func (w *walk) park(t *testing.T) {
	t.Helper()
	id, m := w.pick(started)
	if m == nil {
		return
	}
	at := time.Now().Add(time.Hour)
	if w.rand.IntN(3) == 0 {
		at = time.Now().Add(-time.Duration(w.rand.IntN(50)) * time.Second) // due at once
	}
	ticket := w.rand.Int64N(4) // 0 is in no wait queue
	m.parked++
	m.run.ours.Park(asynqredis.Park{At: at, Ticket: ticket, Reason: errWaiting.Error(), Done: func(n int) {
		if n != m.parked {
			t.Errorf("want parking %d of %s, have %d", m.parked, id, n)
		}
	}})
	m.run.mustEnd(t, errWaiting)
	m.reason, m.run, m.ticket = errWaiting.Error(), nil, ""
	if m.failure != "" {
		m.reason += "; last failure: " + m.failure
	}
	if ticket != 0 {
		m.ticket = strconv.FormatInt(ticket, 10)
	}
	if m.ticket != "" && m.woken != "" {
		m.state = "pending"
		w.pending = append([]string{id}, w.pending...)
	} else {
		m.state, m.at = "retry", at.Unix()
	}
	w.did("park %s under %d: %s", id, ticket, m.state)
}

func (w *walk) wake(t *testing.T) {
	t.Helper()
	likely := w.rand.IntN(3) > 0
	id, m := w.pick(func(m *modelTask) bool { return !likely || m.ticket != "" || m.state == "active" })
	if m == nil || w.rand.IntN(20) == 0 {
		id, m = "task-0", &modelTask{state: "nowhere"} // never was
	}
	ticket := 1 + w.rand.Int64N(3)
	if m.ticket != "" && w.rand.IntN(3) > 0 {
		ticket, _ = strconv.ParseInt(m.ticket, 10, 64)
	}
	text := strconv.FormatInt(ticket, 10)
	var want asynqredis.WakeResult
	switch {
	case m.state != "active" && m.ticket != text:
		want = asynqredis.Gone
	case w.paused:
		want = asynqredis.Paused
	case m.state == "active":
		want = asynqredis.Marked
		m.woken = "1"
	case m.state == "retry" || m.state == "pending":
		want = asynqredis.Woken
		w.pending = slices.DeleteFunc(w.pending, func(p string) bool { return p == id })
		w.pending = append([]string{id}, w.pending...)
		m.state = "pending"
	default:
		want = asynqredis.Gone
	}
	w.did("wake %s under %s: %s", id, text, want)
	w.f.wake(t, id, ticket, want)
}

func (w *walk) succeed(t *testing.T) {
	t.Helper()
	id, m := w.pick(started)
	if m == nil {
		return
	}
	m.run.mustEnd(t, nil)
	w.done(id, m)
	w.did("succeed %s: done", id)
}

func (w *walk) done(id string, m *modelTask) {
	m.run = nil
	w.processed++
	if m.retention {
		m.state, m.reason = "completed", m.failure
	} else {
		delete(w.tasks, id)
	}
}

// finish is succeed in one step, which also prefetches the next task.
func (w *walk) finish(t *testing.T) {
	t.Helper()
	id, m := w.pick(started)
	if m == nil {
		return
	}
	a, want := m.run, ""
	if !w.paused && len(w.pending) > 0 {
		want = w.pending[0]
		w.endLateOf(t, want, a.worker)
		w.pending = w.pending[1:]
	}
	next, over := a.finish(t, true, func(f *hook.Finish) {
		_, err := f.Send(t.Context(), nil, nil)
		must(t, err)
	})
	if have := next != nil; !over || have != (want != "") || have && next.id != want {
		t.Fatalf("want %s over, and %q prefetched; have it over: %v, and %+v", id, want, over, next)
	}
	a.mustEnd(t, nil)
	w.done(id, m)
	if want != "" {
		m := w.tasks[want]
		m.state, m.ticket, m.woken, m.run = "active", "", "", next
	}
	w.did("finish %s, and take %q: %v", id, want, want != "")
}

// requeue requeues a prefetched task that no dequeue took. That fails if asynq has taken the task
// from its attempt before.
func (w *walk) requeue(t *testing.T) {
	t.Helper()
	id, m := w.pick(func(m *modelTask) bool { return m.state == "active" && !m.run.started() })
	if m == nil {
		return
	}
	a, expires := m.run, w.rand.IntN(3) == 0
	if expires {
		w.f.expire(t, id)
		w.f.recoverExpired(t, nil)
		w.failure(m, asynq.ErrLeaseExpired)
	} else {
		m.state, m.run, m.ticket = "pending", nil, strconv.FormatInt(a.ours.Came, 10)
		w.pending = append([]string{id}, w.pending...)
	}
	if moved := a.requeue(t, w.f.rdb); moved == expires {
		t.Errorf("%s: want it requeued: %v, have %v", id, !expires, moved)
	}
	w.did("requeue %s: %s", id, m.state)
}

// fail is the task's own failure.
func (w *walk) fail(t *testing.T) {
	t.Helper()
	id, m := w.pick(started)
	if m == nil {
		return
	}
	m.run.mustEnd(t, errOwn)
	w.failure(m, errOwn)
	w.did("fail %s: %s", id, m.state)
}

func (w *walk) failure(m *modelTask, err error) {
	w.processed++
	w.failed++
	m.run, m.reason, m.failure, m.at = nil, err.Error(), err.Error(), 0
	if m.retried >= m.max {
		m.state = "archived"
		return
	}
	m.retried++
	m.state = "retry"
}

// operate does what somebody does in the dashboard.
func (w *walk) operate(t *testing.T) {
	t.Helper()
	id, m := w.pick(func(m *modelTask) bool { return m.state != "active" })
	if m == nil {
		return
	}
	leave := func() { w.pending = slices.DeleteFunc(w.pending, func(p string) bool { return p == id }) }
	switch w.rand.IntN(3) {
	case 0:
		must(t, w.f.inspector.DeleteTask(w.f.queue, id))
		leave()
		delete(w.tasks, id)
		w.did("delete %s: done", id)
	case 1:
		if m.state == "archived" {
			return
		}
		must(t, w.f.inspector.ArchiveTask(w.f.queue, id))
		leave()
		m.state = "archived"
		w.did("archive %s: done", id)
	case 2:
		if m.state == "pending" {
			return
		}
		must(t, w.f.inspector.RunTask(w.f.queue, id))
		m.state = "pending"
		w.pending = append(w.pending, id)
		w.did("run %s: done", id)
	}
}

func (w *walk) pause(t *testing.T) {
	t.Helper()
	if w.paused {
		must(t, w.f.inspector.UnpauseQueue(w.f.queue))
	} else if w.rand.IntN(2) == 0 {
		return // more time without a pause than with one
	} else {
		must(t, w.f.inspector.PauseQueue(w.f.queue))
	}
	w.paused = !w.paused
	w.did("pause %v", w.paused)
}

// makeDue lets the time of a delayed task come.
func (w *walk) makeDue(t *testing.T) {
	t.Helper()
	id, m := w.pick(in("scheduled", "retry"))
	if m == nil {
		return
	}
	m.at = time.Now().Unix() - w.rand.Int64N(50)
	w.f.rescore(t, m.state, id, m.at)
	w.did("due %s at %d: %s", id, m.at, m.state)
}

func (w *walk) runTimers(t *testing.T) {
	t.Helper()
	now, before := time.Now().Unix(), len(w.pending)
	w.workers[w.rand.IntN(len(w.workers))].runTimers(t)
	for _, set := range []string{"scheduled", "retry"} {
		var due []string
		for id, m := range w.tasks {
			if m.state == set && m.at != 0 && m.at <= now {
				due = append(due, id)
			}
		}
		slices.SortFunc(due, func(a, b string) int {
			return cmp.Or(cmp.Compare(w.tasks[a].at, w.tasks[b].at), cmp.Compare(a, b))
		})
		for _, id := range due {
			w.tasks[id].state, w.tasks[id].at = "pending", 0
		}
		w.pending = append(w.pending, due...)
	}
	w.did("forwarder: %d due", len(w.pending)-before)
}

// recover lets a lease expire and asynq find it.
func (w *walk) recover(t *testing.T) {
	t.Helper()
	id, m := w.pick(started)
	if m == nil {
		return
	}
	w.late = append(w.late, m.run)
	w.f.expire(t, id)
	w.f.recoverExpired(t, nil)
	w.failure(m, asynq.ErrLeaseExpired)
	w.did("recover %s: %s", id, m.state)
}

// endLate lets an attempt that lost its task come to its end: nothing moves.
func (w *walk) endLate(t *testing.T) {
	t.Helper()
	// Best while its task runs again elsewhere; the others come, too.
	i := slices.IndexFunc(w.late, func(a *run) bool { m := w.tasks[a.id]; return m != nil && m.state == "active" })
	if i < 0 && len(w.late) > 0 && w.rand.IntN(5) == 0 {
		i = w.rand.IntN(len(w.late))
	}
	if i >= 0 {
		w.endLateAt(t, i)
	}
}

func (w *walk) endLateAt(t *testing.T, i int) {
	t.Helper()
	a := w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	how, err := "parks", errWaiting
	switch w.rand.IntN(3) {
	case 0:
		how, err = "succeeds", nil
	case 1:
		how, err = "fails", errOwn
	default:
		a.ours.Park(asynqredis.Park{At: time.Now(), Ticket: 1 + w.rand.Int64N(3), Done: func(int) {
			t.Errorf("want no parking by a late attempt of %s", a.id)
		}})
	}
	a.mustEnd(t, err)
	state := "gone"
	if m := w.tasks[a.id]; m != nil {
		state = m.state
	}
	w.did("late %s %s: %s", a.id, how, state)
}
