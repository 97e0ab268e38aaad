package hook_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/verify/model"
	"github.com/sidingq/siding/lock"
)

// The moves of the model, made with the real scripts. Time passes when the walk
// says so.

const (
	foreignValue = "a program on the plain protocol"
	farAway      = time.Hour
)

// move makes a step on Redis; before is the model's state until then.
func (w *twin) move(t *testing.T, before *model.State, step model.Step) {
	t.Helper()
	m := step.Move
	switch m.Kind {
	case model.Dequeue:
		w.dequeue(t, before, m)
	case model.Acquire:
		w.acquire(t, before, m, step.Move.Outcome)
	case model.Park, model.Acknowledge:
		w.acknowledge(t, before.Attempts[m.Slot], m, step.Move.Outcome)
	case model.Write:
		f := w.fencesOf(m.Task)
		f.seen = max(f.seen, w.attempts[m.Slot].fence)
	case model.Finish:
		w.finish(t, before, m, step.Move.Outcome)
	case model.TakePrefetched, model.Requeue:
		w.prefetched(t, before, m, step.Move.Outcome)
	case model.Release, model.Fail, model.GiveBack:
		w.release(t, before, m, step.Move.Outcome)
	case model.Rejoin:
		w.rejoin(t, before, m, step.Move.Outcome)
	case model.LoseResult:
		w.dead = append(w.dead, w.attempts[m.Slot])
		delete(w.attempts, m.Slot)
	case model.LoseRelease:
		a := w.attempts[m.Slot]
		w.dead = append(w.dead, &liveAttempt{token: a.token})
		a.token = ""
	case model.Wake, model.Confirm, model.Leave, model.Skip, model.GiveUp:
		w.wake(t, before, m, step.Move.Outcome)
	case model.Sweep, model.Miss, model.Restore, model.Enlist:
		w.sweep(t, before, m, step.Move.Outcome)
	case model.Find, model.HandOff, model.Recover:
		w.recover(t, before, m, step.Move.Outcome)
	case model.Crash:
		w.crash(before, m.Worker)
	case model.Stall: // its renewals do not come, as in all of this test
	default:
		w.outside(t, m)
	}
}

// dequeue lets a server take the next task. Each attempt gets a server on which nothing is left.
// For a hook that still knows an attempt of the task might take one for the other. And a server
// that shuts down requeues all that it runs.
func (w *twin) dequeue(t *testing.T, before *model.State, m model.Move) {
	t.Helper()
	if len(w.idle) == 0 {
		w.idle = append(w.idle, w.f.fetchingWorker(t))
	}
	last := len(w.idle) - 1
	a := w.idle[last].take(t, w.id(m.Task))
	w.idle = w.idle[:last]
	for i := range before.Attempts {
		if before.Attempts[i].Task == 0 && w.state.Attempts[i].Task != 0 {
			w.attempts[uint8(i)] = &liveAttempt{run: a, name: w.f.read(t).task(a.id)["siding_attempt"]}
		}
	}
}

func (w *twin) acquire(t *testing.T, before *model.State, m model.Move, want model.Outcome) {
	t.Helper()
	a := w.attempts[m.Slot]
	a.nonce = uuid.NewString()
	a.token = w.token(m.Task, a.nonce)
	answer := w.ask(t, before, m, a.nonce, want)
	a.fence, a.ticket = answer.Fence, answer.Ticket
	if want == model.Joined && !a.started() {
		a.run = a.take(t, a.id) // the park answers asynq's call, so asynq must have the task first
	}
}

func (w *twin) token(id model.ID, nonce string) string { return "siding:" + nonce + ":" + w.id(id) }

// ask asks for the lock on behalf of an attempt.
func (w *twin) ask(t *testing.T, before *model.State, m model.Move, nonce string, want model.Outcome) store.Result {
	t.Helper()
	answer, err := w.store.Acquire(t.Context(), store.Request{
		Key: w.key(m.Resource), Token: w.token(m.Task, nonce), TTL: farAway, FenceTTL: farAway,
		Waiter: w.waiter(m.Task), Came: w.attempts[m.Slot].ours.Came, Handoff: handoff(nonce),
	})
	must(t, err)
	have := model.Joined
	if answer.Fence > 0 {
		have = model.Granted
	}
	if have != want {
		t.Fatalf("want the outcome %q, have %q", want, have)
	}
	f := w.fencesOf(m.Task)
	if have == model.Granted && answer.Fence <= f.last {
		t.Errorf("want a fence above %d, have %d", f.last, answer.Fence)
	}
	f.last = max(f.last, answer.Fence)
	w.keepNext(t, before, answer.Next)
	return answer
}

// rejoin has a requeued task join the wait queue again, before its handler releases the lock.
func (w *twin) rejoin(t *testing.T, before *model.State, m model.Move, want model.Outcome) {
	t.Helper()
	nonce := uuid.NewString()
	if w.ask(t, before, m, nonce, want); want == model.Granted {
		a := w.attempts[m.Slot]
		a.nonce, a.token = nonce, w.token(m.Task, nonce)
	}
}

// sweep makes a step of the sweeper: it looks at a lock, or for a task that is in no wait queue.
func (w *twin) sweep(t *testing.T, before *model.State, m model.Move, want model.Outcome) {
	t.Helper()
	sweeper, ok := w.store.(store.Sweeper)
	if !ok {
		t.Fatal("want a store that sweeps")
	}
	switch m.Kind {
	case model.Sweep:
		resumed := want == model.BroughtBack || !before.Paused
		found, err := sweeper.Sweep(t.Context(), []store.Ruled{{Key: w.key(m.Resource)}}, resumed, handoff(uuid.NewString()))
		must(t, err)
		var next *store.Reservation
		if len(found[0].Next) > 0 {
			next = found[0].Next[0]
		}
		w.keepNext(t, before, next)
	case model.Miss:
		found, err := asynqredis.StillWaiting(t.Context(), w.f.rdb, w.f.queue, []string{w.id(m.Task)})
		must(t, err)
		if len(found) != 1 || found[0].Lock != w.key(m.Resource) {
			t.Fatalf("want %s to wait for %s, have %v", w.id(m.Task), w.key(m.Resource), found)
		}
		w.loss = store.Queued{Key: found[0].Lock, Waiter: w.waiter(m.Task), Ticket: found[0].Ticket}
	case model.Enlist:
		must(t, w.f.rdb.ZRem(t.Context(), w.listKey(), w.key(m.Resource)).Err()) // when nobody waited
		_, _, err := asynqredis.AllWaiting(t.Context(), w.f.rdb, w.f.queue, "0")
		must(t, err)
	default:
		_, err := sweeper.Missing(t.Context(), []store.Queued{w.loss}, true, farAway)
		must(t, err)
	}
}

func (w *twin) release(t *testing.T, before *model.State, m model.Move, want model.Outcome) {
	t.Helper()
	a := w.attempts[m.Slot]
	next, err := w.store.Release(t.Context(), w.key(m.Resource), a.token, store.Release{Handoff: handoff(a.nonce)})
	have := model.OK
	if errors.Is(err, lock.ErrLost) {
		have, err = model.LostLease, nil
	}
	must(t, err)
	if have != want {
		t.Errorf("want the outcome %q, have %q", want, have)
	}
	w.keepNext(t, before, next)
	if m.Kind == model.GiveBack { // and has not started
		delete(w.attempts, m.Slot)
		w.idle = append(w.idle, a.worker)
	}
}

// finish ends an attempt in one step, which also takes the next task.
func (w *twin) finish(t *testing.T, before *model.State, m model.Move, want model.Outcome) {
	t.Helper()
	a := w.attempts[m.Slot]
	releases := before.Attempts[m.Slot].Phase == model.Wrote
	l := store.Release{Handoff: handoff(a.nonce)}
	if a.down { // its server has acknowledged it, and is down
		if releases {
			w.handOff(t, before, m, a, l)
		}
		delete(w.attempts, m.Slot)
		return
	}
	next, over := a.finish(t, before.Prefetch > 0, func(f *hook.Finish) {
		if l.Send = f.Send; releases {
			w.handOff(t, before, m, a, l)
			return
		}
		_, err := f.Send(t.Context(), nil, nil)
		must(t, err)
	})
	if over != (want != model.LostLease) {
		t.Fatalf("want the outcome %q, have the attempt over: %v", want, over)
	}
	if !over {
		return
	}
	a.mustEnd(t, nil)
	delete(w.attempts, m.Slot)
	for i := range w.state.Attempts {
		if n := &w.state.Attempts[i]; n.Task != 0 && w.attempts[uint8(i)] == nil {
			if next == nil || next.id != w.id(n.Task) {
				t.Fatalf("want %s prefetched, have %+v", w.id(n.Task), next)
			}
			w.attempts[uint8(i)] = &liveAttempt{run: next, name: w.f.read(t).task(next.id)["siding_attempt"]}
			return
		}
	}
	if next != nil {
		t.Fatalf("want no task prefetched, have %s", next.id)
	}
	w.idle = append(w.idle, a.worker)
}

// handOff releases the lock of an attempt, unless the attempt has lost it.
func (w *twin) handOff(t *testing.T, before *model.State, m model.Move, a *liveAttempt, l store.Release) {
	t.Helper()
	next, err := w.store.Release(t.Context(), w.key(m.Resource), a.token, l)
	if !errors.Is(err, lock.ErrLost) {
		must(t, err)
	}
	w.keepNext(t, before, next)
}

// prefetched starts the attempt of a prefetched task, or requeues the task.
func (w *twin) prefetched(t *testing.T, before *model.State, m model.Move, want model.Outcome) {
	t.Helper()
	a := w.attempts[m.Slot]
	if m.Kind == model.TakePrefetched {
		ours := a.ours
		if a.run = a.take(t, a.id); a.ours != ours {
			t.Errorf("want the attempt of %s that was prefetched, have another", a.id)
		}
		return
	}
	if moved := a.requeue(t, w.f.rdb); moved != (want == model.OK) {
		t.Errorf("want the outcome %q, have it requeued: %v", want, moved)
	}
	if w.state.Attempts[m.Slot].Task == 0 { // it has no lock to release
		delete(w.attempts, m.Slot)
		w.idle = append(w.idle, a.worker)
	}
}

func handoff(nonce string) store.Handoff {
	return store.Handoff{Nonce: nonce, Stepwise: true, Timeout: farAway, QueueTTL: farAway}
}

// keepNext keeps the reservation whose waiter the client has to wake.
func (w *twin) keepNext(t *testing.T, before *model.State, next *store.Reservation) {
	t.Helper()
	for i, c := range w.state.Wakers {
		if c == before.Wakers[i] || c.Stage != model.Waking || !c.Standing {
			continue // not a new one
		}
		if next == nil {
			t.Fatalf("want %s left to the client, have nobody", w.waiter(c.Task))
		}
		w.wakes[uint8(i)] = *next
		return
	}
	if next != nil {
		t.Errorf("want nobody left to the client, have %s", next.Waiter)
	}
}

// acknowledge ends an attempt as its guard would.
func (w *twin) acknowledge(t *testing.T, was model.Attempt, m model.Move, want model.Outcome) {
	t.Helper()
	a := w.attempts[m.Slot]
	delete(w.attempts, m.Slot)
	if a.down {
		return // with its server; the acknowledgement was the shutdown's
	}
	var err error
	switch was.Phase {
	case model.Busy:
		a.ours.Park(asynqredis.Park{At: time.Now().Add(farAway), Ticket: a.ticket, Key: w.key(m.Resource)})
		err = errWaiting
	case model.Lost:
		a.ours.Park(asynqredis.Park{At: time.Now().Add(farAway)})
		err = errWaiting
	case model.Failed:
		err = errOwn
	default: // it has succeeded
	}
	a.mustEnd(t, err)
	w.idle = append(w.idle, a.worker)
}

// wake makes a step of a waker.
func (w *twin) wake(t *testing.T, before *model.State, m model.Move, want model.Outcome) {
	t.Helper()
	r := w.wakes[m.Slot]
	if w.state.Wakers[m.Slot].Task == 0 || m.Kind == model.Leave || m.Kind == model.Skip {
		delete(w.wakes, m.Slot)
	}
	switch m.Kind {
	case model.Wake:
		have, err := asynqredis.Wake(t.Context(), w.f.rdb, w.f.queue, w.id(m.Task), r.Ticket)
		must(t, err)
		if string(have) != string(want) {
			t.Errorf("want the outcome %q, have %q", want, have)
		}
	case model.Confirm:
		must(t, w.store.Confirm(t.Context(), r))
	case model.Leave, model.Skip:
		next, err := w.store.Leave(t.Context(), w.key(m.Resource), r.Waiter, store.Leave{
			Handoff: handoff(uuid.NewString()), Reservation: r.Value, Paused: m.Kind == model.Skip,
		})
		must(t, err)
		w.keepNext(t, before, next)
	default: // it gives up
	}
}

// crash forgets what a worker had under way. The worker's servers stop when the round is over, as
// they requeue what they run.
func (w *twin) crash(before *model.State, worker uint8) {
	for i, a := range before.Attempts {
		if a.Task != 0 && a.Worker == worker {
			w.dead = append(w.dead, w.attempts[uint8(i)])
			delete(w.attempts, uint8(i))
		}
	}
	if before.Recovery != w.state.Recovery {
		w.dead = append(w.dead, &liveAttempt{token: w.recovery.token})
	}
	for i, c := range before.Wakers {
		if c.Task != 0 && c.Worker == worker {
			delete(w.wakes, uint8(i))
		}
	}
}

// recover makes a step of the recovery: it finds an orphan, hands off its lock if that was free,
// and moves it.
func (w *twin) recover(t *testing.T, before *model.State, m model.Move, want model.Outcome) {
	t.Helper()
	r := &w.recovery
	have := model.OK
	switch m.Kind {
	case model.Find:
		w.f.rescore(t, "lease", w.id(m.Task), time.Now().Unix()+10)
		r.orphan = w.orphans(t, w.id(m.Task))
		r.nonce = uuid.NewString()
		r.token = "siding:" + r.nonce + ":recovery"
		answer, err := w.store.Acquire(t.Context(), store.Request{
			Key: w.key(m.Resource), Token: r.token, TTL: farAway, FenceTTL: farAway, Handoff: handoff(r.nonce),
		})
		must(t, err)
		have = model.Joined
		if f := w.fencesOf(m.Task); answer.Fence > 0 {
			have, f.last = model.Granted, answer.Fence
		}
	case model.HandOff:
		next, err := w.store.Release(t.Context(), w.key(m.Resource), r.token, store.Release{Handoff: handoff(r.nonce)})
		if errors.Is(err, lock.ErrLost) {
			have, err = model.LostLease, nil
		}
		must(t, err)
		w.keepNext(t, before, next)
	default:
		moved, err := asynqredis.Recover(t.Context(), w.f.rdb, r.orphan, "its worker died")
		must(t, err)
		if !moved {
			have = model.Gone
		}
	}
	if have != want {
		t.Errorf("want the outcome %q, have %q", want, have)
	}
}

// orphans returns a task as the recovery finds it.
func (w *twin) orphans(t *testing.T, id string) asynqredis.Orphan {
	t.Helper()
	found, err := asynqredis.Orphans(t.Context(), w.f.rdb, w.f.queue, 0)
	must(t, err)
	i := slices.IndexFunc(found, func(task asynqredis.Orphan) bool { return task.ID == id })
	if i < 0 {
		t.Fatalf("want %s an orphan, have %v", id, found)
	}
	return found[i]
}

// outside makes the moves of others: of time, of asynq, of operators, of
// programs on the plain protocol.
func (w *twin) outside(t *testing.T, m model.Move) {
	t.Helper()
	ctx, queue, key := t.Context(), w.f.queue, w.key(m.Resource)
	id := ""
	if m.Task != 0 {
		id = w.id(m.Task)
	}
	switch m.Kind {
	case model.Timer, model.LastResort:
		w.f.rescore(t, "retry", id, time.Now().Unix()-1)
		w.clock.runTimers(t)
	case model.ExpireReservation, model.ExpireReservationEarly, model.Expire, model.ExpireAlive, model.DeleteLock, model.FreeForeign:
		must(t, w.f.rdb.PExpire(ctx, key, 0).Err())
	case model.TakeForeign:
		must(t, w.f.rdb.SetArgs(ctx, key, foreignValue, redis.SetArgs{Mode: "NX", TTL: farAway}).Err())
	case model.RecoverByAsynq:
		w.f.expire(t, id)
		w.f.recoverExpired(t, nil)
	case model.Shutdown:
		a := w.attempts[m.Slot]
		a.down = true
		a.stop()
	case model.Delete:
		must(t, w.f.inspector.DeleteTask(queue, id))
	case model.Archive:
		must(t, w.f.inspector.ArchiveTask(queue, id))
	case model.Run:
		must(t, w.f.inspector.RunTask(queue, id))
	case model.Pause:
		must(t, w.f.inspector.PauseQueue(queue))
	case model.Resume:
		must(t, w.f.inspector.UnpauseQueue(queue))
	default:
		t.Fatalf("the walk does not know how to make the move %q", m)
	}
}
