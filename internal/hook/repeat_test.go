package hook_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// asynq repeats an acknowledgement that failed with a context that it has
// cancelled; it is sent all the same, and counts.
func TestFailedAcknowledgementIsRepeated(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, a *run) error{
		"done": func(t *testing.T, a *run) error { t.Helper(); return a.end(t, nil) },
		"parked": func(t *testing.T, a *run) error {
			t.Helper()
			a.ours.Park(asynqredis.Park{At: time.Now().Add(time.Hour), Ticket: 7})
			return a.end(t, errWaiting)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, redistest.Start(t).Addr)
			w := f.worker(t)
			a := w.take(t, f.enqueue(t))
			must(t, f.rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
			if err := end(t, a); err == nil || !redis.HasErrorPrefix(err, "NOREPLICAS") {
				t.Fatalf("want the acknowledgement refused, have %v", err)
			}
			f.wantIn(t, a.id, "active")
			must(t, f.rdb.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
			if again := receive(t, w.gate.acks, "asynq's second try"); again.id != a.id || again.err != nil {
				t.Fatalf("want %s acknowledged, have %v", a.id, again)
			}
			have := f.check(t).places()[a.id]
			if name == "parked" && (len(have) != 1 || have[0] != "retry") || name == "done" && len(have) != 0 {
				t.Errorf("want it %s, have it in %v", name, have)
			}
		})
	}
}
