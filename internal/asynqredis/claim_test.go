package asynqredis

import (
	"testing"
	"time"

	"github.com/sidingq/siding/internal/sleep"
)

// A lane whose server comes back, and falls asleep again, is not claimed before it waits for the bell: that
// would have it wait for a seat and for the bell at once.
func TestClaimOfALaneThatFallsAsleep(t *testing.T) {
	t.Parallel()
	h := NewHook(nil, func() {})
	h.TakeAhead(Ahead{})
	bell := NewDoorbell(nil)
	l := h.Lane(bell)
	l.dozing.Store(true) // as its server left it
	l.left.Store(time.Now().UnixNano())

	bell.mu.Lock() // as who looks for a seat
	fallen := make(chan struct{})
	go func() {
		l.doze()
		close(fallen)
	}()
	for range 20 {
		_ = sleep.For(t.Context(), time.Millisecond)
		if _, ok := l.claim(); ok {
			t.Error("want it not claimed yet")
		}
	}
	bell.mu.Unlock()
	<-fallen
}
