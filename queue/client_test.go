package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

func TestOptionsReachTheTask(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	for name, tt := range map[string]struct {
		opts queue.Options
		want asynq.TaskInfo
	}{
		"zero":       {queue.Options{}, asynq.TaskInfo{State: asynq.TaskStatePending, MaxRetry: 25, Timeout: 30 * time.Minute}},
		"task id":    {queue.Options{TaskID: "order:1"}, asynq.TaskInfo{ID: "order:1", State: asynq.TaskStatePending, MaxRetry: 25, Timeout: 30 * time.Minute}},
		"at":         {queue.Options{At: soon}, asynq.TaskInfo{State: asynq.TaskStateScheduled, MaxRetry: 25, Timeout: 30 * time.Minute, NextProcessAt: soon}},
		"at, past":   {queue.Options{At: time.Now().Add(-time.Hour)}, asynq.TaskInfo{State: asynq.TaskStatePending, MaxRetry: 25, Timeout: 30 * time.Minute}},
		"retries":    {queue.Options{Retries: 3}, asynq.TaskInfo{State: asynq.TaskStatePending, MaxRetry: 3, Timeout: 30 * time.Minute}},
		"no retries": {queue.Options{Retries: queue.NoRetries}, asynq.TaskInfo{State: asynq.TaskStatePending, Timeout: 30 * time.Minute}},
		"timeout":    {queue.Options{Timeout: time.Minute}, asynq.TaskInfo{State: asynq.TaskStatePending, MaxRetry: 25, Timeout: time.Minute}},
		"deadline":   {queue.Options{Deadline: soon}, asynq.TaskInfo{State: asynq.TaskStatePending, MaxRetry: 25, Deadline: soon}},
		"both":       {queue.Options{Deadline: soon, Timeout: time.Minute}, asynq.TaskInfo{State: asynq.TaskStatePending, MaxRetry: 25, Deadline: soon, Timeout: time.Minute}},
		"retention":  {queue.Options{Retention: time.Hour}, asynq.TaskInfo{State: asynq.TaskStatePending, MaxRetry: 25, Timeout: 30 * time.Minute, Retention: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			id := b.enqueue(t, b.job(7), tt.opts)
			info, err := b.inspector.GetTaskInfo(b.queue, id)
			if err != nil {
				t.Fatal(err)
			}
			have := asynq.TaskInfo{
				State: info.State, MaxRetry: info.MaxRetry, Timeout: info.Timeout, Deadline: info.Deadline,
				Retention: info.Retention,
			}
			if tt.opts.TaskID != "" {
				have.ID = info.ID
			}
			if info.State == asynq.TaskStateScheduled {
				have.NextProcessAt = info.NextProcessAt
			}
			if diff := cmp.Diff(tt.want, have, cmp.Comparer(sameTime)); diff != "" {
				t.Errorf("(-want +have)\n%s", diff)
			}
			if want := fmt.Sprintf(`{"res":%q,"n":7}`, b.resource); string(info.Payload) != want {
				t.Errorf("payload: want %s, have %s", want, info.Payload)
			}
			if have := info.Headers[queue.HeaderResource]; have != b.resource {
				t.Errorf("header: want %s, have %s", b.resource, have)
			}
		})
	}
}

// sameTime knows that asynq shows a missing deadline as the start of Unix time.
func sameTime(a, b time.Time) bool {
	return a.Equal(b) || (a.IsZero() || a.Unix() == 0) && (b.IsZero() || b.Unix() == 0)
}

// asynq cuts fractions of a second off, which would run a task too early.
func TestDelayIsNotCutShort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, delay := range []time.Duration{time.Millisecond, 500 * time.Millisecond, 1001 * time.Millisecond} {
		start := time.Now()
		info, err := b.inspector.GetTaskInfo(b.queue, b.enqueue(t, b.job(1), queue.Options{Delay: delay}))
		if err != nil {
			t.Fatal(err)
		}
		if info.State == asynq.TaskStatePending && time.Since(start) > delay {
			continue // the machine stood still
		}
		if wait := info.NextProcessAt.Sub(start); info.State != asynq.TaskStateScheduled || wait < delay || wait > delay+time.Second+100*time.Millisecond {
			t.Errorf("delay %v: want it within a second after that, have %v in state %v", delay, wait, info.State)
		}
	}
}

// asynq cuts fractions off deadlines, too. A deadline in less than a second would be over when the
// task is taken, and the task would never run.
func TestDeadlineIsNotCutShort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	deadline := time.Now().Truncate(time.Second).Add(1900 * time.Millisecond)
	info, err := b.inspector.GetTaskInfo(b.queue, b.enqueue(t, b.job(1), queue.Options{Deadline: deadline}))
	if err != nil {
		t.Fatal(err)
	}
	if after := info.Deadline.Sub(deadline); after < 0 || after >= time.Second {
		t.Errorf("want it up to a second after %v, have %v", deadline, info.Deadline)
	}
}

type invalid struct{ job }

func (invalid) Validate() error { return errors.New(`test:job: payload field "n" is odd`) }

type named struct {
	kind string
	Data any `json:"data"`
}

func (n named) Kind() string { return n.kind }

// An error names the field, what is wanted and the value. Then nothing has reached Redis.
func TestInvalidTasks(t *testing.T) {
	t.Parallel()
	const half = 500 * time.Millisecond
	ok := job{Res: "order:1"}
	for _, tt := range []struct {
		name string
		task queue.Task
		opts queue.Options
		want string
	}{
		{"unique in two ways", ok, queue.Options{Unique: true, UniqueFor: time.Hour}, `test:job: unique for: want none of a task that is unique while it is unfinished, have "1h0m0s"`},
		{"unique for half a second", ok, queue.Options{UniqueFor: half}, `test:job: unique for: want whole seconds, 1 or more, have "500ms"`},
		{"timeout of half a second", ok, queue.Options{Timeout: half}, `test:job: timeout: want whole seconds, 1 or more, have "500ms"`},
		{"retention of half a second", ok, queue.Options{Retention: half}, `test:job: retention: want whole seconds, 1 or more, have "500ms"`},
		{"timeout of 1.5 s", ok, queue.Options{Timeout: 3 * half}, `test:job: timeout: want whole seconds, 1 or more, have "1.5s"`},
		{"negative timeout", ok, queue.Options{Timeout: -time.Second}, `test:job: timeout: want whole seconds, 1 or more, have "-1s"`},
		{"negative delay", ok, queue.Options{Delay: -1}, `test:job: delay: want 0 or more, have "-1ns"`},
		{"delay and time", ok, queue.Options{Delay: 1, At: time.Now()}, `test:job: delay: want either a delay or a time, not both, have "1ns"`},
		{"retries", ok, queue.Options{Retries: -2}, `test:job: retries: want 0 to 2147483647, or -1 for none, have "-2"`},
		{"retries", ok, queue.Options{Retries: 1 << 31}, `test:job: retries: want 0 to 2147483647, or -1 for none, have "2147483648"`},
		{"retries", ok, queue.Options{Retries: 1 << 32}, `test:job: retries: want 0 to 2147483647, or -1 for none, have "4294967296"`},
		{"deadline passed", ok, queue.Options{Deadline: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}, `test:job: deadline: want a time to come, have "2020-01-01T00:00:00Z"`},
		{"max delay alone", ok, queue.Options{Delay: time.Second, MaxDelay: time.Minute}, `test:job: max delay: want none of a task without a debounce, have "1m0s"`},
		{"long debounce", ok, queue.Options{Debounce: strings.Repeat("x", 513), Delay: time.Second, MaxDelay: time.Minute}, `test:job: debounce: want at most 512 bytes of UTF-8 without control characters, have "xxx`},
		{"debounce that is no UTF-8", ok, queue.Options{Debounce: "a\xff", Delay: time.Second, MaxDelay: time.Minute}, `test:job: debounce: want at most 512 bytes of UTF-8 without control characters, have "a\xff"`},
		{"line feed in debounce", ok, queue.Options{Debounce: "a\nb", Delay: time.Second, MaxDelay: time.Minute}, `test:job: debounce: want at most 512 bytes of UTF-8 without control characters, have "a\nb"`},
		{"debounce and id", ok, queue.Options{Debounce: "x", TaskID: "y", Delay: time.Second, MaxDelay: time.Minute}, `test:job: task id: want none of a task with a debounce, have "y"`},
		{"debounce and time", ok, queue.Options{Debounce: "x", At: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), MaxDelay: time.Minute}, `test:job: at: want none of a task with a debounce, have "2999-01-01T00:00:00Z"`},
		{"debounce and unique", ok, queue.Options{Debounce: "x", Unique: true, Delay: time.Second, MaxDelay: time.Minute}, `test:job: unique: want none of a task with a debounce, have "true"`},
		{"debounce and unique for a time", ok, queue.Options{Debounce: "x", UniqueFor: time.Hour, Delay: time.Second, MaxDelay: time.Minute}, `test:job: unique for: want none of a task with a debounce, have "1h0m0s"`},
		{"debounce without a delay", ok, queue.Options{Debounce: "x", MaxDelay: time.Minute}, `test:job: delay: want whole seconds, 1 or more, of a task with a debounce, have "0s"`},
		{"debounce with a negative delay", ok, queue.Options{Debounce: "x", Delay: -time.Second, MaxDelay: time.Minute}, `test:job: delay: want whole seconds, 1 or more, of a task with a debounce, have "-1s"`},
		{"debounce of 1.5 s", ok, queue.Options{Debounce: "x", Delay: 3 * half, MaxDelay: time.Minute}, `test:job: delay: want whole seconds, 1 or more, of a task with a debounce, have "1.5s"`},
		{"debounce without an end", ok, queue.Options{Debounce: "x", Delay: time.Second}, `test:job: max delay: want whole seconds, no less than the delay of 1s, have "0s"`},
		{"max delay below the delay", ok, queue.Options{Debounce: "x", Delay: time.Minute, MaxDelay: 59 * time.Second}, `test:job: max delay: want whole seconds, no less than the delay of 1m0s, have "59s"`},
		{"max delay of 1.5 s", ok, queue.Options{Debounce: "x", Delay: time.Second, MaxDelay: 3 * half}, `test:job: max delay: want whole seconds, no less than the delay of 1s, have "1.5s"`},
		{"blank queue", ok, queue.Options{Queue: " "}, `test:job: queue: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have " "`},
		{"braces in queue", ok, queue.Options{Queue: "{x}"}, `test:job: queue: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "{x}"`},
		{"id that a browser folds", ok, queue.Options{TaskID: "../archived_tasks:delete_all"}, `test:job: task id: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "../archived_tasks:delete_all"`},
		{"queue that is a path", ok, queue.Options{Queue: "default/archived_tasks:delete_all"}, `test:job: queue: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "default/archived_tasks:delete_all"`},
		{"dot", ok, queue.Options{TaskID: "."}, `test:job: task id: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "."`},
		{"dots", ok, queue.Options{TaskID: ".."}, `test:job: task id: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have ".."`},
		{"query", ok, queue.Options{TaskID: "a?b"}, `test:job: task id: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "a?b"`},
		{"fragment", ok, queue.Options{TaskID: "a#b"}, `test:job: task id: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "a#b"`},
		{"percent sign", ok, queue.Options{TaskID: "%2e%2e"}, `test:job: task id: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "%2e%2e"`},
		{"backslash", ok, queue.Options{TaskID: `a\b`}, `test:job: task id: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "a\\b"`},
		{"blank at the end", ok, queue.Options{TaskID: "a "}, `test:job: task id: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "a "`},
		{"no UTF-8", ok, queue.Options{TaskID: "a\xff"}, `test:job: task id: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "a\xff"`},
		{"control character in id", ok, queue.Options{TaskID: "a\x00"}, `test:job: task id: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "a\x00"`},
		{"long id", ok, queue.Options{TaskID: strings.Repeat("x", 257)}, `test:job: task id: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "` + strings.Repeat("x", 80) + `…"`},
		{"header of ours", ok, queue.Options{Headers: map[string]string{queue.HeaderResource: "order:2"}}, `test:job: headers: want names that are not empty and do not begin with siding-, have "siding-resource"`},
		{"header without a name", ok, queue.Options{Headers: map[string]string{"": "x"}}, `test:job: headers: want names that are not empty`},
		{"header that is no UTF-8", ok, queue.Options{Headers: map[string]string{"a": "\xff"}}, `test:job: headers: want UTF-8, have "a"`},
		{"large headers", ok, queue.Options{Headers: map[string]string{"a": strings.Repeat("x", queue.MaxPayload/2), "b": strings.Repeat("x", queue.MaxPayload/2)}}, `test:job: headers: want at most 262144 bytes with the payload, have "b"`},
		{"no resource", job{}, queue.Options{}, `test:job: resource: lock: bad resource name: it is empty`},
		{"long resource", job{Res: strings.Repeat("x", store.MaxResource+1)}, queue.Options{}, `test:job: resource: lock: bad resource name: want at most 512 bytes, have 513`},
		{"braces in resource", job{Res: "order:1}"}, queue.Options{}, `test:job: resource: lock: bad resource name: braces`},
		{"validator", invalid{ok}, queue.Options{}, `test:job: payload field "n" is odd`},
		{"no task", nil, queue.Options{}, `<nil>: task: want one that is not nil`},
		{"nil task", (*job)(nil), queue.Options{}, `*queue_test.job: task: want one that is not nil`},
		{"no kind", named{}, queue.Options{}, `queue_test.named: kind: want 1 to 256 bytes of UTF-8`},
		{"kind of broken text", named{kind: "k\xff"}, queue.Options{}, `queue_test.named: kind: want 1 to 256 bytes of UTF-8, have "k\xff"`},
		{"long kind", named{kind: strings.Repeat("k", 257)}, queue.Options{}, `queue_test.named: kind: want 1 to 256 bytes of UTF-8, have "kkk`},
		{"not JSON", named{"test:any", math.NaN()}, queue.Options{}, `test:any: payload: json: unsupported value: NaN`},
		{"large payload", named{"test:any", strings.Repeat("x", queue.MaxPayload)}, queue.Options{}, `test:any: payload: want at most 262144 bytes, have 262155`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// Closed: whoever asks it gets another error.
			rdb := redis.NewClient(&redis.Options{})
			_ = rdb.Close()
			_, err := newClient(t, rdb).Enqueue(t.Context(), tt.task, &tt.opts)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("want %s\nhave %v", tt.want, err)
			}
			if check := queue.Check(tt.task, &tt.opts); fmt.Sprint(check) != fmt.Sprint(err) {
				t.Errorf("check: want %v, have %v", err, check)
			}
			var bad *queue.TaskError
			if tt.name != "validator" && tt.name != "not JSON" && !errors.As(err, &bad) {
				t.Errorf("want a TaskError, have %T", err)
			}
		})
	}
	if err := queue.Check(named{"test:any", strings.Repeat("x", queue.MaxPayload-len(`{"data":""}`))}, nil); err != nil {
		t.Errorf("a payload of exactly the limit: want it accepted, have %v", err)
	}
}

func TestTaskIDConflict(t *testing.T) {
	t.Parallel()
	b := setup(t)
	opts := &queue.Options{Queue: b.queue, TaskID: "order:1"}
	b.enqueue(t, b.job(1), *opts)
	if _, err := b.client.Enqueue(t.Context(), b.job(2), opts); !errors.Is(err, queue.ErrTaskIDConflict) || errors.Is(err, queue.ErrDuplicate) {
		t.Errorf("want ErrTaskIDConflict, have %v", err)
	} else if want := `test:job: queue: a task of this id exists already: "order:1" in the queue "` + b.queue + `"`; err.Error() != want {
		t.Errorf("want %s, have %v", want, err)
	}
	if info := b.stats(t); info.Size != 1 {
		t.Errorf("want 1 task, have %d", info.Size)
	}
}

// A task that asynq's client has made unique for a time stays so while it waits for its resource: its key is extended to
// beyond the time at which it is looked at next, and freed when it has succeeded.
func TestUniqueWhileParked(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	holder := b.holdElsewhere(t, st, lock.Config{})
	b.serve(t, queue.ServerConfig{}, st.run)
	client := asynq.NewClientFromRedisClient(b.rdb)
	enqueue := func() (*asynq.TaskInfo, error) {
		task, err := b.client.NewTask(b.job(1), &queue.Options{Queue: b.queue})
		if err != nil {
			t.Fatal(err)
		}
		return client.EnqueueContext(t.Context(), task, asynq.Unique(2*time.Second))
	}
	first, err := enqueue()
	if err != nil {
		t.Fatal(err)
	}
	info := b.awaitState(t, first.ID, asynq.TaskStateRetry)
	key := b.rdb.HGet(t.Context(), b.taskKey(first.ID), "unique_key").Val()
	if ttl := b.rdb.PTTL(t.Context(), key).Val(); ttl < time.Until(info.NextProcessAt) {
		t.Errorf("uniqueness: want it longer than the task waits for now, %v, have %v", time.Until(info.NextProcessAt), ttl)
	}
	if _, err := enqueue(); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("want ErrDuplicateTask, have %v", err)
	}
	holder.open()
	b.awaitGone(t, first.ID)
	if _, err := enqueue(); err != nil {
		t.Error(err)
	}
}

// A task is unique while it is unfinished, and no longer, however it ends.
func TestUnique(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts  queue.Options
		wait  time.Duration // until its deadline
		fails bool
		ends  func(b *bundle, id string) error // an operator
		state asynq.TaskState                  // 0 for deleted
	}{
		"success":          {},
		"a failure":        {fails: true, opts: queue.Options{Retries: queue.NoRetries}, state: asynq.TaskStateArchived},
		"its deadline":     {wait: 3 * time.Second, state: asynq.TaskStateArchived},
		"its MaxWait":      {opts: queue.Options{Policy: &queue.Policy{MaxWait: time.Second}}, state: asynq.TaskStateArchived},
		"archived by hand": {ends: func(b *bundle, id string) error { return b.inspector.ArchiveTask(b.queue, id) }, state: asynq.TaskStateArchived},
		"deleted by hand":  {ends: func(b *bundle, id string) error { return b.inspector.DeleteTask(b.queue, id) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st := newStage(t)
				b.serve(t, queue.ServerConfig{}, st.run)
				holder := b.occupy(t, st)
				if tt.fails {
					st.act(1, func() error { return errors.New("out of stock") })
				}
				o := tt.opts
				o.Queue, o.Unique = b.queue, true
				if tt.wait > 0 {
					o.Deadline = time.Now().Add(tt.wait)
				}
				id := b.enqueue(t, b.job(1), o)
				b.awaitState(t, id, asynq.TaskStateRetry)
				key := b.rdb.HGet(t.Context(), b.taskKey(id), "unique_key").Val()
				if _, err := b.client.Enqueue(t.Context(), b.job(1), &o); !errors.Is(err, queue.ErrDuplicate) {
					t.Errorf("want ErrDuplicate, have %v", err)
				}
				switch {
				case tt.ends != nil:
					if err := tt.ends(b, id); err != nil {
						t.Fatal(err)
					}
				case o.Deadline.IsZero() && o.Policy == nil:
					holder.open()
				}
				if tt.state == 0 {
					b.awaitGone(t, id)
				} else {
					b.awaitState(t, id, tt.state)
				}
				if n := b.rdb.Exists(t.Context(), key).Val(); n > 0 && tt.ends == nil {
					t.Error("want no key of uniqueness, which asynq's clients respect, have one")
				}
				if _, err := b.client.Enqueue(t.Context(), b.job(1), &queue.Options{Queue: b.queue, Unique: true}); err != nil {
					t.Errorf("want an equal one accepted, have %v", err)
				}
			})
		})
	}
}

// A task is unique for a time, whatever becomes of it: so two schedulers that enqueue the same have it run once. No wait
// prolongs that.
func TestUniqueFor(t *testing.T) {
	t.Parallel()
	const unique = time.Minute
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		b.serve(t, queue.ServerConfig{}, st.run)
		holder := b.occupy(t, st)
		opts := &queue.Options{Queue: b.queue, UniqueFor: unique}
		scheduler := asynq.NewClientFromRedisClient(b.rdb)
		for i, enqueue := range []func(n int) (id string, _ error){
			func(n int) (string, error) {
				r, err := b.client.Enqueue(t.Context(), b.job(n), opts)
				return r.ID, err
			},
			func(n int) (string, error) {
				task, err := b.client.NewTask(b.job(n), opts)
				if err != nil {
					return "", err
				}
				info, err := scheduler.EnqueueContext(t.Context(), task)
				if err != nil {
					return "", err
				}
				return info.ID, nil
			},
		} {
			waits, err := enqueue(2*i + 1)
			if err != nil {
				t.Fatal(err)
			}
			b.awaitState(t, waits, asynq.TaskStateRetry)
			holder.open()
			b.awaitGone(t, waits)
			st.act(2*i+2, func() error { return queue.Permanent(errors.New("out of stock")) })
			fails, err := enqueue(2*i + 2)
			if err != nil {
				t.Fatal(err)
			}
			b.awaitState(t, fails, asynq.TaskStateArchived)
			for n := 2*i + 1; n <= 2*i+2; n++ {
				if id, err := enqueue(n); !errors.Is(err, queue.ErrDuplicate) && !errors.Is(err, asynq.ErrDuplicateTask) {
					t.Errorf("want a duplicate, have %s and %v", id, err)
				}
				task, err := b.client.NewTask(b.job(n), opts)
				if err != nil {
					t.Fatal(err)
				}
				if ttl := b.rdb.PTTL(t.Context(), taskredis.UniqueKey(b.queue, task.Type(), task.Payload())).Val(); ttl <= 0 || ttl > unique {
					t.Errorf("want it unique for %v at most, have %v", unique, ttl)
				}
			}
			if err := b.inspector.DeleteTask(b.queue, fails); err != nil {
				t.Error(err)
			}
			if i == 0 {
				holder = b.occupy(t, st)
			}
		}
	})
}

// A uniqueness that another task has taken meanwhile is not extended for it.
func TestUniqueOfAnotherIsNotExtended(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	holder := b.holdElsewhere(t, st, lock.Config{})
	id := b.enqueue(t, b.job(1), queue.Options{Unique: true})
	key := b.rdb.HGet(t.Context(), b.taskKey(id), "unique_key").Val()
	if err := b.rdb.Set(t.Context(), key, "another", 10*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	b.serve(t, queue.ServerConfig{}, st.run)
	b.awaitState(t, id, asynq.TaskStateRetry)
	if ttl := b.rdb.PTTL(t.Context(), key).Val(); ttl > 10*time.Second {
		t.Errorf("want it as it was, have %v", ttl)
	}
	holder.open()
	b.awaitGone(t, id)
}

func TestBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	opts := func(id string) *queue.Options { return &queue.Options{Queue: b.queue, TaskID: id} }
	results, err := b.client.EnqueueBatch(t.Context(), []queue.Job{
		{b.job(1), opts("a")},
		{job{}, opts("b")}, // no resource
		{b.job(2), opts("a")},
		{b.job(3), opts("c")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var bad *queue.TaskError
	if results[0].Err != nil || results[0].ID != "a" || results[0].Queue != b.queue || results[3].Err != nil || results[3].ID != "c" {
		t.Errorf("want the first and the last accepted, have %+v", results)
	}
	if !errors.As(results[1].Err, &bad) || !errors.Is(results[2].Err, queue.ErrTaskIDConflict) {
		t.Errorf("want the second and the third refused, have %+v", results)
	}
	if info := b.stats(t); info.Pending != 2 {
		t.Errorf("want 2 tasks, have %d", info.Pending)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results, err = b.client.EnqueueBatch(ctx, []queue.Job{{job{}, nil}, {b.job(4), nil}, {b.job(5), nil}})
	if !errors.Is(err, context.Canceled) || !errors.As(results[0].Err, &bad) || !errors.Is(results[1].Err, context.Canceled) || !errors.Is(results[2].Err, context.Canceled) {
		t.Errorf("after the end of ctx: have %+v, %v", results, err)
	}
}
