package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/metrics"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// A fleet answers as an Inspector does.
type fleet struct {
	locks   inspect.List
	queues  []inspect.Queue
	servers []inspect.Server
	err     error
	hangs   bool
	reads   int
}

func (f *fleet) Held(ctx context.Context) (inspect.List, error) {
	f.reads++
	if f.hangs {
		<-ctx.Done()
		return inspect.List{}, ctx.Err()
	}
	return f.locks, nil
}
func (f *fleet) Queues(context.Context) ([]inspect.Queue, error)   { return f.queues, nil }
func (f *fleet) Servers(context.Context) ([]inspect.Server, error) { return f.servers, f.err }

// watch returns metrics with the gauges of f, and their log.
func watch(f *fleet) (*metrics.Metrics, *bytes.Buffer) {
	var log bytes.Buffer
	m := metrics.New()
	m.Watch(f, slog.New(slog.NewTextHandler(&log, nil)))
	return m, &log
}

// The gauges sum up locks by class, and tasks by queue.
func TestGauges(t *testing.T) {
	t.Parallel()
	const s = inspect.Duration(time.Second)
	m, _ := watch(&fleet{
		locks: inspect.List{LeftOut: 7, Locks: []inspect.Lock{
			{Resource: "order:1", State: inspect.Held, Waiting: 5, Paused: 2, OldestWait: 9 * s},
			{Resource: "order:2", State: inspect.Held, Waiting: 1, OldestWait: 30 * s},
			{Resource: "order:3", State: inspect.Reserved},
			{Resource: "order:4", State: inspect.Free, Waiting: 3, Paused: 3, OldestWait: 99 * s},
			{Resource: "sku:1", State: inspect.Foreign, Waiting: 1, OldestWait: s},
			{Resource: "sku:2", State: inspect.Free, Waiting: 1},
		}},
		queues: []inspect.Queue{
			{Name: "default", Pending: 1, Active: 2, Scheduled: 3, Aggregating: 4, Waiting: 5, Retrying: 6, Archived: 7, Completed: 8, Held: 5, Stopped: 3},
			{Name: "low", Paused: true},
		},
		servers: []inspect.Server{{Guarded: true}, {Unguarded: []string{"default"}}, {}},
	})
	have := scrape(t, m)
	if free, ok := have[`siding_locks_held{class="order",state="free"}`]; ok {
		t.Errorf("want no series of free locks, have %v", free)
	}
	want(t, have, map[string]float64{
		"siding_redis_up":                     1,
		`siding_tasks_waiting{class="order"}`: 4, `siding_tasks_waiting{class="sku"}`: 2,
		`siding_oldest_wait_seconds{class="order"}`: 30, `siding_oldest_wait_seconds{class="sku"}`: 1,
		`siding_locks_held{class="order",state="held"}`: 2, `siding_locks_held{class="order",state="reserved"}`: 1,
		`siding_locks_held{class="order",state="foreign"}`: 0, `siding_locks_held{class="sku",state="foreign"}`: 1,
		"siding_locks_unread": 7,
		`siding_queue_tasks{queue="default",state="pending"}`: 1, `siding_queue_tasks{queue="default",state="active"}`: 2,
		`siding_queue_tasks{queue="default",state="scheduled"}`: 3, `siding_queue_tasks{queue="default",state="aggregating"}`: 4,
		`siding_queue_tasks{queue="default",state="waiting"}`: 5, `siding_queue_tasks{queue="default",state="retrying"}`: 6,
		`siding_queue_tasks{queue="default",state="archived"}`: 7, `siding_queue_tasks{queue="default",state="completed"}`: 8,
		`siding_queue_paused{queue="default"}`: 0, `siding_queue_paused{queue="low"}`: 1,
		`siding_lines_held{queue="default",state="held"}`: 2, `siding_lines_held{queue="default",state="stopped"}`: 3, `siding_lines_held{queue="low",state="stopped"}`: 0,
		"siding_servers": 3, "siding_servers_unguarded": 1,
	})
}

// Redis is read once in 5 s, whoever scrapes.
func TestGaugesAreReadSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{servers: []inspect.Server{{}}}
		m, _ := watch(f)
		for range 10 {
			scrape(t, m)
			time.Sleep(time.Second)
		}
		expect.That(t, f.reads == 2, "want 2 reads in 10 s, have %d", f.reads)
	})
}

// While Redis cannot be read, the scrape says so and has no old values.
func TestGaugesOfARedisThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{servers: []inspect.Server{{}}}
		m, log := watch(f)
		wantUp := func(up bool) {
			t.Helper()
			have := scrape(t, m)
			_, shown := have["siding_servers"]
			if (have["siding_redis_up"] == 1) != up || shown != up {
				t.Errorf("want up %t, have %v, with servers: %t", up, have["siding_redis_up"], shown)
			}
			if _, ok := have[`siding_tasks_running{kind="other"}`]; !ok {
				t.Error("want the worker's own figures in any case")
			}
		}
		wantUp(true)
		f.err = errors.New("out of ink")
		wantUp(true) // was read a moment ago
		for range 3 {
			time.Sleep(5 * time.Second)
			wantUp(false)
		}
		if have := log.String(); strings.Count(have, "out of ink") != 1 {
			t.Errorf("want one warning, have %s", have)
		}
		f.err = nil
		wantUp(false) // a failure holds for as long
		time.Sleep(5 * time.Second)
		wantUp(true)
		if have := log.String(); strings.Count(have, "level=INFO") != 1 {
			t.Errorf("want one line that it works again, have %s", have)
		}
	})
}

// A Redis that hangs delays one scrape by 2 s, and not each.
func TestGaugesOfARedisThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{hangs: true}
		m, _ := watch(f)
		start := time.Now()
		for range 3 {
			want(t, scrape(t, m), map[string]float64{"siding_redis_up": 0})
		}
		if took := time.Since(start); took != 2*time.Second || f.reads != 1 {
			t.Errorf("want one read of 2 s, have %d in %v", f.reads, took)
		}
	})
}

// However many classes and queues Redis has, the gauges are few.
func TestGaugesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		m, _ := watch(f)
		for i := range 10_000 {
			name := "class" + strings.Repeat("x", i%60) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
			f.locks.Locks = append(f.locks.Locks, inspect.Lock{Resource: name + ":secret", State: inspect.Held, Waiting: 1})
			f.queues = append(f.queues, inspect.Queue{Name: name, Waiting: 1})
		}
		for range 2 {
			waiting, inQueues := 0.0, 0.0
			have := scrape(t, m)
			for name, value := range have {
				switch {
				case strings.Contains(name, "secret"):
					t.Errorf("want no name of a resource, have %s", name)
				case strings.HasPrefix(name, "siding_tasks_waiting{"):
					waiting += value
				case strings.HasPrefix(name, "siding_queue_tasks{"):
					inQueues += value
				}
			}
			expect.That(t, waiting == 10_000 && inQueues == 10_000 && len(have) <= 2500, "want 10,000 that wait in few series, have %v and %v in %d", waiting, inQueues, len(have))
			time.Sleep(5 * time.Second)
		}
	})
}
