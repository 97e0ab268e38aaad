package asynqredis

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// claimWithin is how long a prefetched task waits for a dequeue. The server of a worker that has become
// free asks within some us, or within 10 ms if the server sleeps.
const claimWithin = 200 * time.Millisecond

// lateFor is how long no tasks are prefetched for a server after it has left one unclaimed. Such a server
// is about to end, or middleware keeps its workers after their tasks.
const lateFor = 10 * time.Second

// mostQueues is how many queues one call asks for a task at most.
const mostQueues = 16

// A prefetcher is what the servers of a hook have in common when they prefetch tasks.
type prefetcher struct {
	rdb     redis.Scripter
	putBack func([]*Attempt)

	mu       sync.Mutex
	order    *priorities // of the servers' queues; nil if they differ, or are not known yet
	differ   bool        // the servers have different queues
	fetchers []*Fetcher
	closed   bool
}

// Prefetch lets attempts end by [Attempt.Finish]. The calls go to rdb, which is another client than the
// hook's. putBack is given the attempts whose tasks no server has asked for, the first one taken
// first. It has [Attempt.PutBack] called for each, the last one first, and returns without waiting for
// that. Call Prefetch before the servers begin.
func (h *Hook) Prefetch(rdb redis.Scripter, putBack func([]*Attempt)) {
	h.prefetch.rdb, h.prefetch.putBack = rdb, putBack
}

// Serves says which queues a server has, and in which order it asks them. If several servers differ in
// that, nothing is prefetched: the hook does not know which of them a fetcher belongs to.
func (h *Hook) Serves(queues map[string]int, strict bool) {
	p, have := &h.prefetch, newPriorities(queues, strict)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.differ = p.differ || p.order != nil && !p.order.equal(have)
	if p.order = have; p.differ {
		p.order = nil
	}
}

// Close ends the prefetching, and puts back the tasks that no server has asked for.
func (h *Hook) Close() {
	p := &h.prefetch
	p.mu.Lock()
	p.closed = true
	fetchers := p.fetchers
	p.mu.Unlock()
	for _, f := range fetchers {
		f.prefetched.close(p.putBack)
	}
}

// priorities say in which order a server asks its queues.
type priorities struct {
	weights map[string]int
	strict  bool
	ordered []string // by weight, the highest first
}

func newPriorities(queues map[string]int, strict bool) *priorities {
	p := &priorities{weights: make(map[string]int), strict: strict}
	for name, weight := range queues {
		if weight > 0 {
			p.weights[name] = weight
		}
	}
	if len(p.weights) == 0 {
		p.weights = map[string]int{"default": 1} // as asynq has it
	}
	p.ordered = slices.SortedFunc(maps.Keys(p.weights), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.weights[b], p.weights[a]), cmp.Compare(a, b))
	})
	return p
}

func (p *priorities) equal(other *priorities) bool {
	return p.strict == other.strict && maps.Equal(p.weights, other.weights)
}

// draw returns the queues in the order in which asynq would ask them, [mostQueues] of them at most.
func (p *priorities) draw() []string {
	if p.strict || len(p.ordered) == 1 {
		return p.ordered[:min(len(p.ordered), mostQueues)]
	}
	left, total := slices.Clone(p.ordered), 0
	for _, weight := range p.weights {
		total += weight
	}
	var drawn []string
	for len(left) > 0 && len(drawn) < mostQueues {
		at, i := rand.N(total), 0
		for at >= p.weights[left[i]] {
			at -= p.weights[left[i]]
			i++
		}
		drawn, total = append(drawn, left[i]), total-p.weights[left[i]]
		left = slices.Delete(left, i, i+1)
	}
	return drawn
}

// queuesOf returns the queues of the servers, nil if they are not known. open is false if no tasks are
// prefetched.
func (p *prefetcher) queuesOf() (order *priorities, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.order, !p.closed && p.rdb != nil
}

// gives reports whether a server that asks for tasks of queue may claim a prefetched task. A server with
// other queues may share the connection.
func (f *Fetcher) gives(queue string) bool {
	order, _ := f.prefetch.queuesOf()
	return order != nil && order.weights[queue] > 0
}

// A wanted says where the next task of a server may come from.
type wanted struct {
	waiter    bool     // from the line of the lock that is released
	queues    []string // from these, in the order in which they are asked
	elsewhere string   // from this queue, which may be on another server of a Cluster; "" for none
}

// wants returns where the fetcher's server wants its next task from, when a task of queue is done.
func (f *Fetcher) wants(queue string) (w wanted) {
	order, open := f.prefetch.queuesOf()
	if !open || order == nil || f.gate.isShut() || f.prefetched.unclaimed() {
		return w
	}
	if f.dozing.Load() {
		_, w.waiter = order.weights[queue]
		return w // the server waits for a task, and found all queues empty
	}
	if f.idle.Load() {
		return w // the server sleeps
	}
	switch drawn := order.draw(); {
	case f.Together():
		w.queues, w.waiter = drawn, drawn[0] == queue
	case drawn[0] == queue:
		w.queues = drawn[:1]
	default:
		w.elsewhere = drawn[0]
	}
	return w
}

// prefetched are the tasks that have been taken for a server, in that order, until its dequeues claim
// them.
type prefetched struct {
	mu     sync.Mutex
	tasks  []prefetchedTask
	late   time.Time // when a task was last put back unclaimed
	closed bool
	timer  *time.Timer // runs out when the first task is to be put back
}

type prefetchedTask struct {
	taken

	attempt *Attempt
	since   time.Time
}

// put adds a task. It returns false after close.
func (p *prefetched) put(t prefetchedTask, expire func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	t.since = time.Now()
	p.tasks = append(p.tasks, t)
	switch {
	case p.timer == nil:
		p.timer = time.AfterFunc(claimWithin, expire)
	case len(p.tasks) == 1:
		p.timer.Reset(claimWithin)
	}
	return true
}

// claim takes the first task for a dequeue.
func (p *prefetched) claim() (t taken, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tasks) == 0 {
		return t, false
	}
	t = p.tasks[0].taken
	p.tasks = slices.Delete(p.tasks, 0, 1)
	if len(p.tasks) == 0 {
		p.timer.Stop()
	}
	return t, true
}

// expire puts back the tasks that no dequeue has claimed in time. It holds p.mu meanwhile, so that close
// waits for it.
func (p *prefetched) expire(putBack func([]*Attempt)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.tasks) && time.Since(p.tasks[n].since) >= claimWithin {
		n++
	}
	p.putBack(n, putBack)
	if n > 0 {
		p.late = time.Now()
	}
	if len(p.tasks) > 0 {
		p.timer.Reset(time.Until(p.tasks[0].since.Add(claimWithin)))
	}
}

// close puts all tasks back, and has put refuse more.
func (p *prefetched) close(putBack func([]*Attempt)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.putBack(len(p.tasks), putBack)
}

// putBack puts the first n tasks back. p.mu is held.
func (p *prefetched) putBack(n int, putBack func([]*Attempt)) {
	if n == 0 {
		return
	}
	back := make([]*Attempt, n)
	for i, t := range p.tasks[:n] {
		back[i] = t.attempt
	}
	p.tasks = slices.Delete(p.tasks, 0, n)
	putBack(back)
}

func (p *prefetched) any() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.tasks) > 0
}

// unclaimed reports whether the server has lately left a task unclaimed.
func (p *prefetched) unclaimed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.late.IsZero() && time.Since(p.late) < lateFor
}

// deliver hands the fetcher's server a task, with its attempt. The dequeue that is held back claims it, or
// else the next one.
func (f *Fetcher) deliver(t taken, a *Attempt) {
	if a == nil {
		return // the task cannot be read: asynq's own recovery deals with it
	}
	if !f.prefetched.put(prefetchedTask{taken: t, attempt: a}, func() { f.prefetched.expire(f.prefetch.putBack) }) {
		f.prefetch.putBack([]*Attempt{a})
		return
	}
	f.bell.deliver(f)
}
