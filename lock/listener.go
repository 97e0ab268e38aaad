package lock

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
)

// A listener listens for all in a process who wait in wait queues.
type listener struct {
	id    string
	since time.Time     // when it was made
	first chan struct{} // closed when it first listens
	heard sync.Once     // closes first

	gone func(waiter string) // is told of a waiter that is woken and has gone

	mu      sync.Mutex
	waiters map[string]chan struct{} // by name; receives when the waiter is woken
	count   int
}

// listening returns the listener of l, and makes it the first time.
func (l *Locker) listening(from store.Listener) *listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		return l.listener
	}
	l.listener = &listener{
		id:      uuid.NewString(),
		since:   time.Now(),
		first:   make(chan struct{}),
		waiters: make(map[string]chan struct{}),
		gone:    l.gone,
	}
	l.client.Go(func() { l.listen(l.listener, from) })
	return l.listener
}

// listen listens until Close. The store renews its connection by itself; if it gives up, it is
// asked again.
func (l *Locker) listen(n *listener, from store.Listener) {
	ctx := l.client.Closing()
	for {
		_ = from.Listen(ctx, n.id, n.wakeAll, n.wake)
		if l.client.Sleep(ctx, pollLongest, nil) != nil {
			return
		}
	}
}

// gone takes a waiter that has left the wait queue out of it again, and hands off the lock that is reserved
// for that waiter. The waiter came back if its last try was taken after it had left, or if a failover has
// lost that it left.
func (l *Locker) gone(waiter string) {
	parts := strings.SplitN(waiter, ":", 4) // see join
	if len(parts) == 4 {
		l.client.Go(func() { l.leaveQueue(l.client.Closing(), lease.Request{Resource: parts[3], Waiter: waiter}) })
	}
}

// wakeAll wakes everybody: it listens from now on, and wake-ups may have been missed.
func (n *listener) wakeAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard.Do(func() { close(n.first) })
	for _, woken := range n.waiters {
		push(woken)
	}
}

// wake wakes one waiter.
func (n *listener) wake(waiter string) {
	n.mu.Lock()
	woken, ok := n.waiters[waiter]
	n.mu.Unlock()
	if !ok {
		n.gone(waiter)
		return
	}
	push(woken)
}

func push(woken chan<- struct{}) {
	select {
	case woken <- struct{}{}:
	default: // it has been woken already
	}
}

// join makes a name for a waiter, and what receives when the waiter is woken. The name ends in the resource,
// so that the process knows what the waiter waited for when it hears the name later.
func (n *listener) join(resource string) (waiter string, woken <-chan struct{}, leave func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count++
	waiter = store.GoroutinePrefix + n.id + ":" + strconv.Itoa(n.count) + ":" + resource
	c := make(chan struct{}, 1)
	n.waiters[waiter] = c
	return waiter, c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.waiters, waiter)
	}
}
