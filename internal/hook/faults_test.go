package hook_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// All scripts are gone from Redis before every call.
func TestMovesSurviveAScriptFlush(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Addr)
	flush := func() { must(t, f.rdb.ScriptFlush(t.Context()).Err()) }
	w := f.worker(t)
	id := f.enqueue(t, asynq.MaxRetry(0))
	flush()
	a := w.take(t, id)
	flush()
	f.wake(t, id, 7, asynqredis.Marked)
	flush()
	a.park(t, 7)
	flush()
	w.take(t, id).park(t, 8)
	flush()
	f.wake(t, id, 8, asynqredis.Woken)
	f.check(t)
	flush()
	a = w.take(t, id)
	flush()
	a.mustEnd(t, nil)
	f.wantEmpty(t)
}

// A Redis that takes no writes rejects the parking. asynq gets the error, and the task stays
// active. It is parked when its worker finds it again.
func TestParkRefusedByRedisIsNotLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Addr)
	w := f.worker(t)
	id := f.enqueue(t, asynq.MaxRetry(0))
	a := w.take(t, id)
	before := f.check(t)
	must(t, f.rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	a.ours.Park(asynqredis.Park{At: time.Now().Add(time.Hour), Ticket: 7})
	if err := a.end(t, errWaiting); err == nil || !redis.HasErrorPrefix(err, "NOREPLICAS") {
		t.Errorf("want Redis's own NOREPLICAS, have %v", err)
	}
	if have, err := asynqredis.Wake(t.Context(), f.rdb, f.queue, id, 7); err == nil {
		t.Errorf("want an error from Wake too, have %q", have)
	}
	must(t, f.rdb.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	f.unchanged(t, before)
	f.expire(t, id)
	f.recoverExpired(t, w.hook)
	f.wantIn(t, id, "retry")
}

// A full Redis must not refuse a move half-way, with the task out of one set. Redis refuses only a
// first write that needs memory, and no later one.
func TestMovesAreWholeWhenMemoryIsFull(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Addr)
	w := f.worker(t)
	tail, active := f.parked(t, w, 6), f.enqueue(t)
	a := w.take(t, active)
	f.wake(t, active, 7, asynqredis.Marked)
	id := f.enqueue(t)
	b := w.take(t, id)
	f.runNow(t, tail)
	f.others(t, 1)
	must(t, f.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	park := func(a *run, ticket int64) func() error {
		return func() error {
			a.ours.Park(asynqredis.Park{At: time.Now().Add(time.Hour), Ticket: ticket})
			return a.end(t, errWaiting)
		}
	}
	wake := func(id string, ticket int64) func() error {
		return func() error {
			_, err := asynqredis.Wake(t.Context(), f.rdb, f.queue, id, ticket)
			return err
		}
	}
	for i, move := range []func() error{wake(id, 8), park(b, 8), park(a, 7), wake(id, 8), wake(tail, 6)} {
		before := f.check(t)
		if err := move(); err != nil {
			t.Logf("move %d: %v", i, err)
			f.unchanged(t, before)
		}
		f.check(t)
	}
	send(t, w.gate.dequeue, struct{}{}, "a dequeue")
	if err := receive(t, w.gate.dequeued, "its error").err; !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("want Redis's own OOM, have %v", err)
	}
	f.check(t)
}
