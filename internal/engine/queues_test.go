package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// A paused queue of which somebody says that it has tasks does not keep the server from listening for those of the others.
func TestQueueThatRestsHasNoWork(t *testing.T) {
	t.Parallel()
	q, now := newQueues(map[string]int{"paused": 1, "other": 1}, false), time.Now()
	q.hasNot(q.all["other"])
	q.rest("paused", now.Add(time.Second))
	q.found([]string{"paused"}, now.Add(time.Second/2))
	if at, ok := q.next(); !q.idle("") || !ok || !at.Equal(now.Add(time.Second)) {
		t.Errorf("want no work until the queue has rested, have idle %v and %v", q.idle(""), at.Sub(now))
	}
	q.found([]string{"paused"}, now.Add(time.Second))
	expect.That(t, !q.idle(""), "want work once it has")
}

// Of two steps that were under way together the one counts that Redis made later.
func TestQueueHasWhatTheLastStepFound(t *testing.T) {
	t.Parallel()
	full, empty := taskredis.Drawn{More: true}, taskredis.Drawn{Due: -1}
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	for name, test := range map[string]struct {
		second taskredis.Drawn
		asOf   int64 // of the second answer; that of the first one is 100
		sent   int   // when the second step was; the first one is answered at 2
		work   bool
	}{
		"later":                        {empty, 101, 1, false},
		"earlier, sent before":         {empty, 99, 1, true},
		"sent after, but Redis' clock": {empty, 99, 3, false}, // has stepped back
	} {
		q := newQueues(map[string]int{"q": 1}, false)
		q.drawn("q", full, 100, at(0), at(2))
		q.drawn("q", test.second, test.asOf, at(test.sent), at(4))
		expect.That(t, q.idle("") != test.work, "%s: want work %v, have %v", name, test.work, !q.idle(""))
	}
}

// Somebody says that a queue has tasks while a step is under way that may not have seen them.
func TestQueueHasWhatItWasToldOf(t *testing.T) {
	t.Parallel()
	q, now := newQueues(map[string]int{"q": 1}, false), time.Now()
	q.found([]string{"q"}, now.Add(time.Second))
	q.drawn("q", taskredis.Drawn{Due: -1}, 100, now, now.Add(2*time.Second))
	expect.That(t, !q.idle(""), "want work, as the step was sent before")
	q.drawn("q", taskredis.Drawn{Due: -1}, 200, now.Add(3*time.Second), now.Add(4*time.Second))
	expect.That(t, q.idle(""), "want none, as a later step has found none")
}

// A server that has work is not told of what is in its other queues. Each has its turn to be looked at, of many a few in a step;
// also one that no slot comes to try, as those of a higher priority have tasks.
func TestQueuesBesideThoseWithWorkHaveTheirTurns(t *testing.T) {
	t.Parallel()
	for name, strict := range map[string]bool{"weights": false, "strict": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := map[string]int{"busy": 5, "z-critical": 9}
			for i := range 20 {
				all[fmt.Sprintf("low-%02d", i)] = 1
			}
			q, now, drawn := newQueues(all, strict), time.Now(), make(map[string]bool)
			for name := range all {
				if name != "busy" {
					q.hasNot(q.all[name])
				}
			}
			for range 20 {
				draws, _ := q.draw(10, now, false, func(string) bool { return true })
				for _, d := range draws {
					drawn[d.Queue] = true
				}
				now = now.Add(200 * time.Millisecond) // in which those that no slot has tried are not looked at
			}
			expect.That(t, len(drawn) == len(all), "want all %d queues named in some step, have %d: %v", len(all), len(drawn), drawn)
		})
	}
}
