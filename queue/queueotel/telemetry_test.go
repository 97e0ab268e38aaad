package queueotel_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/queue/queueotel"
)

// patience bounds every wait. Only a test that fails anyway waits for its end.
const patience = 30 * time.Second

// A ship is the guarded task of these tests.
type ship struct {
	Order string `json:"order"`
	N     int    `json:"n"`
}

func (ship) Kind() string       { return "order:ship" }
func (s ship) Resource() string { return "order:" + s.Order }

// A note is a task without a resource.
type note struct{}

func (note) Kind() string { return "note" }

// A bench is a server of the test's own, whose spans and metrics are kept.
type bench struct {
	opts      queue.RedisOpt
	client    *queue.Client
	telemetry *queueotel.Telemetry
	spans     *tracetest.SpanRecorder
	reader    *sdkmetric.ManualReader
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{opts: queue.RedisOpt{Addrs: []string{redistest.Start(t).Addr}}, spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	var err error
	b.telemetry, err = queueotel.New(queueotel.Config{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b.spans)),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader)),
		Propagator:     propagation.TraceContext{},
	})
	if err != nil {
		t.Fatal(err)
	}
	rdb := queue.Redis((*redis.UniversalOptions)(&b.opts))
	t.Cleanup(func() { _ = rdb.Close() })
	if b.client, err = queue.NewClient(rdb, queue.ClientConfig{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// serve runs tasks with run.
func (b *bench) serve(t *testing.T, run func(context.Context, ship) error) *queue.Server {
	t.Helper()
	server, err := queue.NewServer(b.opts, queue.ServerConfig{
		Asynq:   asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel, ShutdownTimeout: 200 * time.Millisecond},
		Observe: b.telemetry.Observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	queue.Handle(server, run)
	queue.Handle(server, func(context.Context, note) error { return nil })
	server.Use(b.telemetry.Middleware)
	expect.OK(t, server.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return server
}

// ended returns the spans of a name once n of them have ended.
func (b *bench) ended(t *testing.T, name string, n int) []sdktrace.ReadOnlySpan {
	t.Helper()
	var found []sdktrace.ReadOnlySpan
	expect.Eventually(t, "spans called "+name, func() bool {
		found = slices.DeleteFunc(b.spans.Ended(), func(s sdktrace.ReadOnlySpan) bool { return s.Name() != name })
		return len(found) >= n
	})
	return found
}

func attr(s sdktrace.ReadOnlySpan, key string) attribute.Value {
	for _, kv := range s.Attributes() {
		if string(kv.Key) == key {
			return kv.Value
		}
	}
	return attribute.Value{}
}

func linked(s sdktrace.ReadOnlySpan, to sdktrace.ReadOnlySpan) bool {
	return slices.ContainsFunc(s.Links(), func(l sdktrace.Link) bool { return l.SpanContext.SpanID() == to.SpanContext().SpanID() })
}

// A task that waits has three spans. The wait belongs to the producer's trace, and is linked to the
// run that handed the lock off.
func TestSpans(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	entered, opened := make(chan struct{}), make(chan struct{})
	b.serve(t, func(_ context.Context, s ship) error {
		if s.N == 1 {
			close(entered)
			select {
			case <-opened:
			case <-t.Context().Done():
			}
		}
		return nil
	})
	ctx, caller := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "caller")
	first := expect.Value(b.telemetry.Enqueue(ctx, b.client, ship{"1", 1}, nil))(t)
	select {
	case <-entered:
	case <-time.After(patience): //nolint:forbidigo // only a test that fails waits for it
		t.Fatal("the first task does not run")
	}
	results, err := b.telemetry.EnqueueBatch(ctx, b.client, []queue.Job{{Task: ship{"1", 2}}, {Task: ship{"1", 3}, Options: &queue.Options{Timeout: -1}}})
	expect.Need(t, err == nil && results[1].Err != nil, "want the second refused, have %v, %v", results, err)
	b.awaitWaiting(t, 1)
	close(opened)

	runs, produced := b.ended(t, "run order:ship", 2), b.ended(t, "enqueue order:ship", 3)
	waits := b.ended(t, "wait order:ship", 1)
	one, two, wait := runs[0], runs[1], waits[0]
	if attr(one, "siding.task.id").AsString() != first.ID {
		one, two = two, one
	}
	for i, p := range produced {
		expect.That(t, p.SpanKind() == trace.SpanKindProducer && p.Parent().SpanID() == caller.SpanContext().SpanID(), "producer %d: want a child of the caller, have %v", i, p.Parent())
	}
	if id := attr(produced[1], "siding.task.id").AsString(); id != results[0].ID || produced[2].Status().Code != codes.Error {
		t.Errorf("producers: want an id and an error, have %s and %v", id, produced[2].Status())
	}
	for i, r := range []sdktrace.ReadOnlySpan{one, two} {
		expect.That(t, r.SpanKind() == trace.SpanKindConsumer && !r.Parent().IsValid() && linked(r, produced[i]) && attr(r, "siding.outcome").AsString() == "done", "run %d: want a consumer in a trace of its own, linked to its producer, have %+v", i, r)
	}
	expect.That(t, wait.Parent().SpanID() == produced[1].SpanContext().SpanID() && len(wait.Links()) == 1 && linked(wait, one) && linked(two, wait) && !linked(one, wait), "wait: want it in the producer's trace, linked to the first run, have %v, %v", wait.Parent(), wait.Links())
	expect.That(t, !wait.StartTime().Before(one.StartTime()) && !wait.EndTime().Before(one.EndTime().Add(-time.Second)) && !wait.EndTime().After(two.EndTime()), "wait: have %v to %v, run one %v to %v", wait.StartTime(), wait.EndTime(), one.StartTime(), one.EndTime())
	if via := attr(wait, "siding.via").AsString(); via != "handoff" {
		t.Errorf("wait: want it ended by a hand-off, have %q", via)
	}
	if a, b := attr(one, "siding.fence").AsInt64(), attr(two, "siding.fence").AsInt64(); a <= 0 || b <= a {
		t.Errorf("fences: want them to rise, have %d and %d", a, b)
	}
	expect.Eventually(t, "all events counted", func() bool { return b.sum(t)["siding.task.duration"] == 2 })
	b.want(t, map[string]int64{
		"siding.locks.acquired": 2, "siding.tasks.contended": 1, "siding.task.parks": 1, "siding.waits.ended": 1,
		"siding.tasks.running": 0, "siding.task.wait": 1, "siding.lock.handoff": 1,
	})
}

// awaitWaiting waits until so many tasks wait.
func (b *bench) awaitWaiting(t *testing.T, n int) {
	t.Helper()
	inspector := asynq.NewInspector(b.opts)
	t.Cleanup(func() { _ = inspector.Close() })
	expect.Eventually(t, "waiting tasks", func() bool {
		info, err := inspector.GetQueueInfo("default")
		return err == nil && info.Retry == n
	})
}

// A failure is an error of its span. A run that has to wait for a second lock, or for the database of
// all, is none.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	want := []struct {
		err     error
		outcome string
		code    codes.Code
	}{
		{nil, "done", codes.Unset},
		{queue.Permanent(errors.New("broken")), "failed", codes.Error},
		{queue.Unavailable(errors.New("no database")), "snoozed", codes.Unset},
	}
	var tries int
	b.serve(t, func(_ context.Context, s ship) error {
		if s.N == 2 {
			if tries++; tries > 1 {
				return nil
			}
		}
		return want[s.N].err
	})
	for n := range want {
		expect.OK(t, expect.Err(b.telemetry.Enqueue(t.Context(), b.client, ship{"1", n}, nil)))
		run := b.ended(t, "run order:ship", n+1)[n]
		if have := attr(run, "siding.outcome").AsString(); have != want[n].outcome || run.Status().Code != want[n].code {
			t.Errorf("%v: want %s, have %s, %v", want[n].err, want[n].outcome, have, run.Status())
		}
	}
}

// A run that finds that its task has another resource than its header says is no error, and the next one is as any.
func TestOutcomeOfAWrongHeader(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.serve(t, func(context.Context, ship) error { return nil })
	client := asynq.NewClient(b.opts)
	t.Cleanup(func() { _ = client.Close() })
	wrong := asynq.NewTaskWithHeaders("order:ship", []byte(`{"order":"2"}`), map[string]string{queue.HeaderResource: "order:1"})
	expect.OK(t, expect.Err(client.Enqueue(wrong)))
	for i, want := range []string{"snoozed", "done"} {
		run := b.ended(t, "run order:ship", 2)[i]
		if have := attr(run, "siding.outcome").AsString(); have != want || run.Status().Code != codes.Unset {
			t.Errorf("run %d: want %s, have %s, %v", i+1, want, have, run.Status())
		}
	}
}

// A run whose task a shutdown puts back is no error.
func TestOutcomeAtShutdown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begun := make(chan struct{})
	s := b.serve(t, func(ctx context.Context, _ ship) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	})
	expect.OK(t, expect.Err(b.telemetry.Enqueue(t.Context(), b.client, ship{"1", 1}, nil)))
	<-begun
	expect.OK(t, s.Shutdown(t.Context()))
	run := b.ended(t, "run order:ship", 1)[0]
	if have := attr(run, "siding.outcome").AsString(); have != "snoozed" || run.Status().Code != codes.Unset {
		t.Errorf("want snoozed, have %s, %v", have, run.Status())
	}
}

// A task that is a nil pointer is refused, as by the client itself.
func TestNilTask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, task := range map[string]queue.Task{"nil": nil, "a nil pointer": (*ship)(nil)} {
		_, want := b.client.Enqueue(t.Context(), task, nil)
		_, err := b.telemetry.Enqueue(t.Context(), b.client, task, nil)
		results, _ := b.telemetry.EnqueueBatch(t.Context(), b.client, []queue.Job{{Task: task}})
		if want == nil || err == nil || err.Error() != want.Error() || results[0].Err == nil || results[0].Err.Error() != want.Error() {
			t.Errorf("%s: want %v, have %v, and in a batch %v", name, want, err, results[0].Err)
		}
	}
}

// A plain asynq program has spans of its runs, too.
func TestPlainAsynq(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mux := asynq.NewServeMux()
	mux.Use(b.telemetry.Middleware)
	mux.HandleFunc("plain", func(context.Context, *asynq.Task) error { return nil })
	server := asynq.NewServer(b.opts, asynq.Config{LogLevel: asynq.FatalLevel, TaskCheckInterval: 10 * time.Millisecond})
	expect.OK(t, server.Start(mux))
	t.Cleanup(server.Shutdown)
	client := asynq.NewClient(b.opts)
	t.Cleanup(func() { _ = client.Close() })
	ctx, caller := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "caller")
	info := expect.Value(client.Enqueue(asynq.NewTaskWithHeaders("plain", nil, b.telemetry.Headers(ctx))))(t)
	run := b.ended(t, "run plain", 1)[0]
	expect.That(t, len(run.Links()) == 1 && run.Links()[0].SpanContext.SpanID() == caller.SpanContext().SpanID(), "want a link to the caller, have %v", run.Links())
	for key, want := range map[string]string{
		"siding.queue": "default", "siding.task.id": info.ID, "siding.task.kind": "plain",
	} {
		if have := attr(run, key).AsString(); have != want {
			t.Errorf("%s: want %s, have %s", key, want, have)
		}
	}
}

// want checks metrics, which are as sum returns them.
func (b *bench) want(t *testing.T, want map[string]int64) {
	t.Helper()
	have := b.sum(t)
	for name, n := range want {
		expect.Equal(t, name, have[name], n)
	}
}

// sum returns the metrics by name: the sums of counters, and the counts of histograms.
func (b *bench) sum(t *testing.T) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	expect.OK(t, b.reader.Collect(t.Context(), &all))
	sums := make(map[string]int64)
	check := func(set attribute.Set) {
		class, _ := set.Value("siding.resource.class")
		expect.That(t, class.AsString() == "order" || class.AsString() == "none", "class: have %q", class.AsString())
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					state, _ := p.Attributes.Value("siding.task.state")
					sums[strings.TrimSuffix(m.Name+" "+state.AsString(), " ")] += p.Value
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					check(p.Attributes)
					sums[m.Name] += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					check(p.Attributes)
					sums[m.Name] += int64(p.Count)
				}
			}
		}
	}
	return sums
}
