package lock

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/store"
)

// A listener listens for all in a process who wait in wait queues.
type listener struct {
	id     string
	since  time.Time // when it was made
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	waiters map[string]chan struct{} // by name; receives when the waiter is woken
	count   int
	first   chan struct{} // closed when it first listens
	listens bool
}

// listening returns the listener of l, and makes it the first time. Close ends it.
func (l *Locker) listening(from store.Listener) *listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		return l.listener
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &listener{
		id:      uuid.NewString(),
		since:   time.Now(),
		cancel:  cancel,
		done:    make(chan struct{}),
		waiters: make(map[string]chan struct{}),
		first:   make(chan struct{}),
	}
	l.listener = n
	go func() {
		defer close(n.done)
		n.listen(ctx, from)
	}()
	return n
}

// listen listens until ctx ends. The store renews its connection by itself; if it gives up, it is
// asked again.
func (n *listener) listen(ctx context.Context, from store.Listener) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		_ = from.Listen(ctx, n.id, n.wakeAll, n.wake)
		timer.Reset(pollLongest)
	}
}

func (n *listener) close() {
	n.cancel()
	<-n.done
}

// wakeAll wakes everybody: it listens from now on, and wake-ups may have been missed.
func (n *listener) wakeAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.listens {
		n.listens = true
		close(n.first)
	}
	for _, woken := range n.waiters {
		push(woken)
	}
}

// wake wakes one waiter.
func (n *listener) wake(waiter string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if woken, ok := n.waiters[waiter]; ok {
		push(woken)
	}
}

func push(woken chan<- struct{}) {
	select {
	case woken <- struct{}{}:
	default: // it has been woken already
	}
}

// join makes a name for a waiter, and what receives when the waiter is woken.
func (n *listener) join() (waiter string, woken <-chan struct{}, leave func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count++
	waiter = store.GoroutinePrefix + n.id + ":" + strconv.Itoa(n.count)
	c := make(chan struct{}, 1)
	n.waiters[waiter] = c
	return waiter, c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.waiters, waiter)
	}
}
