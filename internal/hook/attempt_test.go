package hook

import (
	"testing"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
)

// A deadline does not tell two attempts apart if the lease of the first was renewed late. That may
// be in the second in which the later one started, or by another server of the process.
func TestAcknowledgementOfTheParkedAttempt(t *testing.T) {
	t.Parallel()
	h := server{Hook: &Hook{}}
	s := &h.running
	first := &Attempt{Attempt: asynqredis.Attempt{Queue: "q", ID: "1", Name: "first"}, lease: 100, server: h}
	later := &Attempt{Attempt: asynqredis.Attempt{Queue: "q", ID: "1", Name: "later"}, lease: 130, server: h}
	deadline := time.Unix(130, 5e8)
	s.add(first)
	s.add(later)
	if have := s.acknowledging(first.key, opRetry, deadline, true); have != later {
		t.Errorf("want the later one, have %s", have.Name)
	}
	first.Park(asynqredis.Park{})
	for _, o := range []op{opRetry, opArchive} {
		if have := s.acknowledging(first.key, o, deadline, true); have != first {
			t.Errorf("want the one that waits to be parked, have %s", have.Name)
		}
	}
	if have := s.acknowledging(first.key, opDone, deadline, true); have != later {
		t.Errorf("want the one that may be done, have %s", have.Name)
	}
	later.Park(asynqredis.Park{})
	if have := s.acknowledging(first.key, opArchive, deadline, true); have != later {
		t.Errorf("want the later one of two to be parked, have %s", have.Name)
	}
}

// A dequeue waits for up to a second, and then returns a prefetched task whose lease ends later than asynq
// believes. The acknowledgement is still for that attempt, and not for an earlier one.
func TestAcknowledgementOfAPrefetchedTask(t *testing.T) {
	t.Parallel()
	h := server{Hook: &Hook{}}
	s := &h.running
	first := &Attempt{Attempt: asynqredis.Attempt{Queue: "q", ID: "1", Name: "first"}, lease: 100, server: h}
	later := &Attempt{Attempt: asynqredis.Attempt{Queue: "q", ID: "1", Name: "later"}, lease: 131, server: h}
	deadline := time.Unix(130, 5e8)
	s.add(first)
	s.add(later)
	s.claimed(later, int64(130))
	later.Park(asynqredis.Park{})
	for _, o := range []op{opRetry, opArchive, opRequeue} {
		if have := s.acknowledging(first.key, o, deadline, true); have != later {
			t.Errorf("want the one that asynq has, have %s", have.Name)
		}
	}
}
