//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/pgtest"
	"github.com/sidingq/siding/queue"
)

const (
	fleetSize   = 5
	concurrency = 12
	// patience is how long the last tasks may take when the faults are over. asynq recovers a task
	// after a minute and a half, and retries it up to three quarters of a minute later.
	patience = 200 * time.Second
	// settle is for how long the feed goes on after the last fault; briefly, in a brief run.
	settle, briefly = 10 * time.Second, 2 * time.Second
	// moreGoroutines is how many more goroutines an old worker may have than a new one, for
	// connections and not for tasks.
	moreGoroutines = 20
	mostMemory     = 500 << 20 // bytes; the race detector takes its share
)

// A plan says what a run is to do.
type plan struct {
	seed     uint64
	scenario Scenario
	length   time.Duration // of the faults
	// brief leaves out the tasks without a resource, which come back late from a worker that died.
	brief bool
}

// A run is one fleet on one testbed.
type run struct {
	plan

	testbed  testbed
	ledger   *Ledger
	fleet    *fleet
	feed     *feed
	operator *operator
	baseline int // goroutines of a worker that is idle
	planned  map[Kind]int

	mu     sync.Mutex
	faults []Fault
}

func newRun(t *testing.T, p plan) *run {
	t.Helper()
	r := &run{plan: p, testbed: newTestbed(t, p.scenario), planned: make(map[Kind]int)}
	dsn := pgtest.DSN(t)
	r.ledger = expect.Value(OpenLedger(dsn))(t)
	t.Cleanup(func() { _ = r.ledger.Close() })
	expect.OK(t, r.ledger.Create(t.Context(), Resources()))
	addrs, master := r.testbed.reach()
	r.fleet = newFleet(t, Settings{
		Addrs: addrs, MasterName: master, Ledger: dsn, Concurrency: concurrency, RecoverAll: p.brief,
	}, fleetSize)
	r.feed = newFeed(p.seed, p.brief, r.testbed.client())
	r.operator = &operator{rdb: r.testbed.client(), inspector: r.feed.inspector, feed: r.feed}
	r.baseline = r.fleet.goroutines()
	return r
}

// do injects the faults, waits until all is done, and checks it.
func (r *run) do(t *testing.T) {
	t.Helper()
	start := Now()
	t.Logf("the clock of the findings is at %v", start)
	feeding, stop := context.WithCancel(t.Context())
	defer stop()
	var fed, lanes sync.WaitGroup
	fed.Go(func() { r.feed.run(feeding) })
	fed.Go(func() { r.operator.watch(feeding) })
	for _, faults := range Plan(r.seed, r.scenario, r.length) {
		for _, i := range faults {
			r.planned[i.Kind]++
		}
		lanes.Go(func() { r.inject(t, start, faults) })
	}
	lanes.Wait()
	after := settle
	if r.brief {
		after = briefly
	}
	_ = sleep.For(t.Context(), after)
	stop()
	fed.Wait()
	if err := errors.Join(r.operator.unpause(t.Context()), expect.Until(t.Context(), func() error { return r.operator.removeOverrides(t.Context()) })); err != nil {
		t.Error(err)
	}
	r.drain(t)
	r.measure(t)
	h := r.history(t)
	verdict := Check(h)
	for n, wrong := range verdict.Wrong {
		t.Error(wrong)
		if n < 5 {
			t.Log(r.fleet.said(wrong))
		}
	}
	if len(h.Faults) < 5 || len(h.Effects) < 200 || verdict.Watched == 0 {
		t.Errorf("want 5 faults, 200 effects, and tasks that wait while a worker has room, have %d, %d, and %v of that",
			len(h.Faults), len(h.Effects), verdict.Watched)
	}
	if r.length >= 5*time.Minute { // a shorter run may happen to have little of them
		r.wantPolicies(t, h, verdict)
	}
	t.Logf("seed %d, %s: %d tasks, %d runs, %d effects in %.0f s\n%s", r.seed, r.scenario,
		len(h.Tasks), len(h.Runs), len(h.Effects), (Now() - start).Seconds(), verdict.Summary(h))
}

// wantPolicies fails if the run had nothing to check of limits, rates, overrides, policies or priorities.
func (r *run) wantPolicies(t *testing.T, h *History, verdict *Verdict) {
	t.Helper()
	expect.That(t, verdict.Together >= 3 && verdict.Throttled >= 2, "want resources with limits held by 3 at a time, and rates that keep tasks away, have %d and %d", verdict.Together, verdict.Throttled)
	expect.That(t, verdict.Held != 0, "want tasks that failed and held their line")
	if r.scenario == Standalone && verdict.Overridden == 0 { // failovers leave few
		t.Error("want overrides of limits that all servers heard of")
	}
	kinds := make(map[queue.EventKind]bool)
	for _, e := range h.Ends {
		kinds[e.By] = true
	}
	expect.That(t, len(kinds) >= 4, "want tasks that were rejected, coalesced, replaced, and waited too long, have %v", kinds)
}

// inject injects the faults of a lane, one after another. A fault that is late, or that peace
// delays, leaves less time for the rest.
func (r *run) inject(t *testing.T, start time.Duration, faults []Injection) {
	t.Helper()
	putOff := time.Duration(0)
	for _, i := range faults {
		_ = sleep.For(t.Context(), start+i.At+putOff-Now())
		if peace := Peace(Now() - start); peace > 0 {
			putOff += peace
			_ = sleep.For(t.Context(), peace)
		}
		if t.Context().Err() != nil || t.Failed() || Now() > start+r.length {
			return
		}
		if err := r.injectOne(t.Context(), i, func(text string) {
			t.Logf("%6.1f s: %s%s", (Now() - start).Seconds(), i.Kind, text)
		}); err != nil {
			t.Errorf("%s: %v", i.Kind, err)
			return
		}
	}
}

func (r *run) injectOne(ctx context.Context, i Injection, log func(text string)) (err error) {
	inject := r.operator.inject
	switch i.Kind.trait().lane {
	case laneWorkers:
		inject = r.fleet.inject
	case laneRedis:
		inject = r.testbed.inject
		if err := r.testbed.ready(ctx); err != nil {
			return err
		}
	default:
	}
	f := Fault{Kind: i.Kind, Start: Now()}
	log("")
	err = inject(ctx, i, &f)
	f.End = Now()
	log(fmt.Sprintf(": over after %.1f s", (f.End - f.Start).Seconds()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f) // also one that went wrong: it may explain what is found
	return err
}

// drain waits until no task has yet to run.
func (r *run) drain(t *testing.T) {
	t.Helper()
	const glance = 200 * time.Millisecond
	for deadline := Now() + patience; ; _ = sleep.For(t.Context(), glance) {
		left, err := r.feed.in(r.feed.unfinished()...)
		if err == nil && len(left) == 0 {
			return
		}
		if Now() > deadline {
			t.Errorf("%d tasks are not done %v after the last fault (%v):\n%s", len(left), patience, err, r.dump(t))
			return
		}
	}
}

// dump shows the tasks that are left, the locks, and who waits for them.
func (r *run) dump(t *testing.T) string {
	t.Helper()
	const most = 20 // of each
	b := &strings.Builder{}
	for _, queue := range Queues {
		info, err := r.feed.inspector.GetQueueInfo(queue)
		fmt.Fprintf(b, "%s: %+v %v\n", queue, info, err)
		for _, list := range r.feed.unfinished() {
			tasks, err := list(queue, asynq.PageSize(most))
			if err != nil {
				fmt.Fprintln(b, err)
			}
			for _, task := range tasks {
				fmt.Fprintf(b, "  %s %s next %v: %s %s\n", task.State, task.ID, task.NextProcessAt, task.Payload, task.LastErr)
			}
		}
	}
	rdb := r.testbed.client()
	for _, name := range Resources() {
		fmt.Fprintf(b, "%s: %q, wait queue %v\n", name, rdb.Get(t.Context(), "lock:"+name).Val(),
			rdb.ZRangeWithScores(t.Context(), "{lock:"+name+"}:queue", 0, most).Val())
	}
	return b.String()
}

// measure compares what the workers use with what they used when they were new.
func (r *run) measure(t *testing.T) {
	t.Helper()
	err := expect.Until(t.Context(), func() error {
		if have := r.fleet.goroutines(); have > r.baseline+moreGoroutines {
			return fmt.Errorf("a worker has %d goroutines, a new one %d", have, r.baseline)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	memory := expect.Value(r.fleet.memory())(t)
	t.Logf("the largest worker has %d MB in memory", memory>>20)
	expect.That(t, memory <= mostMemory, "want at most %d MB", mostMemory>>20)
}
