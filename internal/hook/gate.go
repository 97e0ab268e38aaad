package hook

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sidingq/siding/internal/fetch"
)

// A gate holds back the dequeues of all servers of a [Hook] while it is shut. The zero value is
// open.
type gate struct {
	opened atomic.Pointer[chan struct{}] // closed when the gate opens; nil while it is open
	rested atomic.Int64                  // when it last held a dequeue for the whole time, Unix ns
}

// afterRest is for how long a gate that has held one dequeue answers the others at once. asynq asks one
// queue after the other, and does not stop before it has asked all.
const afterRest = 200 * time.Millisecond

// Shut has the hook's servers take no more tasks until [Hook.Open]. Dequeues that are under way
// may still bring some.
func (h *Hook) Shut() {
	opened := make(chan struct{})
	h.gate.opened.CompareAndSwap(nil, &opened)
}

// Open has the servers take tasks again, at once.
func (h *Hook) Open() {
	if opened := h.gate.opened.Swap(nil); opened != nil {
		close(*opened)
	}
}

// isShut reports whether the gate is shut, and does not wait.
func (g *gate) isShut() bool { return g.opened.Load() != nil }

// held reports whether the gate is shut. First held waits until a shut gate opens, or for
// fetch.HoldFor at most. asynq then asks its other queues, which are not held, and then again.
func (g *gate) held(ctx context.Context) bool {
	opened := g.opened.Load()
	if opened == nil {
		return false
	}
	if time.Since(time.Unix(0, g.rested.Load())) < afterRest {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, fetch.HoldFor)
	defer cancel()
	select {
	case <-*opened:
	case <-ctx.Done():
		g.rested.Store(time.Now().UnixNano())
	}
	return true
}
