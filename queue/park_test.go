package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/lock"
)

// A queued task comes by itself within two hours at the latest, and not all at once.
func TestFallbackOf(t *testing.T) {
	t.Parallel()
	if have := fallbackOf(&lease.BusyError{}); have < time.Second || have > 2*time.Second {
		t.Errorf("not queued: want 1 to 2 s, have %v", have)
	}
	least, most := 3*time.Hour, time.Duration(0)
	for range 1000 {
		have := fallbackOf(&lease.BusyError{Busy: lease.Busy{Position: 1, Remaining: time.Minute}})
		least, most = min(least, have), max(most, have)
	}
	if least < time.Hour || most >= 2*time.Hour || most-least < 50*time.Minute {
		t.Errorf("queued: want 1 to 2 h, evenly, have %v to %v", least, most)
	}
}

func TestJitterBounds(t *testing.T) {
	t.Parallel()
	for d, most := range map[time.Duration]time.Duration{
		0:                500 * time.Millisecond,
		time.Second:      500 * time.Millisecond,
		10 * time.Second: 500 * time.Millisecond,
		time.Minute:      3 * time.Second,
		5 * time.Minute:  15 * time.Second,
	} {
		var differ bool
		first := jitter(d)
		for range 1000 {
			have := jitter(d)
			if have < d || have >= d+most {
				t.Fatalf("jitter(%v): want from %v to below %v, have %v", d, d, d+most, have)
			}
			differ = differ || have != first
		}
		if !differ {
			t.Errorf("jitter(%v): want different values, have %v only", d, first)
		}
	}
}

func TestParkedErrorIsFoundInAWrappedError(t *testing.T) {
	t.Parallel()
	inner := &parkedError{reason: "waiting", cause: lock.ErrBusy}
	if have, ok := parkedBy(fmt.Errorf("outer middleware: %w", inner)); !ok || have != inner {
		t.Errorf("want the inner error, have %v", have)
	}
	if _, ok := parkedBy(errors.New("own failure")); ok {
		t.Error("a task's own failure: want it to use a retry")
	}
	if _, ok := parkedBy(nil); ok {
		t.Error("nil: want false")
	}
}

func TestLossDelay(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 11: time.Minute, 1 << 40: time.Minute,
	} {
		if have := lossDelay(n); have != want {
			t.Errorf("%d: want %v, have %v", n, want, have)
		}
	}
}
