package asynqredis

import (
	"strings"
	"testing"
	"time"
)

func TestBusyReason(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 7, 1, 14, 3, 4, 56e6, time.FixedZone("", 7200))
	now := time.Date(2026, 7, 1, 12, 5, 0, 1e6, time.UTC)
	for _, tt := range []struct {
		holder   string
		since    time.Time
		position int
		want     string
	}{
		{"order:audit 5f on web-3 (pid 7)", since, 3, "held by order:audit 5f on web-3 (pid 7) since 12:03:04.056, number 3 in the wait queue"},
		{"another program", time.Time{}, 1, "held by another program, number 1 in the wait queue"},
		{"the next in the wait queue", time.Time{}, 0, "held by the next in the wait queue"},
	} {
		want := "waiting for order:1; when parked, at 12:05:00.001: " + tt.want
		if have := BusyReason("order:1", tt.holder, tt.since, tt.position, now); have != want {
			t.Errorf("want %q\nhave %q", want, have)
		}
	}
}

// Another holder of the lock is not taken for the task, whose recovery would wait for that holder.
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
		if have := IsHolder(tt.kind, tt.id, tt.holder); have != tt.want {
			t.Errorf("%.20s %s, held by %.20s: want %v, have %v", tt.kind, tt.id, tt.holder, tt.want, have)
		}
	}
}

// What a task waited for is read from its last error, whatever the names in it are.
func TestWaitedFor(t *testing.T) {
	t.Parallel()
	now, since := time.Date(2026, 7, 1, 12, 5, 0, 1e6, time.UTC), time.Date(2026, 7, 1, 12, 3, 4, 56e6, time.UTC)
	names := []string{
		"order:audit 5f on web-3 (pid 7)", "", "since yesterday, number 3 in the list", "a, number 5 of b", "; last failure: x", "a: held by b", "two\nlines",
		"waiting for order:1; when parked, at 12:05:00.001: held by c",
	}
	for _, holder := range names {
		for _, resource := range names {
			for _, reason := range []string{
				BusyReason(resource, holder, since, 3, now), BusyReason(resource, holder, time.Time{}, 0, now),
				BusyReason(resource, holder, since, 12, now) + "; last failure: it was held by nobody",
			} {
				have, ok := Message{Waited: true, LastError: reason}.WaitedFor(resource)
				want := holder
				if before, _, failed := strings.Cut(holder, "; last failure: "); failed {
					want = before // such a holder cannot be told from a failure
				}
				if !ok || have != want {
					t.Errorf("%q: want %q, have %q, %v", reason, want, have, ok)
				}
				if have, ok := (Message{LastError: reason}).WaitedFor(resource); ok {
					t.Errorf("%q as the task's own error: have %q", reason, have)
				}
				if have, ok := (Message{Waited: true, LastError: reason}).WaitedFor("another " + resource); ok {
					t.Errorf("%q for another resource: have %q", reason, have)
				}
			}
		}
	}
	for _, reason := range []string{"", "lost order:1 after 3.0 s", "waiting for order:1", "waiting for order:1; when parked, at 12:05: held by x"} {
		if have, ok := (Message{Waited: true, LastError: reason}).WaitedFor("order:1"); ok {
			t.Errorf("%q: want no holder, have %q", reason, have)
		}
	}
}
