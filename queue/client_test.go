package queue_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

func TestOptionsReachTheTask(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	type row struct {
		opts queue.Options
		want func(*asynq.TaskInfo) // changes what is wanted without options
	}
	eachOf(t, onOne, map[string]row{
		"zero":       {queue.Options{}, func(*asynq.TaskInfo) {}},
		"task id":    {queue.Options{TaskID: "order:1"}, func(i *asynq.TaskInfo) { i.ID = "order:1" }},
		"at":         {queue.Options{At: soon}, func(i *asynq.TaskInfo) { i.State, i.NextProcessAt = asynq.TaskStateScheduled, soon }},
		"at, past":   {queue.Options{At: time.Now().Add(-time.Hour)}, func(*asynq.TaskInfo) {}},
		"retries":    {queue.Options{Retries: 3}, func(i *asynq.TaskInfo) { i.MaxRetry = 3 }},
		"no retries": {queue.Options{Retries: queue.NoRetries}, func(i *asynq.TaskInfo) { i.MaxRetry = 0 }},
		"timeout":    {queue.Options{Timeout: time.Minute}, func(i *asynq.TaskInfo) { i.Timeout = time.Minute }},
		"deadline":   {queue.Options{Deadline: soon}, func(i *asynq.TaskInfo) { i.Timeout, i.Deadline = 0, soon }},
		"both":       {queue.Options{Deadline: soon, Timeout: time.Minute}, func(i *asynq.TaskInfo) { i.Timeout, i.Deadline = time.Minute, soon }},
		"retention":  {queue.Options{Retention: time.Hour}, func(i *asynq.TaskInfo) { i.Retention = time.Hour }},
	}, func(b *bundle, tt row) {
		info := b.info(b.enqueue(b.job(7), tt.opts))
		want := asynq.TaskInfo{
			ID: info.ID, Queue: b.queue, Type: "test:job", Payload: fmt.Appendf(nil, `{"res":%q,"n":7}`, b.resource),
			Headers: map[string]string{queue.HeaderResource: b.resource},
			State:   asynq.TaskStatePending, MaxRetry: 25, Timeout: 30 * time.Minute, NextProcessAt: info.NextProcessAt,
		}
		tt.want(&want)
		expect.Same(b, "task", *info, want, gocmp.Comparer(sameTime))
	})
}

// sameTime knows that asynq shows a missing deadline as the start of Unix time.
func sameTime(a, b time.Time) bool {
	return a.Equal(b) || (a.IsZero() || a.Unix() == 0) && (b.IsZero() || b.Unix() == 0)
}

// asynq cuts fractions of a second off. A task would run too early, or its deadline would be over when it is taken.
func TestTimesAreNotCutShort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, in := range []time.Duration{time.Millisecond, 500 * time.Millisecond, 1001 * time.Millisecond} {
		start := time.Now()
		info := b.info(b.enqueue(b.job(1), queue.Options{Delay: in, Deadline: start.Add(time.Hour + in)}))
		after := info.Deadline.Sub(start.Add(time.Hour + in))
		expect.That(t, after >= 0 && after < time.Second, "want the deadline up to a second after it, have %v", after)
		if info.State == asynq.TaskStatePending && time.Since(start) > in {
			continue // the machine stood still
		}
		if wait := info.NextProcessAt.Sub(start); info.State != asynq.TaskStateScheduled || wait < in || wait > in+time.Second+100*time.Millisecond {
			t.Errorf("delay %v: want it within a second after that, have %v in state %v", in, wait, info.State)
		}
	}
}

type invalid struct{ job }

var errOdd = errors.New("n is odd")

func (invalid) Validate() error { return errOdd }

type named struct {
	kind string
	Data any `json:"data"`
}

func (n named) Kind() string { return n.kind }

type list []int

func (list) Kind() string { return "test:list" }

// An error names the field, what is wanted and the value. Then nothing has reached Redis.
func TestInvalidTasks(t *testing.T) {
	t.Parallel()
	const (
		half    = 500 * time.Millisecond
		names   = `want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have `
		keys    = `want at most 512 bytes of UTF-8 without control characters, have `
		seconds = `want whole seconds, 1 or more, `
		retries = `retries: want 0 to 2147483647, or -1 for none, have `
	)
	type row struct {
		name string
		task queue.Task
		opts queue.Options
		want string
	}
	ok := job{Res: "order:1"}
	rows := []row{
		{"no resource", job{}, queue.Options{}, `test:job: resource: lock: bad resource name: it is empty`},
		{"long resource", job{Res: strings.Repeat("x", store.MaxResource+1)}, queue.Options{}, `test:job: resource: lock: bad resource name: want at most 512 bytes, have 513`},
		{"braces in resource", job{Res: "order:1}"}, queue.Options{}, `test:job: resource: lock: bad resource name: braces`},
		{"validator", invalid{ok}, queue.Options{}, `test:job: payload: n is odd`},
		{"no task", nil, queue.Options{}, `<nil>: task: want one that is not nil`},
		{"nil task", (*job)(nil), queue.Options{}, `*queue_test.job: task: want one that is not nil`},
		{"no kind", named{}, queue.Options{}, `queue_test.named: kind: want 1 to 256 bytes of UTF-8`},
		{"kind of broken text", named{kind: "k\xff"}, queue.Options{}, `queue_test.named: kind: want 1 to 256 bytes of UTF-8, have "k\xff"`},
		{"long kind", named{kind: strings.Repeat("k", 257)}, queue.Options{}, `queue_test.named: kind: want 1 to 256 bytes of UTF-8, have "kkk`},
		{"not JSON", named{"test:any", math.NaN()}, queue.Options{}, `test:any: payload: json: unsupported value: NaN`},
		{"null", list(nil), queue.Options{}, `test:list: payload: want a value, have null`},
		{"large payload", named{"test:any", strings.Repeat("x", queue.MaxPayload)}, queue.Options{}, `test:any: payload: want at most 262144 bytes, have 262155`},
	}
	for _, bad := range []struct {
		opts queue.Options
		want string
	}{
		{queue.Options{Unique: true, UniqueFor: time.Hour}, `unique for: want none of a task that is unique while it is unfinished, have "1h0m0s"`},
		{queue.Options{UniqueFor: half}, `unique for: ` + seconds + `have "500ms"`},
		{queue.Options{Timeout: half}, `timeout: ` + seconds + `have "500ms"`},
		{queue.Options{Timeout: 3 * half}, `timeout: ` + seconds + `have "1.5s"`},
		{queue.Options{Timeout: -time.Second}, `timeout: ` + seconds + `have "-1s"`},
		{queue.Options{Retention: half}, `retention: ` + seconds + `have "500ms"`},
		{queue.Options{Delay: -1}, `delay: want 0 or more, have "-1ns"`},
		{queue.Options{Delay: 1, At: time.Now()}, `delay: want either a delay or a time, not both, have "1ns"`},
		{queue.Options{Retries: -2}, retries + `"-2"`},
		{queue.Options{Retries: 1 << 31}, retries + `"2147483648"`},
		{queue.Options{Retries: 1 << 32}, retries + `"4294967296"`},
		{queue.Options{Deadline: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}, `deadline: want a time to come, have "2020-01-01T00:00:00Z"`},
		{queue.Options{Delay: time.Second, MaxDelay: time.Minute}, `max delay: want none of a task without a debounce, have "1m0s"`},
		{queue.Options{Queue: " "}, `queue: ` + names + `" "`},
		{queue.Options{Queue: "{x}"}, `queue: ` + names + `"{x}"`},
		{queue.Options{Queue: "default/archived_tasks:delete_all"}, `queue: ` + names + `"default/archived_tasks:delete_all"`},
		{queue.Options{TaskID: strings.Repeat("x", 257)}, `task id: ` + names + `"` + strings.Repeat("x", 80) + `…"`},
		{queue.Options{Headers: map[string]string{queue.HeaderResource: "order:2"}}, `headers: want names that are not empty and do not begin with siding-, have "siding-resource"`},
		{queue.Options{Headers: map[string]string{"": "x"}}, `headers: want names that are not empty`},
		{queue.Options{Headers: map[string]string{"a": "\xff"}}, `headers: want UTF-8, have "a"`},
		{queue.Options{Headers: map[string]string{"a": strings.Repeat("x", queue.MaxPayload/2), "b": strings.Repeat("x", queue.MaxPayload/2)}}, `headers: want at most 262144 bytes with the payload, have "b"`},
	} {
		rows = append(rows, row{bad.want, ok, bad.opts, "test:job: " + bad.want})
	}
	for _, id := range []string{"../archived_tasks:delete_all", ".", "..", "a?b", "a#b", "%2e%2e", `a\b`, "a ", "a\xff", "a\ufffd", "a\x00"} {
		rows = append(rows, row{"id " + id, ok, queue.Options{TaskID: id}, fmt.Sprintf("test:job: task id: %s%q", names, id)})
	}
	for want, change := range map[string]func(*queue.Options){
		`debounce: ` + keys + `"xxx`:                             func(o *queue.Options) { o.Debounce = strings.Repeat("x", 513) },
		`debounce: ` + keys + `"a\xff"`:                          func(o *queue.Options) { o.Debounce = "a\xff" },
		`debounce: ` + keys + "\"a\ufffd\"":                      func(o *queue.Options) { o.Debounce = "a\ufffd" },
		`debounce: ` + keys + `"a\nb"`:                           func(o *queue.Options) { o.Debounce = "a\nb" },
		`task id: want none of a task with a debounce, have "y"`: func(o *queue.Options) { o.TaskID = "y" },
		`at: want none of a task with a debounce, have "2999-01-01T00:00:00Z"`: func(o *queue.Options) {
			o.At, o.Delay = time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), 0
		},
		`unique: want none of a task with a debounce, have "true"`:                   func(o *queue.Options) { o.Unique = true },
		`unique for: want none of a task with a debounce, have "1h0m0s"`:             func(o *queue.Options) { o.UniqueFor = time.Hour },
		`delay: ` + seconds + `of a task with a debounce, have "0s"`:                 func(o *queue.Options) { o.Delay = 0 },
		`delay: ` + seconds + `of a task with a debounce, have "-1s"`:                func(o *queue.Options) { o.Delay = -time.Second },
		`delay: ` + seconds + `of a task with a debounce, have "1.5s"`:               func(o *queue.Options) { o.Delay = 3 * half },
		`max delay: want whole seconds, no less than the delay of 1s, have "0s"`:     func(o *queue.Options) { o.MaxDelay = 0 },
		`max delay: want whole seconds, no less than the delay of 1m1s, have "1m0s"`: func(o *queue.Options) { o.Delay = 61 * time.Second },
		`max delay: want whole seconds, no less than the delay of 1s, have "1.5s"`:   func(o *queue.Options) { o.MaxDelay = 3 * half },
	} {
		o := queue.Options{Debounce: "x", Delay: time.Second, MaxDelay: time.Minute}
		change(&o)
		rows = append(rows, row{want, ok, o, "test:job: " + want})
	}
	rdb := redis.NewClient(&redis.Options{})
	_ = rdb.Close() // so whoever asks it gets another error
	client := newClient(t, rdb)
	for _, tt := range rows {
		_, err := client.Enqueue(t.Context(), tt.task, &tt.opts)
		expect.That(t, err != nil && strings.HasPrefix(err.Error(), tt.want), "%s: want %s\nhave %v", tt.name, tt.want, err)
		expect.Equal(t, tt.name+": check", fmt.Sprint(queue.ClientConfig{}.Check(tt.task, &tt.opts)), fmt.Sprint(err))
		_, ok := errors.AsType[*queue.TaskError](err)
		expect.That(t, ok, "%s: want a TaskError, have %T", tt.name, err)
		cause := map[string]error{"validator": errOdd, "no resource": lock.ErrResource, "long resource": lock.ErrResource}[tt.name]
		expect.That(t, cause == nil || errors.Is(err, cause), "%s: want %v as the cause, have %v", tt.name, cause, err)
	}
	expect.OK(t, queue.ClientConfig{}.Check(named{"test:any", strings.Repeat("x", queue.MaxPayload-len(`{"data":""}`))}, nil)) // exactly the limit
}

func TestTaskIDConflict(t *testing.T) {
	t.Parallel()
	b := setup(t)
	opts := &queue.Options{Queue: b.queue, TaskID: "order:1"}
	b.enqueue(b.job(1), *opts)
	if _, err := b.client.Enqueue(t.Context(), b.job(2), opts); !errors.Is(err, queue.ErrTaskIDConflict) ||
		!errors.Is(err, asynq.ErrTaskIDConflict) || errors.Is(err, queue.ErrDuplicate) || errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("want ErrTaskIDConflict, have %v", err)
	} else if want := `test:job: queue: a task of this id exists already: "order:1" in the queue "` + b.queue + `"`; err.Error() != want {
		t.Errorf("want %s, have %v", want, err)
	}
	expect.Equal(t, "tasks", b.stats().Size, 1)
}

// A task is unique while it is unfinished, and no longer, however it ends.
func TestUnique(t *testing.T) {
	t.Parallel()
	type row struct {
		opts  queue.Options
		wait  time.Duration // until its deadline
		fails bool
		ends  func(b *bundle, id string) error // an operator
		state asynq.TaskState                  // 0 for deleted
	}
	eachOf(t, everywhere, map[string]row{
		"success":          {},
		"a failure":        {fails: true, opts: queue.Options{Retries: queue.NoRetries}, state: asynq.TaskStateArchived},
		"its deadline":     {wait: 6 * time.Second, state: asynq.TaskStateArchived},
		"its MaxWait":      {opts: queue.Options{Policy: &queue.Policy{MaxWait: 6 * time.Second}}, state: asynq.TaskStateArchived},
		"archived by hand": {ends: func(b *bundle, id string) error { return b.inspector.ArchiveTask(b.queue, id) }, state: asynq.TaskStateArchived},
		"deleted by hand":  {ends: func(b *bundle, id string) error { return b.inspector.DeleteTask(b.queue, id) }},
	}, func(b *bundle, tt row) {
		b.serve(queue.ServerConfig{}, b.run)
		holder := b.occupy()
		if tt.fails {
			b.act(1, func() error { return errors.New("out of stock") })
		}
		o := tt.opts
		o.Queue, o.Unique = b.queue, true
		if tt.wait > 0 {
			o.Deadline = time.Now().Add(tt.wait)
		}
		id := b.enqueue(b.job(1), o)
		b.awaitState(id, asynq.TaskStateRetry)
		key := b.rdb.HGet(b.Context(), b.taskKey(id), "unique_key").Val()
		err := expect.Err(b.client.Enqueue(b.Context(), b.job(1), &o))
		expect.Is(b, "enqueue", err, queue.ErrDuplicate)
		expect.Is(b, "enqueue, as by asynq's client", err, asynq.ErrDuplicateTask)
		switch {
		case tt.ends != nil:
			expect.OK(b, tt.ends(b, id))
		case o.Deadline.IsZero() && o.Policy == nil:
			holder.open()
		}
		if tt.state == 0 {
			b.awaitGone(id)
		} else {
			b.awaitState(id, tt.state)
		}
		free := b.rdb.Exists(b.Context(), key).Val() == 0
		expect.That(b, free || tt.ends != nil, "want no key of uniqueness, which asynq's clients respect, have one")
		_, err = b.client.Enqueue(b.Context(), b.job(1), &queue.Options{Queue: b.queue, Unique: true})
		expect.That(b, err == nil, "want an equal one accepted, have %v", err)
	})
}

// A task is unique for a time, whatever becomes of it: so two schedulers that enqueue the same have it run once. No wait
// prolongs that.
func TestUniqueFor(t *testing.T) {
	t.Parallel()
	const unique = time.Minute
	opts := func(b *bundle) *queue.Options { return &queue.Options{Queue: b.queue, UniqueFor: unique} }
	eachOf(t, onBoth, map[string]func(b *bundle, n int) (id string, _ error){
		"by our client": func(b *bundle, n int) (string, error) {
			r, err := b.client.Enqueue(b.Context(), b.job(n), opts(b))
			return r.ID, err
		},
		"by asynq's scheduler": func(b *bundle, n int) (string, error) {
			task := expect.Value(b.client.NewTask(b.job(n), opts(b)))(b)
			info, err := asynq.NewClientFromRedisClient(b.rdb).EnqueueContext(b.Context(), task)
			if err != nil {
				return "", err
			}
			return info.ID, nil
		},
	}, func(b *bundle, enqueue func(b *bundle, n int) (string, error)) {
		b.serve(queue.ServerConfig{}, b.run)
		holder := b.occupy()
		waits := expect.Value(enqueue(b, 1))(b)
		b.awaitState(waits, asynq.TaskStateRetry)
		holder.open()
		b.awaitGone(waits)
		b.act(2, func() error { return queue.Permanent(errors.New("out of stock")) })
		fails := expect.Value(enqueue(b, 2))(b)
		b.awaitState(fails, asynq.TaskStateArchived)
		for n := 1; n <= 2; n++ {
			id, err := enqueue(b, n)
			expect.That(b, errors.Is(err, queue.ErrDuplicate) || errors.Is(err, asynq.ErrDuplicateTask), "want a duplicate, have %s and %v", id, err)
			task := expect.Value(b.client.NewTask(b.job(n), opts(b)))(b)
			ttl := b.rdb.PTTL(b.Context(), taskredis.UniqueKey(b.queue, task.Type(), task.Payload())).Val()
			expect.That(b, ttl > 0 && ttl <= unique, "want it unique for %v at most, have %v", unique, ttl)
		}
		expect.OK(b, b.inspector.DeleteTask(b.queue, fails))
	})
}

// A uniqueness that another task has taken meanwhile is not extended for it.
func TestUniqueOfAnotherIsNotExtended(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.holdElsewhere(lock.Config{})
	id := b.enqueue(b.job(1), queue.Options{Unique: true})
	key := b.rdb.HGet(t.Context(), b.taskKey(id), "unique_key").Val()
	expect.OK(t, b.rdb.Set(t.Context(), key, "another", 10*time.Second).Err())
	b.serve(queue.ServerConfig{}, b.run)
	b.awaitState(id, asynq.TaskStateRetry)
	ttl := b.rdb.PTTL(t.Context(), key).Val()
	expect.That(t, ttl <= 10*time.Second, "want it as it was, have %v", ttl)
	holder.open()
	b.awaitGone(id)
}
