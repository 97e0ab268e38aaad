package engine

import (
	"testing"
	"time"
)

// A paused queue of which somebody says that it has tasks does not keep the server from listening for those of the others.
func TestQueueThatRestsHasNoWork(t *testing.T) {
	t.Parallel()
	q, now := newQueues(map[string]int{"paused": 1, "other": 1}, false), time.Now()
	q.hasNot(q.all["other"])
	q.rest("paused", now.Add(time.Second))
	q.found([]string{"paused"}, now.Add(time.Second/2))
	if at, ok := q.next(); !q.idle() || !ok || !at.Equal(now.Add(time.Second)) {
		t.Errorf("want no work until the queue has rested, have idle %v and %v", q.idle(), at.Sub(now))
	}
	q.found([]string{"paused"}, now.Add(time.Second))
	if q.idle() {
		t.Error("want work once it has")
	}
}
