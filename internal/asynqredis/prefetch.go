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

// claimWithin is how long a prefetched task waits for a dequeue. A worker that has become free needs
// some us to ask for one, and 10 ms where its server sleeps.
const claimWithin = 200 * time.Millisecond

// lateFor is for how long no more tasks are prefetched for a server after one that it did not claim. Its
// workers do something else after their tasks, or it ends.
const lateFor = 10 * time.Second

// mostQueues is from how many queues at most one call tries to take a task.
const mostQueues = 16

// A prefetcher takes the next task in the step in which an attempt ends.
type prefetcher struct {
	rdb     redis.Scripter
	putBack func([]*Attempt)

	mu       sync.Mutex
	order    *priorities // of the servers' queues; nil where they differ, or are not known yet
	differ   bool
	fetchers []*Fetcher
	closed   bool
}

// Prefetch has attempts end by [Attempt.Finish], on rdb, where the hook's client for its tasks is
// another one. putBack is given what has been taken, in order, and no server has asked for: it calls
// [Attempt.PutBack] for each, the last first, and is not to wait for that. Call it before the servers begin.
func (h *Hook) Prefetch(rdb redis.Scripter, putBack func([]*Attempt)) {
	h.prefetch.rdb, h.prefetch.putBack = rdb, putBack
}

// Serves says of a server in which order it asks its queues. Where that of several differs nothing is
// prefetched, as it is not known which of them a fetcher is of.
func (h *Hook) Serves(queues map[string]int, strict bool) {
	p, have := &h.prefetch, newPriorities(queues, strict)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.differ = p.differ || p.order != nil && !p.order.equal(have)
	if p.order = have; p.differ {
		p.order = nil
	}
}

// Close has no more tasks prefetched, and puts back those that no server has asked for.
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

// priorities are the queues of a server.
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

// queuesOf returns the queues of the servers, nil where they are not known, and whether tasks are
// prefetched.
func (p *prefetcher) queuesOf() (order *priorities, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.order, !p.closed && p.rdb != nil
}

// gives reports whether a server that asks for tasks of queue may be given what was prefetched: it may
// share the connection with one that serves other queues.
func (f *Fetcher) gives(queue string) bool {
	order, _ := f.prefetch.queuesOf()
	return order == nil || order.weights[queue] > 0
}

// wants returns the queues from which the next task of the fetcher's server is taken, in order, and
// whether it may be a waiter of queue.
func (f *Fetcher) wants(queue string) (queues []string, waiter bool) {
	order, open := f.prefetch.queuesOf()
	if !open || order == nil || f.gate.isShut() || f.prefetched.unclaimed() {
		return nil, false
	}
	_, serves := order.weights[queue]
	if f.dozing.Load() {
		return nil, serves // all queues are empty
	}
	if f.idle.Load() {
		return nil, false // the server sleeps
	}
	queues = order.draw()
	if !f.Together() {
		queues = queues[:1] // others may be on other servers
	}
	return queues, queues[0] == queue
}

// prefetched are tasks that have been taken for a server, in order, until its dequeues claim them.
type prefetched struct {
	mu     sync.Mutex
	tasks  []prefetchedTask
	late   time.Time // when one was not claimed
	closed bool
	timer  *time.Timer
}

type prefetchedTask struct {
	taken

	attempt *Attempt
	since   time.Time
}

// put adds a task; false when it is too late.
func (p *prefetched) put(t prefetchedTask, expire func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	t.since = time.Now()
	p.tasks = append(p.tasks, t)
	if len(p.tasks) == 1 {
		p.arm(expire)
	}
	return true
}

// arm sets the timer for the first task. p.mu is held.
func (p *prefetched) arm(expire func()) {
	wait := time.Until(p.tasks[0].since.Add(claimWithin))
	if p.timer == nil {
		p.timer = time.AfterFunc(wait, expire)
	} else {
		p.timer.Reset(wait)
	}
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

// expire puts back what nobody has claimed in time. It does so under p.mu, so that close waits for it.
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
		p.arm(func() { p.expire(putBack) })
	}
}

// close puts all back, and takes no more.
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

// unclaimed reports whether a task was put back lately because the server did not ask for it.
func (p *prefetched) unclaimed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.late.IsZero() && time.Since(p.late) < lateFor
}

// deliver has the fetcher's server begin with a task: by the dequeue that is held back, or by its next.
func (f *Fetcher) deliver(t taken, a *Attempt) {
	if a == nil {
		return // asynq's recovery will say what is wrong with the task
	}
	if !f.prefetched.put(prefetchedTask{taken: t, attempt: a}, func() { f.prefetched.expire(f.prefetch.putBack) }) {
		f.prefetch.putBack([]*Attempt{a})
		return
	}
	f.bell.deliver(f)
}
