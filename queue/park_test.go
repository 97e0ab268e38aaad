package queue

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/lock"
)

func TestWaitFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		busy lock.BusyError
		want time.Duration
	}{
		{"in no line", lock.BusyError{Remaining: 10 * time.Second}, time.Second},
		{"in no line, foreign holder", lock.BusyError{Foreign: true, Waited: time.Hour}, time.Second},
		{"head of the line: when the lock has run out", lock.BusyError{Place: 1, Remaining: 10 * time.Second}, 11 * time.Second},
		{"head, lock about to run out", lock.BusyError{Place: 1}, time.Second},
		{"second", lock.BusyError{Place: 2, Remaining: 10 * time.Second}, 11500 * time.Millisecond},
		{"far behind", lock.BusyError{Place: 101, Remaining: 10 * time.Second}, 61 * time.Second},
		{"a millionth: the spread is bounded", lock.BusyError{Place: 1e6, Remaining: 10 * time.Second}, 11*time.Second + 5*time.Minute},
		{"head, waited long: it takes over from a dead holder", lock.BusyError{Place: 1, Remaining: 10 * time.Second, Waited: time.Hour}, 11 * time.Second},
		{"second, waited long: less often", lock.BusyError{Place: 2, Remaining: 10 * time.Second, Waited: 8 * time.Minute}, 131 * time.Second},
		{"second, waited very long", lock.BusyError{Place: 2, Waited: time.Hour}, time.Second + 5*time.Minute},
		{"foreign holder, head", lock.BusyError{Foreign: true, Place: 1, Remaining: time.Hour}, time.Second},
		{"foreign holder, third", lock.BusyError{Foreign: true, Place: 3}, 3 * time.Second},
		{"foreign holder, waited long", lock.BusyError{Foreign: true, Place: 1, Waited: time.Minute}, 15 * time.Second},
		{"foreign holder, waited very long", lock.BusyError{Foreign: true, Place: 1, Waited: time.Hour}, 30 * time.Second},
		{"foreign holder, far behind", lock.BusyError{Foreign: true, Place: 1e6}, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if have := waitFor(&tt.busy); have != tt.want {
				t.Errorf("want %v, have %v", tt.want, have)
			}
		})
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

func TestLookAfter(t *testing.T) {
	t.Parallel()
	for refusals, want := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 8 * time.Second, 5: 16 * time.Second,
		6: 20 * time.Second, 7: 20 * time.Second, 100: 20 * time.Second, math.MaxInt: 20 * time.Second,
	} {
		if have := lookAfter(refusals); have != want {
			t.Errorf("refusal %d: want %v, have %v", refusals, want, have)
		}
	}
}

// Half of the delay is taken off at most, and half of it added: the longest is 30 s.
func TestSpreadBounds(t *testing.T) {
	t.Parallel()
	for d, bounds := range map[time.Duration][2]time.Duration{
		firstLook:   {500 * time.Millisecond, 1500 * time.Millisecond},
		longestLook: {10 * time.Second, 30 * time.Second},
	} {
		least, most := d, d
		for range 1000 {
			have := spread(d)
			least, most = min(least, have), max(most, have)
		}
		if least < bounds[0] || most >= bounds[1] {
			t.Errorf("spread(%v): want from %v to below %v, have %v to %v", d, bounds[0], bounds[1], least, most)
		}
		if least > d*3/4 || most < d*5/4 {
			t.Errorf("spread(%v): want it wide, have %v to %v", d, least, most)
		}
	}
}

// With timers looked at once a second, the head of a line runs within two
// seconds of the end of a dead holder's lock, whatever the fraction of a second.
func TestTimerOfTheHeadIsBounded(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if have := timerOf(&lock.BusyError{Place: 1, Remaining: 15 * time.Second}); have > 16*time.Second {
			t.Fatalf("head: want at most 16 s, have %v", have)
		}
	}
	spread := false
	for range 1000 {
		have := timerOf(&lock.BusyError{Place: 2, Remaining: 15 * time.Second})
		spread = spread || have > 16500*time.Millisecond
	}
	if !spread {
		t.Error("second: want jitter, have none")
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
	for want, busy := range map[string]lock.BusyError{
		"waiting for order:1, held by order:audit 5f on web-3 (pid 7) since 12:03:04.056, 3rd in line": {
			Resource: "order:1", Holder: "order:audit 5f on web-3 (pid 7)", Since: since, Place: 3,
		},
		"waiting for order:1, held by another program, 1st in line": {Resource: "order:1", Holder: "another program", Place: 1},
		"waiting for order:1, held by the next in line":             {Resource: "order:1", Holder: "the next in line"},
	} {
		if have := busyReason(&busy); have != want {
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
