package asynqredis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

// asynqSleep is how long the servers of these tests sleep between their rounds.
const asynqSleep = 10 * time.Millisecond

// A belfry stands for Redis: what the queues hold, and their bells, for fetchers on a wire
// and for a doorbell that has it as its client.
type belfry struct {
	redis.UniversalClient // nil: nothing else is called

	mu       sync.Mutex
	pending  map[string][]string // ids by queue
	bells    map[string]int
	changed  chan struct{} // closed when a bell has rung, or closed is
	closed   bool
	broken   error // of BLPOP
	silent   bool  // BLPOP is not answered
	dequeues int
	listens  int
	putBack  int
}

func newBelfry() *belfry {
	return &belfry{pending: make(map[string][]string), bells: make(map[string]int), changed: make(chan struct{})}
}

// with changes b and wakes who listens.
func (b *belfry) with(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	close(b.changed)
	b.changed = make(chan struct{})
}

// enqueue puts a task into a queue and rings its bell.
func (b *belfry) enqueue(queue, id string) {
	b.with(func() {
		b.pending[queue] = append(b.pending[queue], id)
		b.bells[queue]++
	})
}

func (b *belfry) read(f func() int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return f()
}

func (b *belfry) asked() int { return b.read(func() int { return b.dequeues }) }

// Process is the doorbell's BLPOP.
func (b *belfry) Process(ctx context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	seconds, err := strconv.ParseFloat(fmt.Sprint(args[len(args)-1]), 64)
	if err != nil {
		return err
	}
	timer := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer timer.Stop()
	b.read(func() int { b.listens++; return 0 })
	for {
		b.mu.Lock()
		err, changed := b.broken, b.changed
		if b.closed {
			err = redis.ErrClosed
		}
		if err == nil && !b.silent {
			for _, key := range args[1 : len(args)-1] {
				queue := queueOfBell(key)
				if b.bells[queue] > 0 {
					b.bells[queue]--
					cmd.(*redis.StringSliceCmd).SetVal([]string{fmt.Sprint(key), "1"}) //nolint:errcheck,forcetypeassert // it is
					b.mu.Unlock()
					return nil
				}
			}
		}
		over := timer.C
		if b.silent {
			over = nil
		}
		b.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-over:
			return redis.Nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func queueOfBell(key any) string {
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(key), "siding:{"), "}:bell")
}

// RPush puts a ring back.
func (b *belfry) RPush(ctx context.Context, key string, _ ...any) *redis.IntCmd {
	b.with(func() {
		b.bells[queueOfBell(key)]++
		b.putBack++
	})
	return redis.NewIntCmd(ctx)
}

// Exists counts queues that have tasks.
func (b *belfry) Exists(ctx context.Context, keys ...string) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx)
	for _, key := range keys {
		cmd.SetVal(cmd.Val() + min(1, b.LLen(ctx, key).Val()))
	}
	return cmd
}

// LLen is asked of pending tasks only.
func (b *belfry) LLen(ctx context.Context, key string) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx)
	cmd.SetVal(int64(b.read(func() int {
		return len(b.pending[strings.TrimSuffix(strings.TrimPrefix(key, "asynq:{"), "}:pending")])
	})))
	return cmd
}

// Close interrupts who listens.
func (b *belfry) Close() error {
	b.with(func() { b.closed = true })
	return nil
}

// take is the wire under the fetchers.
func (b *belfry) take(_ context.Context, cmd redis.Cmder) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dequeues++
	key := fmt.Sprint(cmd.Args()[3])
	queue := strings.TrimSuffix(strings.TrimPrefix(key, "asynq:{"), "}:pending")
	if len(b.pending[queue]) == 0 {
		b.bells[queue] = 0
		cmd.SetErr(redis.Nil)
		return redis.Nil
	}
	id := b.pending[queue][0]
	b.pending[queue] = b.pending[queue][1:]
	cmd.(*redis.Cmd).SetVal([]any{fmt.Sprintf("\x1a%c%s", len(id), id), int64(1), []any{}}) //nolint:errcheck,forcetypeassert // it is
	return nil
}

// A sleeper is an asynq server that takes one task after the other.
type sleeper struct {
	process redis.ProcessHook
	call    []any
	queues  []string
	paused  chan time.Duration // stands still that long between two rounds
	done    chan struct{}
	over    chan struct{}
	took    chan string // ids, as they are taken
	once    sync.Once
}

// dequeue asks for a task of one queue.
func (s *sleeper) dequeue(ctx context.Context, queue string) (string, error) {
	call := slices.Clone(s.call)
	old := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(call[3]), "asynq:{"), "}:pending")
	for i, arg := range call {
		if text, ok := arg.(string); ok {
			call[i] = strings.ReplaceAll(text, "{"+old+"}", "{"+queue+"}")
		}
	}
	cmd := redis.NewCmd(ctx, call...)
	if err := s.process(ctx, cmd); err != nil {
		return "", err
	}
	return cmd.Text()
}

// run does what asynq does with its queues; each round begins with another one.
func (s *sleeper) run(ctx context.Context) {
	defer close(s.over)
rounds:
	for n := 0; ; n++ {
		select {
		case <-s.done:
			return
		case d := <-s.paused:
			time.Sleep(d)
		default:
		}
		for i := range s.queues {
			msg, err := s.dequeue(ctx, s.queues[(n+i)%len(s.queues)])
			if err == nil {
				s.took <- msg[2:]
				continue rounds
			}
			if !errors.Is(err, redis.Nil) {
				continue rounds
			}
		}
		time.Sleep(asynqSleep)
	}
}

// stop may be called again.
func (s *sleeper) stop() {
	s.once.Do(func() { close(s.done) })
	<-s.over
}

// A house is a process with a doorbell in a bubble.
type house struct {
	*belfry

	hook *asynqredis.Hook
	bell *asynqredis.Doorbell
	log  *bytes.Buffer // of the bubble: no two write at once
	call []any
}

func newHouse(t *testing.T, b *belfry, call []any) *house {
	t.Helper()
	h := &house{belfry: b, hook: quiet(), log: &bytes.Buffer{}, call: call}
	h.bell = asynqredis.NewDoorbell(slog.New(slog.NewTextHandler(h.log, nil)))
	h.bell.Poll(time.Minute)
	h.bell.Connect(func() (redis.UniversalClient, bool) { return b, true })
	t.Cleanup(h.bell.Close)
	return h
}

// server starts one on a fetcher of its own, and returns when it sleeps.
func (h *house) server(t *testing.T, queues ...string) *sleeper {
	t.Helper()
	return h.serverOn(t, h.hook.Fetcher(h.bell).ProcessHook(h.take), queues...)
}

func (h *house) serverOn(t *testing.T, process redis.ProcessHook, queues ...string) *sleeper {
	t.Helper()
	s := &sleeper{
		process: process, call: h.call, queues: queues,
		paused: make(chan time.Duration, 1), done: make(chan struct{}), over: make(chan struct{}), took: make(chan string, 100),
	}
	go s.run(context.WithoutCancel(t.Context())) // as asynq does
	t.Cleanup(s.stop)
	time.Sleep(5 * asynqSleep)
	return s
}

// inHouse runs a test in a bubble with a house.
func inHouse(t *testing.T, run func(*testing.T, *house)) {
	t.Helper()
	call := callsOfAsynq(t)["dequeue"]
	synctest.Test(t, func(t *testing.T) {
		run(t, newHouse(t, newBelfry(), call))
	})
}

// wantTaken wants a server to take a task within d.
func wantTaken(t *testing.T, d time.Duration, id string, from ...*sleeper) {
	t.Helper()
	start := time.Now()
	for time.Since(start) <= d {
		for _, s := range from {
			select {
			case have := <-s.took:
				if have != id {
					t.Errorf("want task %s, have %s", id, have)
				}
				return
			default:
			}
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("want task %s within %v", id, d)
}

// An idle server asks each queue until it has found all of them empty in one round, and
// no more.
func TestIdleServerIsHeldBack(t *testing.T) {
	t.Parallel()
	for _, queues := range [][]string{{"a"}, {"a", "b", "c"}} {
		t.Run(strconv.Itoa(len(queues)), func(t *testing.T) {
			t.Parallel()
			inHouse(t, func(t *testing.T, h *house) {
				t.Helper()
				h.server(t, queues...)
				time.Sleep(30 * time.Second)
				// The first round tells how many queues there are.
				if have := h.asked(); have != 2*len(queues) {
					t.Errorf("dequeues: want two rounds, %d, have %d", 2*len(queues), have)
				}
				if have := h.read(func() int { return h.listens }); have > 35 {
					t.Errorf("want the doorbell to ask once a second, have %d times in 30 s", have)
				}
			})
		})
	}
}

// Whatever queue rings first, and later: the server gets its task at once, though it
// asked for one of another queue.
func TestRungQueueIsServed(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"a", "b", "c"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			inHouse(t, func(t *testing.T, h *house) {
				t.Helper()
				s := h.server(t, "a", "b", "c")
				for i, queue := range []string{first, "c", "a", "b", "b", first} {
					id := fmt.Sprintf("task-%d", i)
					h.enqueue(queue, id)
					wantTaken(t, 2*asynqSleep, id, s)
					time.Sleep(time.Duration(i) * 700 * time.Millisecond)
				}
			})
		})
	}
}

// Where no bell rings, a dequeue is held back for a second and then answered as in vain.
func TestHoldEnds(t *testing.T) {
	t.Parallel()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		s := &sleeper{process: h.hook.Fetcher(h.bell).ProcessHook(h.take), call: h.call}
		for n, want := range []time.Duration{0, time.Second, time.Second} {
			start := time.Now()
			if _, err := s.dequeue(t.Context(), "a"); !errors.Is(err, redis.Nil) {
				t.Errorf("want %v, have %v", redis.Nil, err)
			}
			if have := time.Since(start); have != want {
				t.Errorf("dequeue %d: want it held for %v, have %v", n, want, have)
			}
		}
	})
}

// While Redis does not answer the doorbell, servers look for themselves.
func TestDeafDoorbell(t *testing.T) {
	t.Parallel()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		s := h.server(t, "a")
		h.with(func() {
			h.silent = true
			h.pending["a"] = []string{"task-1"}
		})
		wantTaken(t, 6*time.Second, "task-1", s)
		before := h.asked()
		time.Sleep(time.Minute)
		if have := h.asked() - before; have > 150 {
			t.Errorf("want it to look about once a second, have %d dequeues in a minute", have)
		}
	})
}

// A BLPOP that fails, because an ACL forbids it, is reported once. Idle servers poll.
func TestBellThatCannotBeHeard(t *testing.T) {
	t.Parallel()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		h.broken = errors.New("NOPERM this user has no permissions")
		s := h.server(t, "a")
		for i := range 60 {
			id := fmt.Sprintf("task-%d", i)
			h.with(func() { h.pending["a"] = []string{id} })
			wantTaken(t, 2*time.Second, id, s)
			s.paused <- time.Duration(i) * 10 * time.Millisecond // no worker is free
			time.Sleep(time.Duration(i) * 50 * time.Millisecond)
		}
		synctest.Wait()
		if have := strings.Count(h.log.String(), "\n"); have != 1 {
			t.Errorf("want one warning, have %d:\n%s", have, h.log)
		}
		h.with(func() { h.broken = nil })
		time.Sleep(5 * time.Second)
		h.enqueue("a", "heard")
		wantTaken(t, 2*asynqSleep, "heard", s)
		h.with(func() { h.broken = errors.New("NOPERM again") })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if have := strings.Count(h.log.String(), "\n"); have != 2 {
			t.Errorf("want one more, have %d:\n%s", have, h.log)
		}
	})
}

// A server that stood still between two rounds was taken for gone; it is woken again
// once it is back.
func TestServerThatStoodStill(t *testing.T) {
	t.Parallel()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		still, other := h.server(t, "a"), h.server(t, "a")
		still.paused <- 5 * time.Second
		time.Sleep(2 * time.Second)
		for i := range 3 { // the other keeps the doorbell busy
			id := fmt.Sprintf("task-%d", i)
			h.enqueue("a", id)
			wantTaken(t, 2*asynqSleep, id, other)
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		other.stop()
		time.Sleep(time.Second)
		h.enqueue("a", "task-3")
		wantTaken(t, 2*asynqSleep, "task-3", still)
	})
}

// A server that has gone swallows no ring, though its doorbell is there: it is for others.
func TestServerThatHasGone(t *testing.T) {
	t.Parallel()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		gone := h.server(t, "a")
		gone.stop()
		time.Sleep(500 * time.Millisecond)
		other := newHouse(t, h.belfry, h.call)
		s := other.server(t, "a")
		for i := range 5 {
			id := fmt.Sprintf("task-%d", i)
			h.enqueue("a", id)
			wantTaken(t, 2*asynqSleep, id, s)
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// The end of a doorbell wakes who is held back, who then polls.
func TestClosedDoorbell(t *testing.T) {
	t.Parallel()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		s := h.server(t, "a", "b")
		time.Sleep(10*time.Second + 500*time.Millisecond)
		h.bell.Close()
		h.with(func() { h.pending["b"] = []string{"task-1"} })
		wantTaken(t, 3*asynqSleep, "task-1", s)
		start := time.Now()
		s.stop()
		if took := time.Since(start); took > 3*asynqSleep {
			t.Errorf("want the server's end at once, have %v", took)
		}
	})
}

// Two servers on one connection do not wait for one another.
func TestFetcherOfTwoServers(t *testing.T) {
	t.Parallel()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		process := h.hook.Fetcher(h.bell).ProcessHook(h.take)
		both := []*sleeper{h.serverOn(t, process, "a"), h.serverOn(t, process, "a")}
		time.Sleep(3 * time.Second)
		for i := range 5 {
			id := fmt.Sprintf("task-%d", i)
			h.enqueue("a", id)
			wantTaken(t, 3*asynqSleep, id, both...)
			time.Sleep(400 * time.Millisecond)
		}
	})
}

// One ring wakes one of several idle servers.
func TestOneRingWakesOne(t *testing.T) {
	t.Parallel()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		var all []*sleeper
		for range 5 {
			all = append(all, h.server(t, "a"))
		}
		before := h.asked()
		h.enqueue("a", "task-1")
		wantTaken(t, 2*asynqSleep, "task-1", all...)
		time.Sleep(5 * time.Second)
		if have := h.asked() - before; have > 2 { // it takes, and finds that there is no more
			t.Errorf("dequeues: want 2, have %d", have)
		}
	})
}
