package queue

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/lock"
)

// A task in line comes by itself within two hours at the latest, and not all at once.
func TestTimerOf(t *testing.T) {
	t.Parallel()
	if have := timerOf(&lock.BusyError{Remaining: time.Minute}); have < time.Second || have > 2*time.Second {
		t.Errorf("in no line: want 1 to 2 s, have %v", have)
	}
	least, most := 3*time.Hour, time.Duration(0)
	for range 1000 {
		have := timerOf(&lock.BusyError{Place: 1, Remaining: time.Minute})
		least, most = min(least, have), max(most, have)
	}
	if least < time.Hour || most >= 2*time.Hour || most-least < 50*time.Minute {
		t.Errorf("in line: want 1 to 2 h, evenly, have %v to %v", least, most)
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

func TestOrdinal(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 10: "10th", 11: "11th", 12: "12th", 13: "13th", 20: "20th",
		21: "21st", 22: "22nd", 23: "23rd", 100: "100th", 101: "101st", 111: "111th", 112: "112th", 1013: "1013th", 1021: "1021st",
	} {
		if have := ordinal(n); have != want {
			t.Errorf("want %s, have %s", want, have)
		}
	}
}

func TestBusyReason(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 7, 1, 14, 3, 4, 56e6, time.FixedZone("", 7200))
	now := time.Date(2026, 7, 1, 12, 5, 0, 1e6, time.UTC)
	for want, busy := range map[string]lock.BusyError{
		"waiting for order:1; when parked, at 12:05:00.001: held by order:audit 5f on web-3 (pid 7) since 12:03:04.056, 3rd in line": {
			Resource: "order:1", Holder: "order:audit 5f on web-3 (pid 7)", Since: since, Place: 3,
		},
		"waiting for order:1; when parked, at 12:05:00.001: held by another program, 1st in line": {Resource: "order:1", Holder: "another program", Place: 1},
		"waiting for order:1; when parked, at 12:05:00.001: held by the next in line":             {Resource: "order:1", Holder: "the next in line"},
	} {
		if have := busyReason(&busy, now); have != want {
			t.Errorf("want %q\nhave %q", want, have)
		}
	}
}

func TestUnchargedIsFoundInAWrappedError(t *testing.T) {
	t.Parallel()
	inner := &unchargedError{reason: "waiting", cause: lock.ErrBusy}
	if have, ok := uncharged(fmt.Errorf("outer middleware: %w", inner)); !ok || have != inner {
		t.Errorf("want the inner error, have %v", have)
	}
	if _, ok := uncharged(errors.New("own failure")); ok {
		t.Error("a task's own failure: want it charged")
	}
	if _, ok := uncharged(nil); ok {
		t.Error("nil: want false")
	}
}

// Who else holds a lock is not taken for the task, whose recovery would wait for it.
func TestIsHolder(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	for _, tt := range []struct {
		kind, id, holder string
		want             bool
	}{
		{"order:audit", "7", "order:audit 7 on web-3 (pid 4121)", true},
		{"order:audit", "7", "order:audit 77 on web-3 (pid 4121)", false},
		{"order:audit", "7", "order:audit", false}, // a program that calls itself by what it does
		{"order:audit", "7", "recovery on web-3 (pid 4121)", false},
		{long, "7", long[:200], true}, // as much as a lock keeps
		{long, "7", long[:197], true}, // less a part of a character
	} {
		if have := isHolder(tt.kind, tt.id, tt.holder); have != tt.want {
			t.Errorf("%.20s %s, held by %.20s: want %v, have %v", tt.kind, tt.id, tt.holder, tt.want, have)
		}
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
