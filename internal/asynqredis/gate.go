package asynqredis

import (
	"context"
	"sync"
	"time"
)

// A gate holds back the dequeues of all servers of a [Hook] while it is shut. The zero value is
// open.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed when the gate opens; nil while it is open
}

// Shut has the hook's servers take no more tasks until [Hook.Open]. Dequeues that are under way
// may still bring some.
func (h *Hook) Shut() {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	if h.gate.opened == nil {
		h.gate.opened = make(chan struct{})
	}
}

// Open has the servers take tasks again, at once.
func (h *Hook) Open() {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	if h.gate.opened != nil {
		close(h.gate.opened)
		h.gate.opened = nil
	}
}

// isShut reports whether the gate is shut, and does not wait.
func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened != nil
}

// held reports whether the gate is shut. It then waits until it opens, or for holdFor at most:
// asynq asks again.
func (g *gate) held(ctx context.Context) bool {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	if opened == nil {
		return false
	}
	timer := time.NewTimer(holdFor)
	defer timer.Stop()
	select {
	case <-opened:
	case <-timer.C:
	case <-ctx.Done():
	}
	return true
}
