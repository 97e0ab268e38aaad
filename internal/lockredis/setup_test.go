package lockredis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// onBoth runs a test on a Redis server and on the Redis in memory.
func onBoth(t *testing.T, test func(*world)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(newWorld(t, redistest.Start(t).Client(t)))
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		onMemory(t, test)
	})
}

// onMemory is for tests whose machine must not stand still for the time of an offer: the clock of the Redis in memory stands
// still between calls.
func onMemory(t *testing.T, test func(*world)) {
	t.Helper()
	memory := miniredis.RunT(t)
	// The answer to a step that is sent again has only what holds now. A world wants that of the first one.
	rdb := redis.NewClient(&redis.Options{Addr: memory.Addr(), ReadTimeout: redistest.Patience})
	t.Cleanup(func() { _ = rdb.Close() })
	w := newWorld(t, rdb)
	w.memory, w.still = memory, time.Now()
	test(w)
}

const (
	key     = "lock:a" // of the lock that all want
	handoff = time.Second
	offer   = 50 * time.Millisecond // for so long a freed lock is offered to an older line
)

// A world is a Redis with goroutines and tasks that want one lock.
type world struct {
	*testing.T

	rdb    *redis.Client
	memory *miniredis.Miniredis // nil on a server
	still  time.Time            // the clock of the Redis in memory
	store  store.Store
	heard  *redis.PubSub
	steps  map[string]*server
	rule   *store.Rule // of the lock
	held   map[string]store.Result
	taken  map[string]taskredis.Taken
	began  map[string]time.Time
}

func newWorld(t *testing.T, rdb *redis.Client) *world {
	t.Helper()
	w := &world{T: t, rdb: rdb, store: lockredis.New(rdb), steps: map[string]*server{}, held: map[string]store.Result{}, taken: map[string]taskredis.Taken{}, began: map[string]time.Time{}}
	w.heard = rdb.Subscribe(context.Background(), store.GoroutinePrefix+"here")
	t.Cleanup(func() { _ = w.heard.Close() })
	expect.OK(w, expect.Err(w.heard.Receive(t.Context())))
	return w
}

func (w *world) must(err error) {
	w.Helper()
	expect.OK(w, err)
}

// tick makes the next call a later one. In the Redis in memory time passes only so, and as passes says: so nothing comes late
// on a machine that stands still. A server's clock goes on.
func (w *world) tick() {
	if w.memory != nil {
		w.passes(time.Millisecond)
	}
}

// passes waits.
func (w *world) passes(d time.Duration) {
	if w.memory == nil {
		_ = sleep.For(w.Context(), d)
		return
	}
	w.still = w.still.Add(d)
	w.memory.FastForward(d) // its keys expire when it is told that time passes
	w.memory.SetTime(w.still)
}

// now is the time by the clock that the offers go by.
func (w *world) now() time.Time {
	if w.memory != nil {
		return w.still
	}
	return time.Now()
}

// waiter returns the name of a goroutine, to whom the world listens.
func waiter(name string) string { return store.GoroutinePrefix + "here:" + name }
func token(name string) string  { return "siding:" + name + ":holder of " + name }

func hand(nonce string) store.Handoff {
	return store.Handoff{Nonce: nonce, Timeout: handoff, QueueTTL: time.Hour}
}

// ask asks for the lock for a goroutine that waits for it.
func (w *world) ask(name string) store.Result {
	w.Helper()
	w.tick()
	if _, ok := w.began[name]; !ok {
		w.began[name] = w.now()
	}
	r := expect.Value(w.store.Acquire(w.Context(), store.Request{
		Key: key, Rule: w.rule, Token: token(name), TTL: 15 * time.Second, FenceTTL: time.Hour,
		Waiter: waiter(name), Waited: w.now().Sub(w.began[name]), Handoff: hand(uuid.NewString()),
	}))(w)
	if r.Taken {
		w.held[name] = r
	}
	return r
}

// takes has a goroutine take the lock.
func (w *world) takes(name string) store.Result {
	w.Helper()
	r := w.ask(name)
	expect.Need(w, r.Taken, "%s: want the lock, have %+v", name, r)
	return r
}

// waits has a goroutine ask for a busy lock.
func (w *world) waits(name string) store.Result {
	w.Helper()
	r := w.ask(name)
	expect.Need(w, !r.Taken && r.Position != 0, "%s: want it to wait, have %+v", name, r)
	return r
}

// leaves has a goroutine release the lock.
func (w *world) leaves(name string) {
	w.Helper()
	w.must(w.release(name))
}

func (w *world) release(name string) error {
	w.tick()
	at := key
	if w.held[name].Permit != "" {
		at = w.held[name].Permit
	}
	return w.store.Release(w.Context(), at, token(name), store.Release{
		Handoff: hand(name), Fence: w.held[name].Fence, Rule: w.rule,
	})
}

// wantReserved checks for which goroutine the lock is reserved; "" for none.
func (w *world) wantReserved(want string) {
	w.Helper()
	value, err := w.rdb.Get(w.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		w.Fatal(err)
	}
	if want == "" && strings.HasPrefix(value, "siding-reserved:") || want != "" && !strings.HasSuffix(value, ":"+waiter(want)) {
		w.Fatalf("want the lock reserved for %q, have %q", want, value)
	}
}

// wantReservedAtMost checks that the lock is reserved for no other goroutine.
func (w *world) wantReservedAtMost(name string) {
	w.Helper()
	value := w.rdb.Get(w.Context(), key).Val() // once: it may expire in between
	expect.Need(w, !strings.HasPrefix(value, "siding-reserved:") || strings.HasSuffix(value, ":"+waiter(name)), "want the lock reserved for %q at most, have %q", name, value)
}

// A server takes tasks of one queue.
type server struct {
	*taskredis.Steps

	w     *world
	queue string
	n     int64
}

func (w *world) server(queue string) *server {
	s := w.steps[queue]
	if s == nil {
		s = &server{&taskredis.Steps{
			Redis: w.rdb, Session: "session-" + queue, Holder: "server", Prefix: "lock:", TTL: 15 * time.Second, FenceTTL: time.Hour, Handoff: handoff, Crashes: 3,
		}, w, queue, 0}
		if w.rule != nil {
			s.SetRules(taskredis.Rules{Limits: "\na\t" + w.rule.String()})
		}
		w.steps[queue] = s
	}
	return s
}

// step makes a step with outcomes, and so many free slots.
func (s *server) step(slots int, outcomes ...taskredis.Outcome) *taskredis.Answer {
	s.w.Helper()
	s.w.tick()
	now := expect.Value(s.w.rdb.Time(context.Background()).Result())(s.w)
	s.n++
	step := &taskredis.Step{Number: s.n, After: s.n - 1, Sent: now.UnixMicro(), Outcomes: outcomes, Draws: []taskredis.Draw{{Queue: s.queue}}}
	for range slots {
		step.Slots = append(step.Slots, "\x01")
	}
	a := expect.Value(s.Step(context.Background(), step))(s.w)
	for _, trouble := range a.Troubles {
		s.w.Error(trouble)
	}
	for _, t := range a.Taken {
		s.w.taken[t.ID] = t
	}
	return a
}

// comes stores a task that wants the lock, and has the server of its queue look at it.
func (w *world) comes(queue, id string) *taskredis.Answer {
	w.Helper()
	ctx := context.Background()
	m := taskredis.Message{Type: "kind", ID: id, Queue: queue, Timeout: 60}
	w.must(w.rdb.HSet(ctx, taskredis.TaskKey(queue, id), "msg", m.Encode(), "state", "pending", "siding_resource", "a").Err())
	w.must(w.rdb.LPush(ctx, taskredis.PendingKey(queue), id).Err())
	return w.server(queue).step(1)
}

// parks has a task come that finds the lock busy.
func (w *world) parks(queue, id string) {
	w.Helper()
	a := w.comes(queue, id)
	expect.Need(w, len(a.Taken) == 0 && len(a.Parked) == 1, "%s: want it parked, have %+v and %+v", id, a.Taken, a.Parked)
}

// runs has the server of a queue take the task whose turn it is; "" for none.
func (w *world) runs(queue, want string) taskredis.Taken {
	w.Helper()
	a := w.server(queue).step(1)
	have := ""
	if len(a.Taken) > 0 {
		have = a.Taken[0].ID
	}
	expect.Need(w, have == want, "want task %q taken, have %q", want, have)
	return w.taken[want]
}

// ends ends a task.
func (w *world) ends(queue, id, trace string) taskredis.Result {
	w.Helper()
	a := w.server(queue).step(0, taskredis.Outcome{Name: w.taken[id].Name, Kind: taskredis.Done, Trace: trace})
	return a.Results[0]
}

// called reports which goroutine was called since the last time; "" for none.
func (w *world) called() string {
	w.Helper()
	m, err := w.heard.ReceiveTimeout(context.Background(), 100*time.Millisecond)
	if err != nil {
		return ""
	}
	message, ok := m.(*redis.Message)
	if !ok {
		return fmt.Sprint(m)
	}
	return strings.TrimPrefix(message.Payload, waiter(""))
}

// due is an entry of a sorted set whose time was over long ago.
func due(member string) redis.Z { return redis.Z{Score: 1, Member: member} }
