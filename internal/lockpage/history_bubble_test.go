package lockpage_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/lockpage"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

func wait(t *testing.T, d time.Duration) {
	t.Helper()
	expect.OK(t, sleep.For(t.Context(), d))
}

func TestHistoryHasTheLast15Minutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := new(lockpage.History)
		for range 99 {
			h.Observe(queue.Event{Kind: queue.EventAcquired, HandOff: time.Millisecond})
		}
		h.Observe(queue.Event{Kind: queue.EventAcquired, HandOff: time.Second})
		h.Observe(queue.Event{Kind: queue.EventAcquired}) // no hand-off
		h.Observe(queue.Event{Kind: queue.EventParked})
		h.Observe(queue.Event{Kind: queue.EventReleased})
		if have := lockpage.Read(h); have.HandOffs != 0 {
			t.Errorf("want nothing of the sample that is not complete, have %+v", have)
		}
		wait(t, 5*time.Second)
		have := lockpage.Read(h)
		near := func(have, want time.Duration) bool { return math.Abs(float64(have-want)) <= 0.1*float64(want) }
		if have.HandOffs != 100 || have.Refused != 1 || !near(have.P50, time.Millisecond) || !near(have.P99, time.Millisecond) || have.Points != 180 || have.WithHandOffs != 1 {
			t.Errorf("want 100 hand-offs of 1 ms, and 1 refusal, have %+v", have)
		}
		wait(t, 15*time.Minute-5*time.Second)
		if have := lockpage.Read(h); have.HandOffs != 100 {
			t.Errorf("after 15 minutes: want all, have %+v", have)
		}
		for range 3 { // the place of a sample is that of a later one, too
			wait(t, 5*time.Second)
			if have := lockpage.Read(h); have.HandOffs != 0 || have.Refused != 0 {
				t.Errorf("after more than 15 minutes: want none, have %+v", have)
			}
		}
		h.Observe(queue.Event{Kind: queue.EventParked})
		wait(t, 5*time.Second)
		if have := lockpage.Read(h); have.Refused != 1 {
			t.Errorf("want 1 refusal, have %+v", have)
		}
	})
}

// The fleet is sampled from the first look until 15 minutes after the last one.
func TestFleetIsSampledWhileSomebodyLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSource(inspect.Lock{Resource: "hot", State: inspect.Held, Waiting: 4}, inspect.Lock{Resource: "warm", State: inspect.Held, Waiting: 1})
		h := open(t, lockpage.Config{Source: s})
		wait(t, time.Hour)
		if have := s.count("queues"); have != 0 {
			t.Errorf("nobody has looked: want no question, have %d", have)
		}
		get(t, h, "/locks")
		wait(t, time.Minute)
		if have := s.count("queues"); have < 12 || have > 14 {
			t.Errorf("after a minute: want a question every 5 s, have %d", have)
		}
		wantTexts(t, h, "/locks", "5 now, 5 at most", "hot</span> <b>4 min", "warm</span> <b>1 min")
		wait(t, 16*time.Minute)
		last := s.count("queues")
		wait(t, time.Hour)
		if have := s.count("queues"); have != last || have > 200 {
			t.Errorf("long after the last look: want no more questions than %d, have %d", last, have)
		}
		get(t, h, "/locks")
		wait(t, time.Second)
		if have := s.count("queues"); have != last+2 {
			t.Errorf("at the next look: want a question of the page, and a sample at once, have %d", have-last)
		}
	})
}
