package taskredis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// An enqueuing is a task for asynq's client, and the same one for ours.
type enqueuing struct {
	payload []byte
	options []asynq.Option
	ours    Enqueue // its message lacks what all tasks have
	before  func(t testing.TB, client *asynq.Client, queue string)
	want    error // of ours
	wantHas error // of asynq
}

const theID = "0199d2f4-6c1e-7c6e-9b1a-2f6b1c7d8e9f"

// earlier has asynq's client store a task first.
func earlier(payload string, options ...asynq.Option) func(testing.TB, *asynq.Client, string) {
	return func(tb testing.TB, client *asynq.Client, queue string) {
		tb.Helper()
		expect.OK(tb, expect.Err(client.Enqueue(asynq.NewTask("kind", []byte(payload)), append(options, asynq.Queue(queue))...)))
	}
}

func enqueuings() map[string]enqueuing {
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	const day = 24 * time.Hour
	return map[string]enqueuing{
		"pending":                    {payload: []byte("p")},
		"pending, unique":            {payload: []byte("p"), options: []asynq.Option{asynq.Unique(day)}, ours: Enqueue{Unique: day}},
		"no payload, unique":         {options: []asynq.Option{asynq.Unique(day)}, ours: Enqueue{Unique: day}},
		"an empty payload, unique":   {payload: []byte{}, options: []asynq.Option{asynq.Unique(day)}, ours: Enqueue{Unique: day}},
		"scheduled":                  {payload: []byte("p"), options: []asynq.Option{asynq.ProcessAt(at)}, ours: Enqueue{At: at}},
		"scheduled, unique":          {payload: []byte("p"), options: []asynq.Option{asynq.ProcessAt(at), asynq.Unique(day)}, ours: Enqueue{At: at, Unique: day}},
		"scheduled for the past":     {payload: []byte("p"), options: []asynq.Option{asynq.ProcessAt(at.Add(-day))}, ours: Enqueue{At: at.Add(-day)}},
		"scheduled with a fraction":  {payload: []byte("p"), options: []asynq.Option{asynq.ProcessAt(at.Add(999 * time.Millisecond))}, ours: Enqueue{At: at.Add(999 * time.Millisecond)}},
		"in a group":                 {payload: []byte("p"), options: []asynq.Option{asynq.Group("g")}, ours: Enqueue{Message: &Message{GroupKey: "g"}}},
		"in a group, unique":         {payload: []byte("p"), options: []asynq.Option{asynq.Group("g"), asynq.Unique(day)}, ours: Enqueue{Message: &Message{GroupKey: "g"}, Unique: day}},
		"scheduled, in a group":      {payload: []byte("p"), options: []asynq.Option{asynq.Group("g"), asynq.ProcessAt(at)}, ours: Enqueue{At: at, Message: &Message{GroupKey: "g"}}},
		"all options":                {payload: []byte("p"), options: []asynq.Option{asynq.MaxRetry(3), asynq.Timeout(time.Minute), asynq.Deadline(at), asynq.Retention(day), asynq.Unique(day)}, ours: Enqueue{Unique: day, Message: &Message{Retry: 3, Timeout: 60, Deadline: at.Unix(), Retention: 86400}}},
		"an id that exists":          {payload: []byte("p"), before: earlier("other", asynq.TaskID(theID)), want: ErrIDConflict, wantHas: asynq.ErrTaskIDConflict},
		"an id that exists, unique":  {payload: []byte("p"), before: earlier("other", asynq.TaskID(theID)), options: []asynq.Option{asynq.Unique(day)}, ours: Enqueue{Unique: day}, want: ErrIDConflict, wantHas: asynq.ErrTaskIDConflict},
		"an id that exists, later":   {payload: []byte("p"), before: earlier("other", asynq.TaskID(theID)), options: []asynq.Option{asynq.ProcessAt(at)}, ours: Enqueue{At: at}, want: ErrIDConflict, wantHas: asynq.ErrTaskIDConflict},
		"an id that exists, grouped": {payload: []byte("p"), before: earlier("other", asynq.TaskID(theID)), options: []asynq.Option{asynq.Group("g"), asynq.Unique(day)}, ours: Enqueue{Unique: day, Message: &Message{GroupKey: "g"}}, want: ErrIDConflict, wantHas: asynq.ErrTaskIDConflict},
		"a duplicate":                {payload: []byte("p"), before: earlier("p", asynq.TaskID("x"), asynq.Unique(day)), options: []asynq.Option{asynq.Unique(day)}, ours: Enqueue{Unique: day}, want: ErrDuplicate, wantHas: asynq.ErrDuplicateTask},
		"a duplicate, scheduled":     {payload: []byte("p"), before: earlier("p", asynq.TaskID("x"), asynq.Unique(day)), options: []asynq.Option{asynq.Unique(day), asynq.ProcessAt(at)}, ours: Enqueue{At: at, Unique: day}, want: ErrDuplicate, wantHas: asynq.ErrDuplicateTask},
		"a duplicate, grouped":       {payload: []byte("p"), before: earlier("p", asynq.TaskID("x"), asynq.Unique(day)), options: []asynq.Option{asynq.Unique(day), asynq.Group("g")}, ours: Enqueue{Unique: day, Message: &Message{GroupKey: "g"}}, want: ErrDuplicate, wantHas: asynq.ErrDuplicateTask},
		"a duplicate of the id":      {payload: []byte("p"), before: earlier("p", asynq.TaskID(theID), asynq.Unique(day)), options: []asynq.Option{asynq.Unique(day)}, ours: Enqueue{Unique: day}, want: ErrDuplicate, wantHas: asynq.ErrDuplicateTask},
	}
}

// asynqs takes what is ours out of what is in Redis, and what differs from time to time.
func (c contents) asynqs(tb testing.TB, queue string) contents {
	tb.Helper()
	now := time.Now()
	near := func(what string, at time.Time) {
		d := now.Sub(at)
		expect.That(tb, d >= -2*time.Second && d <= time.Minute, "%s: want about %v, have %v", what, now, at)
	}
	result := make(contents)
	for key, e := range c {
		if strings.HasPrefix(key, "siding:") {
			continue
		}
		if fields, ok := e.value.(map[string]string); ok {
			for name, value := range fields {
				if strings.HasPrefix(name, "siding_") {
					delete(fields, name)
				}
				if name == "pending_since" {
					n, err := strconv.ParseInt(value, 10, 64)
					expect.Is(tb, name, err, nil)
					near(name, time.Unix(0, n))
					fields[name] = "now"
				}
			}
		}
		if scores, ok := e.value.([]redis.Z); ok && strings.HasPrefix(key, GroupKey(queue, "")) {
			near("score in the group", time.Unix(int64(scores[0].Score), 0))
			scores[0].Score = 0
		}
		result[key] = e
	}
	return result
}

// What we store is to the byte what asynq's client stores.
func TestEnqueueIsAsynqs(t *testing.T) {
	t.Parallel()
	for name, c := range enqueuings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onRedis(t, func(t *bench) {
				rdb, queue := t.rdb, t.queue
				client := asynq.NewClientFromRedisClient(rdb)
				before := func() {
					if c.before != nil {
						c.before(t, client, queue)
					}
				}
				before()
				task := asynq.NewTaskWithHeaders("kind", c.payload, map[string]string{"trace": "1"})
				if _, err := client.Enqueue(task, append(c.options, asynq.Queue(queue), asynq.TaskID(theID))...); !errors.Is(err, c.wantHas) {
					t.Fatalf("asynq: want %v, have %v", c.wantHas, err)
				}
				theirs := contentsOf(t, rdb, queue)
				expect.That(t, slices.Contains(rdb.SMembers(t.Context(), queuesKey).Val(), queue), "asynq: want the queue in the set of queues")
				theirs.clear(t, rdb)
				rdb.SRem(t.Context(), queuesKey, queue)

				before()
				e := c.ours
				m := Message{Retry: 25}
				if e.Message != nil {
					m = *e.Message
					if m.Retry == 0 {
						m.Retry = 25
					}
				}
				m.Type, m.Payload, m.Headers, m.ID, m.Queue = "kind", c.payload, map[string]string{"trace": "1"}, theID, queue
				if m.Timeout == 0 && m.Deadline == 0 {
					m.Timeout = 1800
				}
				e.Message, e.Resource, e.Priority = &m, "customer:4", 7
				if err := NewEnqueuer(rdb).Enqueue(t.Context(), &e); !errors.Is(err, c.want) {
					t.Fatalf("want %v, have %v", c.want, err)
				}
				ours := contentsOf(t, rdb, queue)
				have, want := ours.asynqs(t, queue), theirs.asynqs(t, queue)
				if errors.Is(c.want, ErrIDConflict) {
					delete(want, UniqueKey(queue, "kind", c.payload)) // it is of no task, and we leave none
				}
				for key, e := range have { // asynq's client rounds down what it has
					if d := e.ttl - want[key].ttl; e.ttl > 0 && d < 5*time.Second && d > -20*time.Second {
						e.ttl = want[key].ttl
						have[key] = e
					}
				}
				expect.That(t, reflect.DeepEqual(have, want), "asynq leaves\n%v\nwe leave\n%v", want, have)
				expect.That(t, slices.Contains(rdb.SMembers(t.Context(), queuesKey).Val(), queue), "want the queue in the set of queues")
				ours.clear(t, rdb)
			})
		})
	}
}

// simple is a pending task.
func simple(queue, id string) *Enqueue {
	return &Enqueue{Message: &Message{Type: "kind", Payload: []byte("p"), ID: id, Queue: queue, Retry: 25, Timeout: 1800}}
}

func TestEnqueueWritesOurFields(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		rdb, queue := t.rdb, t.queue
		q := NewEnqueuer(rdb)
		all := simple(queue, "all")
		all.Resource, all.Priority, all.Message.Deadline = "customer:4", 7, 1_800_000_000
		none := simple(queue, "none")
		none.OwnID = true
		for id, e := range map[string]*Enqueue{"all": all, "none": none} {
			expect.OK(t, q.Enqueue(t.Context(), e))
			fields := rdb.HGetAll(t.Context(), TaskKey(queue, id)).Val()
			for _, name := range []string{"msg", "state", "pending_since"} {
				delete(fields, name)
			}
			want := map[string]string{}
			if id == "all" {
				want = map[string]string{"siding_resource": "customer:4", "siding_kind": "kind", "siding_priority": "7", "siding_deadline": "1800000000", "siding_call": fields["siding_call"]}
			}
			expect.That(t, reflect.DeepEqual(fields, want) && (id == "all") == (fields["siding_call"] != ""), "%s: want %v, have %v", id, want, fields)
		}
	})
}

// A task that is unique for a time has run when the call that stored it comes again. It is no other task's.
func TestEnqueueAgainAfterItHasRun(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		for _, own := range []bool{true, false} {
			always := func(id string) *Enqueue {
				e := simple(t.queue, id)
				e.Message.Payload = fmt.Append(nil, own)
				e.OwnID, e.Unique, e.Always = own, time.Hour, true
				return e
			}
			id := fmt.Sprint("one", own)
			twice := t.sendsTwice(func() { value(t, t.rdb.Del(t.Context(), TaskKey(t.queue, id), PendingKey(t.queue))) })
			expect.OK(t, twice.Enqueue(t.Context(), always(id)))
			q := NewEnqueuer(t.rdb)
			expect.Is(t, "another one", q.Enqueue(t.Context(), always("other")), ErrDuplicate)
			if !own {
				expect.Is(t, "another call", q.Enqueue(t.Context(), always(id)), ErrDuplicate)
			}
		}
	})
}

// kinds are a task of each kind, by the client's choice of its id.
func kinds(queue string) map[string]*Enqueue {
	kinds := make(map[string]*Enqueue)
	for _, kind := range []string{"pending", "scheduled", "aggregating"} {
		for _, unique := range []bool{false, true} {
			for _, own := range []bool{false, true} {
				name := fmt.Sprintf("%s, unique %v, own id %v", kind, unique, own)
				e := simple(queue, name)
				e.Message.Payload = []byte(name)
				e.OwnID = own
				if unique {
					e.Unique = time.Hour
				}
				switch kind {
				case "scheduled":
					e.At = time.Now().Add(time.Hour)
				case "aggregating":
					e.Message.GroupKey = "g"
				}
				kinds[name] = e
			}
		}
	}
	return kinds
}

// A call whose answer is lost is sent again, and has stored its task once, also if the task has gone on before the second send: a worker
// has it, or has ended it and it is kept.
func TestEnqueueTwice(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		rdb, queue := t.rdb, t.queue
		enqueue := map[string]func(*Enqueuer, *Enqueue) error{
			"one":      func(q *Enqueuer, e *Enqueue) error { return q.Enqueue(t.Context(), e) },
			"together": func(q *Enqueuer, e *Enqueue) error { return q.EnqueueAll(t.Context(), []*Enqueue{e})[0] },
		}
		want := 0
		for how, enqueue := range enqueue {
			for _, state := range []string{"", "active", "completed", "archived"} {
				for name, e := range kinds(queue) {
					name += ", " + how + ", " + state
					e.Message.ID, e.Message.Payload = name, []byte(name)
					key, between := TaskKey(queue, name), (func())(nil)
					if state != "" {
						between = func() {
							rdb.HSet(t.Context(), key, "state", state)
							if state != "active" {
								rdb.Del(t.Context(), UniqueKey(queue, "kind", e.Message.Payload)) // as asynq does then
							}
						}
					}
					expect.Is(t, name, enqueue(t.sendsTwice(between), e), nil)
					have := rdb.HGet(t.Context(), key, "state").Val()
					expect.That(t, have == state || state == "" && have != "", "%s: want it left %s, have it %s", name, state, have)
					want++
				}
			}
		}
		n := rdb.LLen(t.Context(), PendingKey(queue)).Val() + rdb.ZCard(t.Context(), ScheduledKey(queue)).Val() + rdb.ZCard(t.Context(), GroupKey(queue, "g")).Val()
		expect.That(t, int(n) == want, "want %d tasks, have %d", want, n)
		if n := rdb.LLen(t.Context(), NotifyKey(queue)).Val(); int(n) != want/3 {
			t.Errorf("want %d elements, have %d", want/3, n)
		}
	})
}

// Another call is not the same call, although all of its task is the same.
func TestEnqueueAgain(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		rdb, queue := t.rdb, t.queue
		q := NewEnqueuer(rdb)
		for name, e := range kinds(queue) {
			if err := q.Enqueue(t.Context(), e); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want := ErrIDConflict
			switch {
			case e.OwnID: // the caller sends its own call again
				want = nil
			case e.Unique > 0:
				want = ErrDuplicate
			}
			err := q.Enqueue(t.Context(), e)
			expect.Is(t, name, err, want)
			expect.That(t, want == nil || strings.Contains(err.Error(), fmt.Sprintf("kind %q in the queue %q", name, queue)), "%s: want an error that names the task, have %v", name, err)
			if e.Unique > 0 { // an equal task, of another id
				other := *e
				m := *e.Message
				m.ID, other.Message = "other "+name, &m
				expect.Is(t, "an equal of "+name, q.Enqueue(t.Context(), &other), ErrDuplicate)
			}
		}
		expect.Equal(t, "pending tasks", rdb.LLen(t.Context(), PendingKey(queue)).Val(), 4)
	})
}

// The uniqueness of a scheduled task counts from when it comes, and no part of a second is lost.
func TestUniqueLasts(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		rdb, queue := t.rdb, t.queue
		for name, c := range map[string]struct{ in, unique, least time.Duration }{
			"a second":            {0, time.Second, time.Second},
			"a fraction":          {0, 1500 * time.Millisecond, 2 * time.Second},
			"scheduled":           {time.Hour, time.Second, time.Hour + time.Second},
			"at the end of time":  {1 << 62, time.Second, 100 * 365 * 24 * time.Hour},
			"scheduled this very": {time.Microsecond, time.Second, time.Second},
		} {
			e := simple(queue, name)
			e.Message.Payload = []byte(name)
			e.Unique = c.unique
			if c.in > 0 {
				e.At = time.Now().Add(c.in)
			}
			start := time.Now()
			expect.Is(t, name, NewEnqueuer(rdb).Enqueue(t.Context(), e), nil)
			ttl := rdb.PTTL(t.Context(), UniqueKey(queue, "kind", []byte(name))).Val()
			expect.That(t, ttl >= c.least-time.Since(start)-50*time.Millisecond, "%s: want %v, have %v", name, c.least, ttl)
		}
	})
}

// An idle server waits at the list. There are as many elements as there may be work for, and not many.
func TestEnqueueNotifies(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		rdb, queue := t.rdb, t.queue
		ctx := t.Context()
		q := NewEnqueuer(rdb)
		length := func() int64 { return rdb.LLen(ctx, NotifyKey(queue)).Val() }
		for name, e := range kinds(queue) {
			before := length()
			expect.OK(t, q.Enqueue(ctx, e))
			want := int64(0)
			if strings.HasPrefix(name, "pending") {
				want = 1
			}
			expect.Equal(t, name+": elements more", length()-before, want)
		}
		ttl := rdb.TTL(ctx, NotifyKey(queue)).Val()
		expect.That(t, ttl >= 59*time.Minute && ttl <= time.Hour, "want the list to go away after an hour, have %v", ttl)
		// A busy server takes each task before the next one comes. Nobody waits, and one element is enough.
		rdb.Del(ctx, NotifyKey(queue))
		for n := range 10 {
			rdb.Del(ctx, PendingKey(queue))
			expect.OK(t, q.Enqueue(ctx, simple(queue, fmt.Sprint("busy ", n))))
		}
		expect.Equal(t, "elements for one pending task", length(), 1)
		var many []*Enqueue
		for n := range 150 {
			many = append(many, simple(queue, fmt.Sprint("many ", n)))
		}
		expect.OK(t, errors.Join(q.EnqueueAll(ctx, many)...))
		expect.Equal(t, "151 pending tasks: elements", length(), 100)
		// What is refused is no work.
		rdb.Del(ctx, NotifyKey(queue))
		expect.Is(t, "an id that exists", q.Enqueue(ctx, simple(queue, "many 7")), ErrIDConflict)
		expect.Equal(t, "elements of a task that is refused", length(), 0)
	})
}

// A task is stored although the list cannot be written.
func TestEnqueueWithoutNotification(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		rdb, queue := t.rdb, t.queue
		rdb.Set(t.Context(), NotifyKey(queue), "no list", 0)
		expect.Is(t, "enqueue", NewEnqueuer(rdb).Enqueue(t.Context(), simple(queue, "x")), nil)
		n := rdb.LLen(t.Context(), PendingKey(queue)).Val()
		expect.That(t, n == 1, "want the task pending, have %d", n)
	})
}

// Redis does not undo a script that fails in the middle. A task that got into no list is not there either, so it can be
// stored again.
func TestEnqueueLeavesNoHalfTask(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		rdb, queue := t.rdb, t.queue
		ctx := t.Context()
		q := NewEnqueuer(rdb)
		places := []string{PendingKey(queue), ScheduledKey(queue), GroupKey(queue, "g")}
		for _, key := range places {
			rdb.Set(ctx, key, "neither list nor set", 0)
		}
		for name, e := range kinds(queue) {
			e.Unique = 0
			err := q.Enqueue(ctx, e)
			expect.That(t, err != nil && !errors.Is(err, ErrIDConflict) && !errors.Is(err, ErrDuplicate), "%s: want an error of Redis, have %v", name, err)
		}
		for _, key := range places {
			rdb.Del(ctx, key)
		}
		for name, e := range kinds(queue) {
			e.Unique = 0
			expect.Is(t, name, q.Enqueue(ctx, e), nil)
			expect.That(t, rdb.HLen(ctx, TaskKey(queue, e.Message.ID)).Val() != 0, "%s: want it stored", name)
		}
	})
}

// A queue that an operator deletes, while a client of it lives, is listed again.
func TestEnqueueListsQueuesAgain(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		rdb, queue := t.rdb, t.queue
		q := NewEnqueuer(rdb)
		enqueue := func(id string) bool {
			expect.OK(t, q.Enqueue(t.Context(), simple(queue, id)))
			return rdb.SIsMember(t.Context(), queuesKey, queue).Val()
		}
		expect.That(t, enqueue("1"), "want the queue listed")
		rdb.SRem(t.Context(), queuesKey, queue)
		expect.That(t, !enqueue("2"), "want no call for a queue that was just listed")
		q.listed[queue] = time.Now().Add(-listEvery)
		expect.That(t, enqueue("3"), "want the queue listed after a minute")
	})
}

// A queue that cannot be listed gets no task: nobody would see it.
func TestEnqueueNeedsTheListOfQueues(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t) // of its own, as all share the list
	rdb.Set(t.Context(), queuesKey, "no set", 0)
	q := NewEnqueuer(rdb)
	const want = `put the queue q on the list of queues: WRONGTYPE`
	if err := q.Enqueue(t.Context(), simple("q", "x")); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("want %q, have %v", want, err)
	}
	for _, err := range q.EnqueueAll(t.Context(), []*Enqueue{simple("q", "y"), simple("q", "z")}) {
		expect.That(t, err != nil && strings.HasPrefix(err.Error(), want), "want %q, have %v", want, err)
	}
	keys := rdb.Keys(t.Context(), "*{q}*").Val()
	expect.That(t, len(keys) == 0, "want nothing stored, have %v", keys)

	// Once it is on the list, a fault of that holds nobody up: in a Cluster it is on one master for all.
	q.listed["q"] = time.Now().Add(-listEvery)
	expect.OK(t, q.Enqueue(t.Context(), simple("q", "x")))
	err := q.Enqueue(t.Context(), simple("p", "x"))
	expect.That(t, err != nil, "another queue: want an error")
}

func TestEnqueueAll(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		rdb, queue := t.rdb, t.queue
		ctx := t.Context()
		queues := []string{queue, queue + ":2", queue + ":3"}
		q := NewEnqueuer(rdb)
		expect.OK(t, q.Enqueue(ctx, simple(queues[1], "7")))
		var tasks []*Enqueue
		want := make(map[string][]string)
		for n := range 2 * pipelineCalls {
			to := queues[n%3]
			e := simple(to, strconv.Itoa(n))
			switch n {
			case 6: // unique, and again in a later pipeline
				e.Unique = time.Hour
			case 9: // in the same queue
				e.Unique = time.Hour
			case 12: // in two pipelines, as it is large
				e.Message.Payload = bytes.Repeat([]byte("p"), pipelineBytes)
			}
			if n != 9 && n != 7 {
				want[to] = append([]string{e.Message.ID}, want[to]...)
			}
			tasks = append(tasks, e)
		}
		want[queues[1]] = append(want[queues[1]], "7") // the first one
		for i, err := range q.EnqueueAll(ctx, tasks) {
			var wantErr error
			switch i {
			case 7:
				wantErr = ErrIDConflict
			case 9:
				wantErr = ErrDuplicate
			}
			expect.Is(t, fmt.Sprintf("task %d", i), err, wantErr)
		}
		for _, name := range queues {
			have := rdb.LRange(ctx, PendingKey(name), 0, -1).Val()
			expect.That(t, slices.Equal(have, want[name]), "%s: want the order of the tasks\n%v, have\n%v", name, want[name], have)
		}
		errs := q.EnqueueAll(ctx, nil)
		expect.That(t, len(errs) == 0, "want no error of no task, have %v", errs)
	})
}

// Hundreds of tasks take one round trip, also when Redis does not know the script.
func TestEnqueueAllIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t) // of its own, without scripts
	trips := 0
	rdb.AddHook(redistest.Hook(func(cmds []redis.Cmder, send func(...redis.Cmder) error) error {
		if strings.HasPrefix(cmds[len(cmds)-1].Name(), "eval") { // not of a new connection
			trips++
		}
		return send(cmds...)
	}))
	q := NewEnqueuer(rdb)
	for range 2 {
		trips = 0
		var tasks []*Enqueue
		for n := range pipelineCalls {
			tasks = append(tasks, simple([]string{"a", "b"}[n%2], fmt.Sprint(n, time.Now().UnixNano())))
		}
		expect.OK(t, errors.Join(q.EnqueueAll(t.Context(), tasks)...))
		expect.Equal(t, "round trips", trips, 1)
	}
}

// The scripts are flushed in the middle of a pipeline.
func TestEnqueueAllWithScriptsFlushed(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t) // of its own, as others need their scripts
	calls := 0
	rdb.AddHook(redistest.Hook(func(cmds []redis.Cmder, send func(...redis.Cmder) error) error {
		switch {
		case !strings.HasPrefix(cmds[0].Name(), "eval"): // of a new connection
		case len(cmds) == 1:
			calls++
		default:
			flush := redis.NewStatusCmd(t.Context(), "script", "flush")
			cmds = slices.Insert(slices.Clone(cmds), len(cmds)/2, redis.Cmder(flush))
		}
		return send(cmds...)
	}))
	var tasks []*Enqueue
	want := make([]string, 10)
	for n := range 10 {
		tasks = append(tasks, simple("q", strconv.Itoa(n)))
		want[9-n] = strconv.Itoa(n)
	}
	expect.OK(t, errors.Join(NewEnqueuer(rdb).EnqueueAll(t.Context(), tasks)...))
	have := rdb.LRange(t.Context(), PendingKey("q"), 0, -1).Val()
	expect.That(t, slices.Equal(have, want) && calls != 0, "want %v by some calls, have %v by %d", want, have, calls)
}

// After an error of Redis the round trips that would follow are not made.
func TestEnqueueAllStops(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		rdb, queue := t.rdb, t.queue
		rdb.Set(t.Context(), PendingKey(queue), "no list", 0)
		var tasks []*Enqueue
		for n := range pipelineCalls + 2 {
			tasks = append(tasks, simple(queue+":fine", strconv.Itoa(n)))
		}
		tasks[3].Message.Queue = queue
		for i, err := range NewEnqueuer(rdb).EnqueueAll(t.Context(), tasks) {
			expect.That(t, (err != nil) == (i == 3 || i >= pipelineCalls) && (err == nil || strings.Contains(err.Error(), "WRONGTYPE")), "task %d: %v", i, err)
		}
		expect.Equal(t, "tasks", rdb.LLen(t.Context(), PendingKey(queue+":fine")).Val(), pipelineCalls-1)
	})
}

func TestEnqueueWithoutRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	q := NewEnqueuer(rdb)
	q.listed["q"] = time.Now()
	ended, end := context.WithCancel(t.Context())
	end()
	for name, ctx := range map[string]context.Context{"no server": t.Context(), "a context that has ended": ended} {
		tasks := []*Enqueue{simple("q", "1"), simple("q", "2")}
		for _, err := range append(q.EnqueueAll(ctx, tasks), q.Enqueue(ctx, tasks[0])) {
			if err == nil || errors.Is(err, ErrDuplicate) || errors.Is(err, ErrIDConflict) || ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: have %v", name, err)
			}
		}
	}
}

// All keys of a call are in one slot of a Cluster.
func TestCluster(t *testing.T) {
	t.Parallel()
	rdb := redistest.StartCluster(t, 3).Client(t)
	q := NewEnqueuer(rdb)
	var tasks []*Enqueue
	for _, queue := range []string{"a", "b", "c", "d", "x{y}z"} {
		for _, e := range kinds(queue) {
			tasks = append(tasks, e)
			one := *e
			m := *e.Message
			m.ID, m.Payload, one.Message = "one "+m.ID, append([]byte("one"), m.Payload...), &m
			expect.Is(t, "enqueue", q.Enqueue(t.Context(), &one), nil)
		}
		first, second := debounced(queue, "1"), debounced(queue, "2")
		expect.OK(t, q.Enqueue(t.Context(), first))
		err := q.EnqueueAll(t.Context(), []*Enqueue{second})[0]
		expect.That(t, err == nil && second.Replaced == "1", "%s: want the first one replaced, have %q, %v", queue, second.Replaced, err)
	}
	for i, err := range q.EnqueueAll(t.Context(), tasks) {
		expect.Is(t, tasks[i].Message.ID, err, nil)
	}
	expect.Equal(t, "queues", len(rdb.SMembers(t.Context(), queuesKey).Val()), 5)
	expect.Equal(t, "tasks pending", rdb.LLen(t.Context(), PendingKey("x{y}z")).Val(), 8)
	for _, queue := range []string{"a", "b", "c", "d"} {
		expect.Is(t, "write server", WriteServer(t.Context(), rdb, ours(queue), workersOf(queue), time.Minute), nil)
	}
	expect.Is(t, "clear server", ClearServer(t.Context(), rdb, ours("d")), nil)
	servers := expect.Value(Servers(t.Context(), rdb))(t)
	expect.That(t, len(servers) == 3, "want 3 servers, have %v", servers)
}
