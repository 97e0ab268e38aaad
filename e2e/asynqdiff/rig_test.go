package asynqdiff

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// databases is how many runs a lab has room for.
const databases = 4096

// A lab is a redis-server with an empty database for each run.
type lab struct {
	addr string
	used atomic.Int32
}

func newLab(t *testing.T) *lab {
	t.Helper()
	return &lab{addr: redistest.Start(t, "--databases", fmt.Sprint(databases)).Addr}
}

// run plays a scenario on a subject, and returns all that can be seen of it.
func (l *lab) run(t *testing.T, s scenario, on subject) []string {
	t.Helper()
	db := int(l.used.Add(1)) % databases
	client := redis.NewClient(&redis.Options{Addr: l.addr, DB: db, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	r := &rig{
		t: t, s: s, on: on, addr: l.addr, db: db, redis: client,
		client: asynq.NewClientFromRedisClient(client), inspect: asynq.NewInspectorFromRedisClient(client),
		gates: make(map[string]chan struct{}),
	}
	t.Cleanup(r.end) // a play that has failed leaves handlers behind
	for _, t := range s.tasks {
		r.enqueue(t)
	}
	if s.play != nil {
		s.play(r)
	} else {
		r.finish()
	}
	r.end()
	r.until("all handlers to leave", r.record.allLeft)
	ordered := r.config().Concurrency == 1
	lines := slices.Concat([]string{"# notes"}, r.notes, r.record.lines(ordered), r.snapshots, r.look("at the end", !r.crashed()))
	return strings.Split(r.plain(text(lines)), "\n")
}

// A rig is what plays are written with: a database, its clients, and servers of one subject.
type rig struct {
	t       *testing.T
	s       scenario
	on      subject
	addr    string
	db      int
	redis   *redis.Client
	client  *asynq.Client
	inspect *asynq.Inspector

	record    record
	notes     []string // what clients and operators were answered
	snapshots []string
	servers   []*server

	mu    sync.Mutex
	tasks []task                   // that were enqueued; guarded by mu
	gates map[string]chan struct{} // of tasks whose handlers are held; guarded by mu
	ended bool                     // nothing is held any more; guarded by mu
}

// config returns the configuration of the scenario: one task at a time, in a hurry. A retry comes at once
// while its task has attempts to come, else in an hour.
func (r *rig) config() asynq.Config {
	c := asynq.Config{
		Concurrency:              1,
		TaskCheckInterval:        10 * time.Millisecond,
		DelayedTaskCheckInterval: 10 * time.Millisecond,
		ShutdownTimeout:          20 * time.Second,
		BaseContext:              context.Background,
		IsFailure:                func(err error) bool { return err != nil },
		ErrorHandler:             asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) {}),
		RetryDelayFunc: func(_ int, _ error, t *asynq.Task) time.Duration {
			if begun, _ := r.record.begun(t.Type()); begun < len(r.task(t.Type()).does) {
				return 0
			}
			return time.Hour
		},
		LogLevel: asynq.FatalLevel,
	}
	if r.s.config != nil {
		r.s.config(&c)
	}
	return c
}

// task returns the task of that name. Tasks that are no scenario's have a handler that returns nil.
func (r *rig) task(name string) task {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.tasks, func(t task) bool { return t.name == name })
	if i < 0 {
		return task{name: name}
	}
	return r.tasks[i]
}

func (r *rig) add(t task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks = append(r.tasks, t)
}

// id returns the id of a task. Canceling goes by ids, and knows no databases.
func (r *rig) id(name string) string { return name + r.suffix() }

func (r *rig) suffix() string { return fmt.Sprintf("~%d~", r.db) }

// note notes what somebody was answered.
func (r *rig) note(who string, answer any) {
	if err, ok := answer.(error); ok {
		answer = says(err)
	}
	r.notes = append(r.notes, fmt.Sprintf("%s: %v", who, answer))
}

// enqueue enqueues a task, or is refused.
func (r *rig) enqueue(t task) {
	r.add(t)
	opts := append([]asynq.Option{asynq.TaskID(r.id(t.key()))}, t.opts...)
	if t.deadline != 0 {
		opts = append(opts, asynq.Deadline(time.Now().Add(t.deadline)))
	}
	info, err := r.client.Enqueue(asynq.NewTaskWithHeaders(t.name, t.payload, t.headers), opts...)
	if err != nil {
		r.note("enqueue "+t.key(), err)
		return
	}
	r.note("enqueue "+t.key(), info.State)
}

// do runs commands in Redis in one transaction, so that no server acts between two of them. All must succeed.
func (r *rig) do(commands ...[]any) {
	r.t.Helper()
	pipe := r.redis.TxPipeline()
	for _, args := range commands {
		pipe.Do(r.t.Context(), args...)
	}
	if _, err := pipe.Exec(r.t.Context()); err != nil {
		r.t.Fatalf("%v: %v", commands, err)
	}
}

// put makes a pending task as clients do, of any message.
func (r *rig) put(t task, encoded []byte) {
	r.t.Helper()
	r.add(t)
	queue, id := t.queue(), r.id(t.key())
	r.do(
		[]any{"SADD", "asynq:queues", queue},
		[]any{"HSET", taskredis.TaskKey(queue, id), "msg", encoded, "state", "pending", "pending_since", time.Now().UnixNano()},
		[]any{"LPUSH", taskredis.PendingKey(queue), id},
	)
}

// message returns a message as of a client that has set nothing.
func (r *rig) message(name string) *taskredis.Message {
	return &taskredis.Message{Type: name, ID: r.id(name), Queue: "default", Retry: 25}
}

// orphan makes a pending task one that a server of asynq had when it died. Its lease ends then.
func (r *rig) orphan(name string, ends time.Duration) {
	r.t.Helper()
	queue, id := r.task(name).queue(), r.id(name)
	r.do(
		[]any{"LREM", taskredis.PendingKey(queue), 1, id},
		[]any{"LPUSH", taskredis.ActiveKey(queue), id},
		[]any{"HSET", taskredis.TaskKey(queue, id), "state", "active"},
		[]any{"HDEL", taskredis.TaskKey(queue, id), "pending_since"},
		[]any{"ZADD", taskredis.LeaseKey(queue), time.Now().Add(ends).Unix(), id},
	)
}

// move changes the score of a task (or of another member) that is in a set.
func (r *rig) move(key, member string, to time.Duration) {
	r.t.Helper()
	if n, err := r.redis.ZAddArgs(r.t.Context(), key, redis.ZAddArgs{
		XX: true, Ch: true, Members: []redis.Z{{Member: member, Score: float64(time.Now().Add(to).Unix())}},
	}).Result(); err != nil || n != 1 {
		r.t.Fatalf("%s: want to move %s, have %d, %v", key, member, n, err)
	}
}

// finish runs a server until each task has had its attempts.
func (r *rig) finish() {
	r.t.Helper()
	s := r.start()
	r.attempted()
	s.shutdown()
}

// end shuts down what runs. Nothing is held any more.
func (r *rig) end() {
	for _, s := range r.servers {
		s.down() // it waits for held handlers
	}
	r.mu.Lock()
	r.ended = true
	for name := range r.gates {
		r.openLocked(name)
	}
	r.mu.Unlock()
	for _, s := range r.servers {
		s.shutdown()
	}
}

// until waits until a condition holds.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	if err := expect.Until(ctx, func() error {
		if !ok() {
			return errNotYet
		}
		return nil
	}); err != nil {
		lines := slices.Concat(r.notes, r.record.lines(true), r.look("now", true))
		r.t.Fatalf("%s: want %s: %v, have\n%s", r.on, what, err, r.plain(text(lines)))
	}
}

// attempted waits until each task has had its attempts.
func (r *rig) attempted() {
	r.t.Helper()
	for _, t := range r.all() {
		want := len(t.does)
		if t.does == nil {
			want = 1
		}
		r.left(t.name, want)
	}
}

// begun waits until a task has had so many attempts; they may be running.
func (r *rig) begun(name string, n int) {
	r.t.Helper()
	r.until(fmt.Sprintf("attempt %d of %s", n, name), func() bool {
		begun, _ := r.record.begun(name)
		return begun >= n
	})
}

// left waits until the handler of a task has returned so often.
func (r *rig) left(name string, n int) {
	r.t.Helper()
	r.until(fmt.Sprintf("the end of attempt %d of %s", n, name), func() bool {
		_, left := r.record.begun(name)
		return left >= n
	})
}

// state waits until a task has a state; "" is that there is no such task.
func (r *rig) state(name, want string) {
	r.t.Helper()
	r.until(fmt.Sprintf("%s to be %q", name, want), func() bool { return r.stateOf(r.t.Context(), name) == want })
}

func (r *rig) stateOf(ctx context.Context, name string) string {
	state, err := r.redis.HGet(ctx, taskredis.TaskKey(r.task(name).queue(), r.id(name)), "state").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err.Error()
	}
	return state
}

// cancel has an operator cancel a task that runs, and waits until its handler's context has ended.
func (r *rig) cancel(name string) {
	r.t.Helper()
	r.begun(name, 1)
	r.record.mu.Lock()
	a := r.record.attempts[slices.IndexFunc(r.record.attempts, func(a *attempt) bool { return a.task.Type() == name })]
	r.record.mu.Unlock()
	r.note("cancel "+name, r.inspect.CancelProcessing(r.id(name)))
	r.until("the context of "+name+" to end", func() bool { return a.end() != nil })
}

// all returns the tasks that were enqueued, or refused.
func (r *rig) all() []task {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tasks)
}

// gate returns what a held handler waits for.
func (r *rig) gate(name string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		r.openLocked(name)
	}
	return r.gateLocked(name)
}

// open lets the held handlers of a task go on, now and later.
func (r *rig) open(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.openLocked(name)
}

func (r *rig) gateLocked(name string) chan struct{} {
	if r.gates[name] == nil {
		r.gates[name] = make(chan struct{})
	}
	return r.gates[name]
}

func (r *rig) openLocked(name string) {
	gate := r.gateLocked(name)
	select {
	case <-gate:
	default:
		close(gate)
	}
}
