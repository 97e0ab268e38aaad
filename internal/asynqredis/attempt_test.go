package asynqredis

import (
	"testing"
	"time"
)

// Deadlines are no help where the first attempt's lease was renewed in the second in
// which the later one began, or by another server of the process.
func TestAcknowledgementOfTheParkedAttempt(t *testing.T) {
	t.Parallel()
	var s attempts
	first := &Attempt{Queue: "q", ID: "1", name: "first", lease: 100}
	later := &Attempt{Queue: "q", ID: "1", name: "later", lease: 130}
	deadline := time.Unix(130, 5e8)
	s.add(first)
	s.add(later)
	if have := s.acknowledging("q", "1", opRetry, deadline, true); have != later {
		t.Errorf("want the later one, have %s", have.name)
	}
	first.Park(Park{})
	for _, o := range []op{opRetry, opArchive} {
		if have := s.acknowledging("q", "1", o, deadline, true); have != first {
			t.Errorf("want the one that is to be parked, have %s", have.name)
		}
	}
	if have := s.acknowledging("q", "1", opDone, deadline, true); have != later {
		t.Errorf("want the one that may be done, have %s", have.name)
	}
	later.Park(Park{})
	if have := s.acknowledging("q", "1", opArchive, deadline, true); have != later {
		t.Errorf("want the later one of two to be parked, have %s", have.name)
	}
}
