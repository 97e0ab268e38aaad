package hook_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

func (f *fleet) contendedKey() string { return "siding:{" + f.queue + "}:contended" }

// waits parks a task in the wait queue of the lock of that key.
func (f *fleet) waits(t *testing.T, w *worker, lock string, ticket int64, opts ...asynq.Option) string {
	t.Helper()
	id := f.enqueue(t, opts...)
	a := w.take(t, id)
	a.ours.Park(asynqredis.Park{At: time.Now().Add(time.Hour), Ticket: ticket, Key: lock})
	a.mustEnd(t, errWaiting)
	return id
}

// due lets the time of all contended locks come.
func (f *fleet) due(t *testing.T) {
	t.Helper()
	for _, lock := range f.rdb.ZRange(t.Context(), f.contendedKey(), 0, -1).Val() {
		must(t, f.rdb.ZIncrBy(t.Context(), f.contendedKey(), -2e6, lock).Err())
	}
}

// wantListKept wants the list of contended locks kept for 3 h from now on.
func (f *fleet) wantListKept(t *testing.T) {
	t.Helper()
	if ttl := f.rdb.TTL(t.Context(), f.contendedKey()).Val(); ttl <= 2*time.Hour || ttl > 3*time.Hour {
		t.Errorf("want the list kept for 3 h, have %v", ttl)
	}
}

func keysOfLocks(c asynqredis.Contended) []string {
	var keys []string
	for _, l := range c.Locks {
		keys = append(keys, l.Key)
	}
	slices.Sort(keys)
	return keys
}

// A task that is parked in a wait queue lists its lock. A task that is in none does not.
func TestParkEntersTheLock(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w, begin := f.worker(t), time.Now()
		f.waits(t, w, "lock:a", 1)
		f.waits(t, w, "lock:a", 2)
		f.waits(t, w, "lock:b", 1)
		f.waits(t, w, "", 0)
		now, err := asynqredis.ListContended(t.Context(), f.rdb, f.queue, "")
		must(t, err)
		if now.All != 2 || now.Paused {
			t.Errorf("want two locks of a queue that runs, have %+v", now)
		}
		for _, lock := range f.rdb.ZRangeWithScores(t.Context(), f.contendedKey(), 0, -1).Val() {
			if in := time.UnixMicro(int64(lock.Score)).Sub(begin); in < time.Second || in > time.Second+time.Since(begin) {
				t.Errorf("want %v looked at a second after its task came, have %v after the start", lock.Member, in)
			}
		}
		f.due(t)
		must(t, f.inspector.PauseQueue(f.queue))
		later, err := asynqredis.ListContended(t.Context(), f.rdb, f.queue, "")
		must(t, err)
		if have := keysOfLocks(later); !slices.Equal(have, []string{"lock:a", "lock:b"}) || !later.Paused {
			t.Errorf("want both, of a paused queue, have %+v", later)
		}
		f.wantListKept(t)
	})
}

// A lock for which nobody waits is taken off the list, unless a task has come to wait for the lock
// since it was listed. The list lasts for as long as somebody looks at its locks.
func TestLooked(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		f.waits(t, w, "lock:gone", 1)
		f.waits(t, w, "lock:again", 1)
		f.waits(t, w, "lock:later", 1)
		f.due(t)
		due, err := asynqredis.ListContended(t.Context(), f.rdb, f.queue, "")
		must(t, err)
		var looks []asynqredis.Scan
		for _, l := range due.Locks {
			looks = append(looks, asynqredis.Scan{Lock: l, Over: l.Key != "lock:later", In: time.Minute})
		}
		f.waits(t, w, "lock:again", 2)
		must(t, f.rdb.Expire(t.Context(), f.contendedKey(), time.Minute).Err())
		must(t, asynqredis.Scanned(t.Context(), f.rdb, f.queue, looks))
		all, err := asynqredis.ListContended(t.Context(), f.rdb, f.queue, "0")
		must(t, err)
		if have := keysOfLocks(all); !slices.Equal(have, []string{"lock:again", "lock:later"}) || all.Next != "" {
			t.Errorf("want two locks left, have %+v", all)
		}
		at := f.rdb.ZScore(t.Context(), f.contendedKey(), "lock:later").Val()
		if in := time.Until(time.UnixMicro(int64(at))); in < 50*time.Second || in > time.Minute {
			t.Errorf("want the next look in a minute, have %v", in)
		}
		f.wantListKept(t)
	})
}

// All lists each lock, also of many.
func TestAllContendedLocks(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		const locks = 1000
		members := make([]redis.Z, locks)
		for n := range members {
			members[n] = redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro()), Member: "lock:" + strconv.Itoa(n)}
		}
		must(t, f.rdb.ZAdd(t.Context(), f.contendedKey(), members...).Err())
		found := map[string]bool{}
		for cursor := "0"; cursor != ""; {
			some, err := asynqredis.ListContended(t.Context(), f.rdb, f.queue, cursor)
			must(t, err)
			for _, key := range keysOfLocks(some) {
				found[key] = true
			}
			cursor = some.Next
		}
		if len(found) != locks {
			t.Errorf("want %d, have %d", locks, len(found))
		}
	})
}

// Tasks in wait queues are listed with their locks and tickets. A task is not listed if it is in no
// wait queue, in its own back-off, or woken meanwhile.
func TestAllWaiting(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		first, second := f.waits(t, w, "lock:a", 7), f.waits(t, w, "lock:b", 8)
		f.waits(t, w, "", 9)
		failed := f.enqueue(t)
		w.take(t, failed).mustEnd(t, errOwn)
		some, next, err := asynqredis.AllWaiting(t.Context(), f.rdb, f.queue, "0")
		must(t, err)
		slices.SortFunc(some, func(a, b asynqredis.Waiting) int { return int(a.Ticket - b.Ticket) })
		if want := []asynqredis.Waiting{{ID: first, Lock: "lock:a", Ticket: 7}, {ID: second, Lock: "lock:b", Ticket: 8}}; !slices.Equal(some, want) || next != "" {
			t.Errorf("want %v, have %v and then %q", want, some, next)
		}
		f.wake(t, first, 7, asynqredis.Woken)
		must(t, f.rdb.Del(t.Context(), f.contendedKey()).Err())
		some, err = asynqredis.StillWaiting(t.Context(), f.rdb, f.queue, []string{first, second, failed, "unknown"})
		must(t, err)
		if want := []asynqredis.Waiting{{ID: second, Lock: "lock:b", Ticket: 8}}; !slices.Equal(some, want) {
			t.Errorf("want %v, have %v", want, some)
		}
		if have := f.rdb.ZRange(t.Context(), f.contendedKey(), 0, -1).Val(); !slices.Equal(have, []string{"lock:b"}) {
			t.Errorf("want its lock listed again, have %v", have)
		}
	})
}

// A task that is woken keeps its ticket in its next attempt, and so its position. A task that has
// never waited has the time of its dequeue.
func TestTicketComesWithTheAttempt(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		before := time.Now().Add(-time.Second).UnixMicro()
		id := f.enqueue(t)
		a := w.take(t, id)
		if came := a.ours.Came; came < before || came > time.Now().Add(time.Second).UnixMicro() {
			t.Errorf("want the time of its dequeue, have %d", came)
		}
		a.ours.Park(asynqredis.Park{At: time.Now().Add(time.Hour), Ticket: 7, Key: "lock:a"})
		a.mustEnd(t, errWaiting)
		f.wake(t, id, 7, asynqredis.Woken)
		again := w.take(t, id)
		if again.ours.Came != 7 {
			t.Errorf("want ticket 7, have %d", again.ours.Came)
		}
		if task := f.check(t).task(id); task["siding_ticket"] != "" || task["siding_lock"] != "" {
			t.Errorf("want no mark of its parking while it is active, have %v", task)
		}
	})
}

// A task's Deadline comes before its fallback time.
func TestDeadlineOfAParkedTask(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		deadline := time.Now().Add(10 * time.Minute).Truncate(time.Second)
		id := f.waits(t, w, "lock:a", 1, asynq.Deadline(deadline))
		if have := f.task(t, id).NextProcessAt; !have.Equal(deadline) {
			t.Errorf("want it tried at its deadline, %v, have %v", deadline, have)
		}
	})
}
