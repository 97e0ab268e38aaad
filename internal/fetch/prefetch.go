package fetch

import (
	"slices"
	"time"
)

// claimWithin is how long a prefetched task waits for a dequeue. The server of a worker that has
// become free asks within some µs, or within 10 ms if the server sleeps.
const claimWithin = 200 * time.Millisecond

// noneFor is how long no tasks are prefetched for a server after it has left one unclaimed. Such a server
// is about to end, or middleware keeps its workers after their tasks.
const noneFor = 10 * time.Second

// A Wanted says where the next task of a server may come from.
type Wanted struct {
	Waiter    bool     // from the wait queue of the lock that is released
	Queues    []string // from these, in the order in which they are asked
	Elsewhere string   // from this queue, which may be on another server of a Cluster; "" for none
}

// Wants returns where the server wants its next task from when a task of queue is done. With
// together, one call can ask several queues.
func (f *Fetcher) Wants(queue string, together bool) (w Wanted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	order := f.order()
	if f.closed() || order == nil || !f.unclaimed.IsZero() && time.Since(f.unclaimed) < noneFor {
		return w
	}
	if f.expects() { // it found all queues empty
		w.Waiter = order.weights[queue] > 0
		return w
	}
	if !f.emptyAt.IsZero() {
		return w // it sleeps, or has stopped
	}
	switch drawn := order.draw(mostQueues, ""); {
	case together:
		w.Queues, w.Waiter = drawn, drawn[0] == queue
	case drawn[0] == queue:
		w.Queues = drawn[:1]
	default:
		w.Elsewhere = drawn[0]
	}
	return w
}

// Deliver hands the server a prefetched task. The dequeue that is held back claims it, or else the next
// one. If none does in time, the task is requeued.
func (f *Fetcher) Deliver(t Task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed() {
		f.requeue([]Task{t})
		return
	}
	t.until = time.Now().Add(claimWithin)
	f.prefetched = append(f.prefetched, t)
	if len(f.prefetched) == 1 {
		f.expiry.Reset(claimWithin)
	}
	f.to(delivered)
}

// claimable reports whether there is a prefetched task for a server that asks for tasks of queue. A
// server with other queues may share the connection.
func (f *Fetcher) claimable(queue string) bool {
	order := f.order()
	return len(f.prefetched) > 0 && order != nil && order.weights[queue] > 0
}

// pop takes the first prefetched task for a dequeue.
func (f *Fetcher) pop(queue string) (t Task, ok bool) {
	if !f.claimable(queue) {
		return t, false
	}
	t = f.prefetched[0]
	f.prefetched = slices.Delete(f.prefetched, 0, 1)
	if len(f.prefetched) == 0 {
		f.expiry.Stop()
	}
	return t, true
}

// claim takes a prefetched task for the server that the fetcher attends to.
func (f *Fetcher) claim(queue string) (Task, bool) {
	t, ok := f.pop(queue)
	if ok {
		f.claims++
		f.took(t.Left == 0 && f.claims%claimsInRow != 0, claimedLast)
	}
	return t, ok
}

// expire requeues the tasks that no dequeue has claimed in time.
func (f *Fetcher) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for n < len(f.prefetched) && !time.Now().Before(f.prefetched[n].until) {
		n++
	}
	if n > 0 {
		f.drop(n)
		f.unclaimed = time.Now()
	}
	if len(f.prefetched) > 0 {
		f.expiry.Reset(time.Until(f.prefetched[0].until))
	}
}

// drop requeues the first n prefetched tasks.
func (f *Fetcher) drop(n int) {
	if n > 0 {
		f.requeue(slices.Clone(f.prefetched[:n]))
		f.prefetched = slices.Delete(f.prefetched, 0, n)
	}
}
