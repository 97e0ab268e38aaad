package lock

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/store"
)

// An ear listens for all in a process who wait in line.
type ear struct {
	id     string
	since  time.Time // when it was made
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	bells map[string]chan struct{} // by waiter
	count int
	first chan struct{} // closed when it first hears
	hears bool
}

// hearing returns the ear of l, and makes it the first time. Close ends it.
func (l *Locker) hearing(listener store.Listener) *ear {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ear != nil {
		return l.ear
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &ear{
		id:     uuid.NewString(),
		since:  time.Now(),
		cancel: cancel,
		done:   make(chan struct{}),
		bells:  make(map[string]chan struct{}),
		first:  make(chan struct{}),
	}
	l.ear = e
	go func() {
		defer close(e.done)
		e.listen(ctx, listener)
	}()
	return e
}

// listen listens until ctx ends. An error of the listener is one of a connection
// that it makes anew; it is asked again should it give up.
func (e *ear) listen(ctx context.Context, listener store.Listener) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		_ = listener.Listen(ctx, e.id, e.hear, e.ring)
		timer.Reset(pollLongest)
	}
}

func (e *ear) close() {
	e.cancel()
	<-e.done
}

// hear rings for everybody: calls may have been missed.
func (e *ear) hear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.hears {
		e.hears = true
		close(e.first)
	}
	for _, bell := range e.bells {
		push(bell)
	}
}

// ring calls one waiter.
func (e *ear) ring(waiter string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if bell, ok := e.bells[waiter]; ok {
		push(bell)
	}
}

func push(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default: // it has been rung already
	}
}

// join makes a name for a waiter, and the bell that is rung when it is called.
func (e *ear) join() (waiter string, bell <-chan struct{}, hangUp func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count++
	waiter = store.CallPrefix + e.id + ":" + strconv.Itoa(e.count)
	b := make(chan struct{}, 1)
	e.bells[waiter] = b
	return waiter, b, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.bells, waiter)
	}
}
