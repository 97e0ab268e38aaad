package contention_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/contention"
)

// With seconds the profile has the waits that end in this time.
func TestProfileOfSomeSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := contention.New()
		e := wait("order:audit", "order:536365", time.Second)
		p.Observe(e)
		p.Observe(wait("order:ship", "order:536365", time.Second))
		time.AfterFunc(29*time.Second, func() { p.Observe(e) })
		time.AfterFunc(31*time.Second, func() { p.Observe(e) })
		have, samples := parse(t, fetch(t, p, "?seconds=30"))
		if want := [2]int64{1, 1e9}; len(samples) != 1 || samples["class order < order:audit waits"] != want {
			t.Errorf("want one wait, have %v", samples)
		}
		if have.DurationNanos != 30e9 {
			t.Errorf("want 30 s, have %v", time.Duration(have.DurationNanos))
		}
		time.Sleep(time.Minute)
		if have, samples := parse(t, fetch(t, p, "")); samples["class order < order:audit waits"] != [2]int64{3, 3e9} || have.DurationNanos != 90e9 {
			t.Errorf("want all waits of 90 s, have %v of %v", samples, time.Duration(have.DurationNanos))
		}
	})
}
