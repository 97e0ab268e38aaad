package metrics_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/metrics"
	"github.com/sidingq/siding/internal/telemetry"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape returns what a worker reports of Siding, by the name and the labels.
func scrape(t *testing.T, m *metrics.Metrics) map[string]float64 {
	t.Helper()
	reply := httptest.NewRecorder()
	m.Handler().ServeHTTP(reply, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	expect.Need(t, reply.Code == http.StatusOK, "want a scrape, have %d %s", reply.Code, reply.Body)
	values := make(map[string]float64)
	for line := range strings.Lines(reply.Body.String()) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.Contains(line, "}") {
			name, text, _ = strings.Cut(strings.TrimSpace(line), " ")
		} else {
			name += "}"
		}
		if value, err := strconv.ParseFloat(text, 64); err == nil && strings.HasPrefix(name, "siding_") {
			values[name] = value
		}
	}
	return values
}

func want(t *testing.T, have map[string]float64, all map[string]float64) {
	t.Helper()
	for name, value := range all {
		if got, ok := have[name]; !ok || got != value {
			t.Errorf("%s: want %v, have %v (%t)", name, value, got, ok)
		}
	}
}

// event returns an event of a task.
func event(kind queue.EventKind, change func(*queue.Event)) queue.Event {
	e := queue.Event{Kind: kind, TaskID: "7f4a", TaskKind: "order:audit", Queue: "default", Resource: "order:536365"}
	if change != nil {
		change(&e)
	}
	return e
}

// Each event counts where the documentation says.
func TestEvents(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	for _, e := range []queue.Event{
		// A task that did not wait.
		event(queue.EventAcquired, nil),
		event(queue.EventReleased, func(e *queue.Event) { e.Held = 20 * time.Millisecond }),
		// A task that waits twice, and gets its lock by a hand-off.
		event(queue.EventParked, func(e *queue.Event) { e.Parked = 1 }),
		event(queue.EventParked, func(e *queue.Event) { e.Parked = 2 }),
		event(queue.EventAcquired, func(e *queue.Event) {
			e.Waited, e.Via, e.HandOff = 2*time.Second, queue.ViaHandOff, time.Millisecond
		}),
		event(queue.EventReleased, func(e *queue.Event) { e.Err = errors.New("own failure") }),
		// The other ways.
		event(queue.EventAcquired, func(e *queue.Event) { e.Waited, e.Via = time.Hour, queue.ViaRecovery }),
		event(queue.EventLost, func(e *queue.Event) { e.Err = errors.New("own failure") }),
		event(queue.EventAcquired, func(e *queue.Event) { e.Waited, e.Via = time.Second, queue.ViaBatch }),
		event(queue.EventReleased, func(e *queue.Event) { e.Err = fmt.Errorf("the second lock: %w", lock.ErrBusy) }),
		event(queue.EventAcquired, nil),
		event(queue.EventReleased, func(e *queue.Event) { e.Err = queue.Unavailable(errors.New("no ink")) }),
		event(queue.EventRecovered, nil),
		event(queue.EventRejected, nil),
		event(queue.EventWaitedTooLong, nil),
		event(queue.EventWaitedTooLong, nil),
		// Still running.
		event(queue.EventAcquired, nil),
		// A task without a resource.
		{Kind: queue.EventStarted, TaskKind: "mail:send", Queue: "low"},
		{Kind: queue.EventStarted, TaskKind: "mail:send", Queue: "low"},
		{Kind: queue.EventFinished, TaskKind: "mail:send", Queue: "low", Held: time.Second},
	} {
		m.Observe(e)
	}
	want(t, scrape(t, m), map[string]float64{
		`siding_locks_acquired_total{class="order"}`:                                       6,
		`siding_task_parks_total{class="order"}`:                                           2,
		`siding_tasks_contended_total{class="order"}`:                                      1,
		`siding_waits_ended_total{class="order",via="handoff"}`:                            1,
		`siding_waits_ended_total{class="order",via="recovery"}`:                           1,
		`siding_waits_ended_total{class="order",via="batch"}`:                              1,
		`siding_task_wait_seconds_count{class="order"}`:                                    3,
		`siding_task_wait_seconds_sum{class="order"}`:                                      3603,
		`siding_task_wait_seconds_bucket{class="order",le="1"}`:                            1,
		`siding_lock_handoff_seconds_count{queue="default"}`:                               1,
		`siding_lock_handoff_seconds_bucket{queue="default",le="0.001"}`:                   1,
		`siding_lock_handoff_seconds_bucket{queue="default",le="0.0005"}`:                  0,
		`siding_locks_lost_total{kind="order:audit"}`:                                      1,
		`siding_tasks_recovered_total{kind="order:audit"}`:                                 1,
		`siding_tasks_running{kind="order:audit"}`:                                         1,
		`siding_tasks_ended_by_policy_total{kind="order:audit",outcome="rejected"}`:        1,
		`siding_tasks_ended_by_policy_total{kind="order:audit",outcome="waited_too_long"}`: 2,
		`siding_tasks_running{kind="mail:send"}`:                                           1,
		`siding_tasks_recovered_total{kind="mail:send"}`:                                   0,
		duration("count", "mail:send", "done"):                                             1,
		duration("sum", "mail:send", "done"):                                               1,
		duration("count", "order:audit", "done"):                                           1,
		duration("sum", "order:audit", "done"):                                             0.02,
		duration("count", "order:audit", "failed"):                                         1,
		duration("count", "order:audit", "lost"):                                           1,
		duration("count", "order:audit", "snoozed"):                                        2,
	})
}

func duration(figure, kind, outcome string) string {
	return fmt.Sprintf(`siding_task_duration_seconds_%s{kind=%q,outcome=%q}`, figure, kind, outcome)
}

// The first rise of a counter is one from zero, which Prometheus sees.
func TestKindsBeginAtZero(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	m.Kinds([]string{"order:audit", "mail:send"})
	want(t, scrape(t, m), map[string]float64{
		`siding_locks_lost_total{kind="order:audit"}`:    0,
		`siding_tasks_recovered_total{kind="mail:send"}`: 0,
		`siding_tasks_running{kind="mail:send"}`:         0,
		duration("count", "mail:send", "done"):           0,
		duration("count", "mail:send", "failed"):         0,
	})
}

// However many classes, kinds and queues there are, the series are few, and count all.
func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	const many = 10_000
	fill := func(from int) {
		for i := range many {
			e := queue.Event{Resource: fmt.Sprintf("class%d:secret-%d", from+i, i), TaskKind: fmt.Sprintf("kind:%d\xff", from+i), TaskID: "secret", Queue: fmt.Sprintf("queue%d", from+i)}
			e.Kind, e.Parked = queue.EventParked, 1
			m.Observe(e)
			e.Kind, e.HandOff, e.Waited, e.Via, e.Holder = queue.EventAcquired, 1, 1, queue.ViaHandOff, "secret"
			m.Observe(e)
			e.Kind = queue.EventLost
			m.Observe(e)
		}
	}
	fill(0)
	first := scrape(t, m)
	fill(many)
	have := scrape(t, m)
	expect.That(t, len(have) == len(first) && len(have) <= 12_000, "want as many series as before, and not many, have %d, then %d", len(first), len(have))
	words, acquired := make(map[string]map[string]bool), 0.0
	for name, value := range have {
		expect.That(t, !strings.Contains(name, "secret"), "want no name of a resource and no id, have %s", name)
		if strings.HasPrefix(name, "siding_locks_acquired_total{") {
			acquired += value
		}
		for _, l := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(name, -1) {
			if words[l[1]] == nil {
				words[l[1]] = make(map[string]bool)
			}
			words[l[1]][l[2]] = true
		}
	}
	if acquired != 2*many {
		t.Errorf("want %d counted, have %v", 2*many, acquired)
	}
	for _, label := range []string{"class", "kind", "queue"} {
		if len(words[label]) != telemetry.Limit+1 || !words[label][telemetry.Other] {
			t.Errorf("%s: want %d values, one of them %s, have %d", label, telemetry.Limit+1, telemetry.Other, len(words[label]))
		}
	}
}

// Tasks wait for Observe.
func TestObserveAllocatesNothing(t *testing.T) { //nolint:paralleltest // counts what the process allocates
	m := metrics.New()
	for name, e := range typical() {
		m.Observe(e)
		expect.Equal(t, name+": allocations", testing.AllocsPerRun(100, func() { m.Observe(e) }), 0)
	}
}

// typical are the events of a worker without faults.
func typical() map[string]queue.Event {
	return map[string]queue.Event{
		"parked":   event(queue.EventParked, func(e *queue.Event) { e.Parked = 1 }),
		"acquired": event(queue.EventAcquired, nil),
		"handed off": event(queue.EventAcquired, func(e *queue.Event) {
			e.Waited, e.Via, e.HandOff = time.Second, queue.ViaHandOff, time.Millisecond
		}),
		"released": event(queue.EventReleased, func(e *queue.Event) { e.Held = time.Millisecond }),
		"started":  event(queue.EventStarted, nil),
		"finished": event(queue.EventFinished, func(e *queue.Event) { e.Held = time.Millisecond }),
	}
}

func BenchmarkObserve(b *testing.B) {
	for name, e := range typical() {
		b.Run(name, func(b *testing.B) {
			m := metrics.New()
			b.ReportAllocs()
			for b.Loop() {
				m.Observe(e)
			}
		})
	}
}
