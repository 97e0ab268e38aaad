package hook

import (
	"context"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/fetch"
)

// twoAttempts returns the attempts of a process, which has two of one task. ends is the end of the later
// one's lease in Unix seconds.
func twoAttempts(ends int64) (s *attempts, first, later *Attempt) {
	h := server{Hook: &Hook{}}
	of := func(name string, ends int64) *Attempt {
		return &Attempt{Attempt: asynqredis.Attempt{Queue: "q", ID: "1", Name: name}, lease: ends, server: h}
	}
	first, later = of("first", 100), of("later", ends)
	h.running.add(first)
	h.running.add(later)
	return &h.running, first, later
}

// A deadline does not tell two attempts apart if the lease of the first was renewed late. That may
// be in the second in which the later one started, or by another server of the process.
func TestAcknowledgementOfTheParkedAttempt(t *testing.T) {
	t.Parallel()
	s, first, later := twoAttempts(130)
	deadline := time.Unix(130, 5e8)
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

// delivering answers a dequeue with a prefetched task.
type delivering struct {
	fetcher

	t fetch.Task
}

func (d delivering) Dequeue(context.Context, string, fetch.Scan) (fetch.Task, error) { return d.t, nil }

// A dequeue waits for up to a second, and then returns a prefetched task whose lease ends later than asynq
// believes. The acknowledgement is still for that attempt, and not for an earlier one.
func TestAcknowledgementOfAPrefetchedTask(t *testing.T) {
	t.Parallel()
	s, first, later := twoAttempts(131)
	deadline := time.Unix(130, 5e8)
	claiming := server{Hook: later.server.Hook, fetcher: delivering{t: fetch.Task{Attempt: later}}}
	if _, err := claiming.dequeue(t.Context(), nil, call{argv: []any{int64(130)}}); err != nil {
		t.Fatal(err)
	}
	later.Park(asynqredis.Park{})
	for _, o := range []op{opRetry, opArchive, opRequeue} {
		if have := s.acknowledging(first.key, o, deadline, true); have != later {
			t.Errorf("want the one that asynq has, have %s", have.Name)
		}
	}
}
