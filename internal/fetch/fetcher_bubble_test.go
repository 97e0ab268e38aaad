package fetch_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/fetch"
)

// asynqSleep is how long the servers of these tests sleep between their rounds.
const asynqSleep = 10 * time.Millisecond

// A redisStub stands for Redis, with queues and their notify lists. Fetchers scan the stub, and a
// notifier has it as its client.
type redisStub struct {
	redis.UniversalClient // nil: nothing else is called

	mu       sync.Mutex
	pending  map[string][]string // ids by queue
	notices  map[string]int      // the lengths of the notify lists
	changed  chan struct{}       // closed when a queue was notified, or closed is
	closed   bool
	broken   error // of BLPOP
	hangs    bool  // BLPOP gets no answer
	dequeues int
	listens  int
	passedOn int // elements
}

func newRedisStub() *redisStub {
	return &redisStub{pending: make(map[string][]string), notices: make(map[string]int), changed: make(chan struct{})}
}

// with changes r and wakes who listens.
func (r *redisStub) with(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// enqueue puts a task into a queue and notifies it.
func (r *redisStub) enqueue(queue, id string) {
	r.with(func() {
		r.pending[queue] = append(r.pending[queue], id)
		r.notices[queue]++
	})
}

func (r *redisStub) read(f func() int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return f()
}

func (r *redisStub) asked() int { return r.read(func() int { return r.dequeues }) }

// Process is the notifier's BLPOP.
func (r *redisStub) Process(ctx context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	seconds, err := strconv.ParseFloat(fmt.Sprint(args[len(args)-1]), 64)
	if err != nil {
		return err
	}
	timer := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer timer.Stop()
	r.read(func() int { r.listens++; return 0 })
	for {
		r.mu.Lock()
		err, changed := r.broken, r.changed
		if r.closed {
			err = redis.ErrClosed
		}
		if err == nil && !r.hangs {
			for _, key := range args[1 : len(args)-1] {
				queue := queueOfList(key)
				if r.notices[queue] > 0 {
					r.notices[queue]--
					cmd.(*redis.StringSliceCmd).SetVal([]string{fmt.Sprint(key), "1"}) //nolint:errcheck,forcetypeassert // it is
					r.mu.Unlock()
					return nil
				}
			}
		}
		over := timer.C
		if r.hangs {
			over = nil
		}
		r.mu.Unlock()
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

func queueOfList(key any) string {
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(key), "siding:{"), "}:notify")
}

// Exists counts queues that have tasks.
func (r *redisStub) Exists(ctx context.Context, keys ...string) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx)
	for _, key := range keys {
		cmd.SetVal(cmd.Val() + min(1, r.LLen(ctx, key).Val()))
	}
	return cmd
}

// LLen is asked of pending tasks only.
func (r *redisStub) LLen(ctx context.Context, key string) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx)
	cmd.SetVal(int64(r.read(func() int {
		return len(r.pending[strings.TrimSuffix(strings.TrimPrefix(key, "asynq:{"), "}:pending")])
	})))
	return cmd
}

// Pipelined sends commands one after the other.
func (r *redisStub) Pipelined(_ context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	p := &pipeStub{stub: r}
	err := fn(p)
	for _, cmd := range p.sent {
		err = cmp.Or(err, cmd.Err())
	}
	return p.sent, err
}

// A pipeStub sends the commands of a pipeline at once.
type pipeStub struct {
	redis.Pipeliner

	stub *redisStub
	sent []redis.Cmder
}

func (p *pipeStub) LLen(ctx context.Context, key string) *redis.IntCmd {
	cmd := p.stub.LLen(ctx, key)
	p.sent = append(p.sent, cmd)
	return cmd
}

// EvalSha passes an element on.
func (r *redisStub) EvalSha(ctx context.Context, _ string, keys []string, _ ...any) *redis.Cmd {
	r.with(func() {
		r.notices[queueOfList(keys[0])]++
		r.passedOn++
	})
	return redis.NewCmdResult(int64(1), nil)
}

// Close interrupts who listens.
func (r *redisStub) Close() error {
	r.with(func() { r.closed = true })
	return nil
}

// scan dequeues from the first of the queues that has a task.
func (r *redisStub) scan(queues ...string) (fetch.Task, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dequeues++
	for _, queue := range queues {
		if len(r.pending[queue]) == 0 {
			r.notices[queue] = 0
			continue
		}
		id := r.pending[queue][0]
		r.pending[queue] = r.pending[queue][1:]
		return fetch.Task{Message: id, Left: 1}, nil
	}
	return fetch.Task{}, redis.Nil
}

// A sleeper is an asynq server that takes one task after the other.
type sleeper struct {
	fetcher *fetch.Fetcher
	scan    fetch.Scan
	queues  []string
	paused  chan time.Duration // stands still that long between two rounds
	done    chan struct{}
	over    chan struct{}
	took    chan string // ids, as they are taken
	once    sync.Once
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
			task, err := s.fetcher.Dequeue(ctx, s.queues[(n+i)%len(s.queues)], s.scan)
			if err == nil {
				s.took <- task.Message
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

// A house is a process with a notifier in a bubble.
type house struct {
	*redisStub

	notifier *fetch.Notifier
	log      *bytes.Buffer // of the bubble: no two write at once
}

func newHouse(t *testing.T, r *redisStub) *house {
	t.Helper()
	h := &house{redisStub: r, log: &bytes.Buffer{}}
	h.notifier = fetch.NewNotifier(slog.New(slog.NewTextHandler(h.log, nil)), func([]fetch.Task) { t.Error("want nothing requeued") })
	h.notifier.Poll(time.Minute)
	h.notifier.Connect(func() (redis.UniversalClient, bool) { return r, true })
	t.Cleanup(h.notifier.Close)
	return h
}

// server starts one on a fetcher of its own, and returns when it sleeps.
func (h *house) server(t *testing.T, queues ...string) *sleeper {
	t.Helper()
	return h.serverOn(t, h.notifier.Fetcher(), queues...)
}

func (h *house) serverOn(t *testing.T, fetcher *fetch.Fetcher, queues ...string) *sleeper {
	t.Helper()
	s := &sleeper{
		fetcher: fetcher, scan: h.scan, queues: queues,
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
	synctest.Test(t, func(t *testing.T) { run(t, newHouse(t, newRedisStub())) })
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
					t.Errorf("want the notifier to ask once a second, have %d times in 30 s", have)
				}
			})
		})
	}
}

// Whatever queue is notified first, and later, the server gets the task at once, though it asked
// for one of another queue.
func TestNotifiedQueueIsServed(t *testing.T) {
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

// If no queue is notified, a dequeue is held back for a second and then answered as in vain.
func TestHoldEnds(t *testing.T) {
	t.Parallel()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		fetcher := h.notifier.Fetcher()
		for n, want := range []time.Duration{0, time.Second, time.Second} {
			start := time.Now()
			if _, err := fetcher.Dequeue(t.Context(), "a", h.scan); !errors.Is(err, redis.Nil) {
				t.Errorf("want %v, have %v", redis.Nil, err)
			}
			if have := time.Since(start); have != want {
				t.Errorf("dequeue %d: want it held for %v, have %v", n, want, have)
			}
		}
	})
}

// While Redis does not answer the notifier, servers look for themselves.
func TestSilentRedis(t *testing.T) {
	t.Parallel()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		s := h.server(t, "a")
		h.with(func() {
			h.hangs = true
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
func TestNotificationsForbidden(t *testing.T) {
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
		for i := range 3 { // the other keeps the notifier busy
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

// A server that has gone swallows no notification, though its notifier is there.
func TestServerThatHasGone(t *testing.T) {
	t.Parallel()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		gone := h.server(t, "a")
		gone.stop()
		time.Sleep(500 * time.Millisecond)
		h.enqueue("a", "task-0") // its notifier alone listens
		time.Sleep(100 * time.Millisecond)
		if have := h.read(func() int { return h.passedOn }); have != 1 {
			t.Errorf("want the element of the server that has gone passed on once, have %d times", have)
		}
		other := newHouse(t, h.redisStub)
		s := other.server(t, "a")
		wantTaken(t, 2*asynqSleep, "task-0", s)
		for i := range 4 {
			id := fmt.Sprintf("task-%d", i+1)
			h.enqueue("a", id)
			wantTaken(t, 2*asynqSleep, id, s)
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// A notifier that is closed wakes its servers, which then poll.
func TestClosedNotifier(t *testing.T) {
	t.Parallel()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		s := h.server(t, "a", "b")
		time.Sleep(10*time.Second + 500*time.Millisecond)
		h.notifier.Close()
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
		fetcher := h.notifier.Fetcher()
		both := []*sleeper{h.serverOn(t, fetcher, "a"), h.serverOn(t, fetcher, "a")}
		time.Sleep(3 * time.Second)
		for i := range 5 {
			id := fmt.Sprintf("task-%d", i)
			h.enqueue("a", id)
			wantTaken(t, 3*asynqSleep, id, both...)
			time.Sleep(400 * time.Millisecond)
		}
	})
}

// One notification wakes one of several idle servers.
func TestOneNotificationWakesOne(t *testing.T) {
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
