package hook_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/fastpath"
	"github.com/sidingq/siding/internal/redisstore"
)

// A dequeuer sends the locking dequeue of a queue, as the hook does. The lock of busy is held.
type dequeuer struct {
	*fleet

	busy string
}

func newDequeuer(t *testing.T, f *fleet) dequeuer {
	t.Helper()
	d := dequeuer{f, "order:" + f.queue}
	d.hold(t, d.busy)
	return d
}

func (d dequeuer) hold(t *testing.T, resource string) {
	t.Helper()
	must(t, d.rdb.Set(t.Context(), "lock:"+resource, "siding:token:somebody", time.Hour).Err())
}

// put enqueues a task of a resource, with more headers.
func (d dequeuer) put(t *testing.T, kind, resource string, headers map[string]string, opts ...asynq.Option) string {
	t.Helper()
	all := map[string]string{"siding-resource": resource}
	maps.Copy(all, headers)
	info, err := d.client.EnqueueContext(t.Context(), asynq.NewTaskWithHeaders(kind, nil, all), append(opts, asynq.Queue(d.queue))...)
	must(t, err)
	return info.ID
}

// dequeue returns the task that a dequeue of the given name has taken, "" for none, and those that it
// has parked: {id, resource, how often, position, ticket}.
func (d dequeuer) dequeue(t *testing.T, name string) (taken string, parked [][]any) {
	t.Helper()
	script := redis.NewScript(asynqredis.AttemptLua + fastpath.Dequeue() + source(t, "dequeue.lua"))
	p, own := d.prefix(), "siding:{"+d.queue+"}:"
	keys := []string{p + "pending", p + "paused", p + "active", p + "lease", own + "notify", p + "retry", own + "contended"}
	hour := time.Hour.Milliseconds()
	argv := append([]any{time.Now().Add(30 * time.Second).Unix(), p + "t:", name, asynqredis.WaiterNames(d.queue), "here", hour, hour, 60000},
		redisstore.LockArgs("lock:", 15*time.Second, time.Hour, time.Hour)...)
	got, err := script.Run(t.Context(), d.rdb, keys, append(argv, "", "\npolicy:kind\n")...).Slice()
	if err != nil && err != redis.Nil { //nolint:errorlint // go-redis returns it as it is
		t.Fatal(err)
	}
	if len(got) == 0 {
		return "", nil
	}
	runs, ok := got[2].([]any)
	if !ok {
		t.Fatalf("want a list of those that were parked, have %v", got[2])
	}
	for _, r := range runs {
		run, ok := r.([]any)
		if !ok || len(run) < 9 || !strings.HasPrefix(fmt.Sprint(run[1]), "siding") {
			t.Fatalf("want a run of tasks, have %v", r)
		}
		for own := range slices.Chunk(run[4:], 5) {
			parked = append(parked, []any{own[0], run[0], own[2], own[3], own[4]})
		}
	}
	if active := d.read(t).lists["active"]; got[0] != nil && len(active) > 0 {
		taken = active[0]
	}
	return taken, parked
}

// waiting returns the ids of those in the wait queue of a resource, in order.
func (d dequeuer) waiting(t *testing.T, resource string) []string {
	t.Helper()
	s := d.read(t)
	var ids []string
	for _, z := range d.rdb.ZRangeWithScores(t.Context(), "{lock:"+resource+"}:queue", 0, -1).Val() {
		id := strings.TrimPrefix(fmt.Sprint(z.Member), asynqredis.WaiterNames(d.queue))
		ids = append(ids, id)
		if have := s.task(id)["siding_ticket"]; have != strconv.FormatFloat(z.Score, 'f', -1, 64) {
			t.Errorf("%s: want the ticket %.0f of the wait queue in the task, have %s", id, z.Score, have)
		}
	}
	return ids
}

// wantParked wants tasks parked for a resource, each as park.lua parks one.
func (d dequeuer) wantParked(t *testing.T, resource string, ids ...string) {
	t.Helper()
	if have := d.waiting(t, resource); !slices.Equal(have, ids) {
		t.Errorf("want %v in the wait queue of %s, have %v", ids, resource, have)
	}
	s := d.read(t)
	now := time.Now()
	for i, id := range ids {
		task := s.task(id)
		if have := s.places()[id]; !slices.Equal(have, []string{"retry"}) || task["state"] != "retry" {
			t.Errorf("%s: want it in the retry set alone, have it in %v, state %s", id, have, task["state"])
		}
		for _, left := range []string{"pending_since", "siding_attempt", "siding_came", "siding_woken"} {
			if task[left] != "" {
				t.Errorf("%s: want no %s, have %s", id, left, task[left])
			}
		}
		if task["siding_lock"] != "lock:"+resource || task["siding_parked"] != "1" {
			t.Errorf("%s: want it parked once for %s, have %s times for %s", id, resource, task["siding_parked"], task["siding_lock"])
		}
		m, err := asynqredis.ParseMessage(task["msg"])
		if err != nil || !m.Waited || m.ID != id || m.Headers["siding-resource"] != resource ||
			!strings.HasPrefix(m.LastError, "waiting for "+resource+"; when parked, at ") ||
			!strings.HasSuffix(m.LastError, fmt.Sprintf(": held by somebody, number %d in the wait queue", i+1)) {
			t.Errorf("%s: want it with the reason, as number %d, have %+v, %v", id, i+1, m, err)
		}
		if at := time.Unix(s.scores["retry"][id], 0); at.Before(now.Add(58*time.Minute)) || at.After(now.Add(2*time.Hour)) {
			t.Errorf("%s: want it back in one to two hours, have %v", id, at.Sub(now))
		}
	}
}

// Tasks of busy resources that follow each other are parked in one call, each as one alone would be,
// and in their order.
func TestRunIsParked(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		d := newDequeuer(t, f)
		other := d.busy + ":other"
		d.hold(t, other)
		var first, second []string
		for i := range 30 {
			first = append(first, d.put(t, "order:audit", d.busy, nil))
			if i%3 == 0 {
				second = append(second, d.put(t, "order:bill", other, map[string]string{"k": "v"}))
			}
		}
		taken, parked := d.dequeue(t, "a")
		if taken != "" || len(parked) != len(first)+len(second) {
			t.Errorf("want %d parked and none taken, have %d and %q", len(first)+len(second), len(parked), taken)
		}
		d.wantParked(t, d.busy, first...)
		d.wantParked(t, other, second...)
		s := d.read(t)
		for _, p := range parked {
			ids := first
			if p[1] == other {
				ids = second
			}
			at := slices.Index(ids, fmt.Sprint(p[0]))
			if p[2] != int64(1) || p[3] != int64(at+1) || fmt.Sprint(p[4]) != s.task(ids[max(0, at)])["siding_ticket"] {
				t.Errorf("want number %d parked once, with its ticket, have %v", at+1, p)
			}
		}
		fallbacks := map[int64]bool{}
		for _, at := range s.scores["retry"] {
			fallbacks[at] = true
		}
		if len(fallbacks) < 20 {
			t.Errorf("want the fallback times spread, have %d for 40 tasks", len(fallbacks))
		}
		// The answer was lost, and the call is sent again.
		if taken, parked := d.dequeue(t, "a"); taken != "" || len(parked) != 0 {
			t.Errorf("want nothing left, have %q and %v", taken, parked)
		}
		d.wantParked(t, d.busy, first...)
	})
}

// A call parks some 200 tasks at most, so that it does not keep Redis from others.
func TestRunIsBounded(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		d := newDequeuer(t, f)
		var ids []string
		for range 250 {
			ids = append(ids, d.put(t, "order:audit", d.busy, nil))
		}
		if _, parked := d.dequeue(t, "a"); len(parked) != 212 { // one by one 2, then 10, 100 and 100
			t.Errorf("want 212 parked, have %d", len(parked))
		}
		if have := len(d.read(t).pending()); have != 38 {
			t.Errorf("want 38 left, have %d", have)
		}
		if _, parked := d.dequeue(t, "b"); len(parked) != 38 {
			t.Errorf("want the rest parked, have %d", len(parked))
		}
		if have := d.waiting(t, d.busy); !slices.Equal(have, ids) {
			t.Error("want them in their order in the wait queue")
		}
	})
}

// A run ends at a task that a dequeue must not park, or that does not come after the others. Such a task
// is dealt with as without a run. Those behind it stay in their order.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	const before, behind = 4, 3
	for name, tt := range map[string]struct {
		put   func(t *testing.T, d dequeuer) string
		taken bool // it goes to its handler
		first bool // it is the first in the wait queue then
	}{
		"a free resource": {taken: true, put: func(t *testing.T, d dequeuer) string {
			t.Helper()
			return d.put(t, "order:audit", d.busy+":free", nil)
		}},
		"no resource": {taken: true, put: func(t *testing.T, d dequeuer) string { t.Helper(); return d.enqueue(t) }},
		"a kind with a policy": {taken: true, put: func(t *testing.T, d dequeuer) string {
			t.Helper()
			return d.put(t, "policy:kind", d.busy, nil)
		}},
		"a policy": {taken: true, put: func(t *testing.T, d dequeuer) string {
			t.Helper()
			return d.put(t, "order:audit", d.busy, map[string]string{"siding-policy": "{}"})
		}},
		"a deadline that has passed": {taken: true, put: func(t *testing.T, d dequeuer) string {
			t.Helper()
			return d.put(t, "order:audit", d.busy, nil, asynq.Deadline(time.Now().Add(-time.Minute)))
		}},
		"a kind of 128 bytes": {taken: true, put: func(t *testing.T, d dequeuer) string {
			t.Helper()
			return d.put(t, strings.Repeat("k", 128), d.busy, nil)
		}},
		"an id of 190 bytes": {taken: true, put: func(t *testing.T, d dequeuer) string {
			t.Helper()
			return d.put(t, "order:audit", d.busy, nil, asynq.TaskID(strings.Repeat("i", 190)))
		}},
		"an undecodable task": {taken: true, put: func(t *testing.T, d dequeuer) string {
			t.Helper()
			id := d.put(t, "order:audit", d.busy, nil)
			must(t, d.rdb.HSet(t.Context(), d.prefix()+"t:"+id, "msg", "\x0a\x05short").Err())
			return id
		}},
		"a task that is gone": {put: func(t *testing.T, d dequeuer) string {
			t.Helper()
			id := d.put(t, "order:audit", d.busy, nil)
			must(t, d.rdb.Del(t.Context(), d.prefix()+"t:"+id).Err())
			return id
		}},
		"a priority": {first: true, put: func(t *testing.T, d dequeuer) string {
			t.Helper()
			return d.put(t, "order:audit", d.busy, map[string]string{"siding-priority": "5"})
		}},
		"an earlier ticket": {first: true, put: func(t *testing.T, d dequeuer) string {
			t.Helper()
			id := d.put(t, "order:audit", d.busy, nil)
			must(t, d.rdb.HSet(t.Context(), d.prefix()+"t:"+id, "siding_ticket", "7").Err())
			return id
		}},
		"an earlier task of its id in the wait queue": {first: true, put: func(t *testing.T, d dequeuer) string {
			t.Helper()
			id := d.put(t, "order:audit", d.busy, nil)
			must(t, d.rdb.ZAdd(t.Context(), "{lock:"+d.busy+"}:queue", redis.Z{Score: 9, Member: d.waiter(id)}).Err())
			return id
		}},
		"a reservation for it": {taken: true, put: func(t *testing.T, d dequeuer) string {
			t.Helper()
			id := d.put(t, "order:audit", d.busy, nil)
			must(t, d.rdb.Set(t.Context(), "lock:"+d.busy, "siding-reserved:n:1:"+d.waiter(id), time.Hour).Err())
			return id
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				d := newDequeuer(t, f)
				put := func(n int) (ids []string) {
					for range n {
						ids = append(ids, d.put(t, "order:audit", d.busy, nil))
					}
					return ids
				}
				early := put(before)
				special := tt.put(t, d)
				late := put(behind)
				taken, parked := d.dequeue(t, "a")
				if want := special; tt.taken && taken != want || !tt.taken && tt.first && taken != "" {
					t.Errorf("want %s taken: %t, have %q", want, tt.taken, taken)
				}
				if !tt.first {
					if have := d.waiting(t, d.busy); !slices.Equal(have, early) || len(parked) != before {
						t.Errorf("want %v parked, have %v", early, have)
					}
					if have := d.read(t).pending(); !slices.Equal(have, late) {
						t.Errorf("want %v left in pending, have %v", late, have)
					}
				}
				d.dequeue(t, "b")
				want := slices.Concat(early, late)
				if tt.first {
					want = slices.Concat([]string{special}, early, late)
				}
				if have := d.waiting(t, d.busy); !slices.Equal(have, want) {
					t.Errorf("want %v in the wait queue, have %v", want, have)
				}
			})
		})
	}
}

// A task in a run stays unique for as long as it may wait.
func TestRunKeepsTasksUnique(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		d := newDequeuer(t, f)
		for i := range 5 {
			d.put(t, "order:audit"+strconv.Itoa(i), d.busy, nil, asynq.Unique(time.Minute))
		}
		if _, parked := d.dequeue(t, "a"); len(parked) != 5 {
			t.Fatalf("want five parked, have %v", parked)
		}
		keys := d.rdb.Keys(t.Context(), d.prefix()+"unique:*").Val()
		for _, key := range keys {
			if left := d.rdb.PTTL(t.Context(), key).Val(); left < time.Hour {
				t.Errorf("%s: want it for more than an hour, have %v", key, left)
			}
		}
		if len(keys) != 5 {
			t.Errorf("want five keys, have %v", keys)
		}
	})
}
