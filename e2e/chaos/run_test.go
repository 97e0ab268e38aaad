//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/e2e/chaos"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/pgtest"
	"github.com/sidingq/siding/internal/testenv/poll"
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
	scenario chaos.Scenario
	length   time.Duration // of the faults
	// brief leaves out the tasks without a resource, which come back late from a worker that died.
	brief bool
}

// A run is one fleet on one testbed.
type run struct {
	plan

	testbed  testbed
	ledger   *chaos.Ledger
	fleet    *fleet
	feed     *feed
	operator *operator
	baseline int // goroutines of a worker that is idle
	planned  map[chaos.Kind]int

	mu     sync.Mutex
	faults []chaos.Fault
}

func newRun(t *testing.T, p plan) *run {
	t.Helper()
	r := &run{plan: p, testbed: newTestbed(t, p.scenario), planned: make(map[chaos.Kind]int)}
	dsn := pgtest.DSN(t)
	var err error
	if r.ledger, err = chaos.OpenLedger(dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.ledger.Close() })
	if err := r.ledger.Create(t.Context(), chaos.Resources()); err != nil {
		t.Fatal(err)
	}
	addrs, master := r.testbed.reach()
	r.fleet = newFleet(t, chaos.Settings{
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
	start := chaos.Now()
	t.Logf("the clock of the findings is at %v", start)
	feeding, stop := context.WithCancel(t.Context())
	defer stop()
	var fed, lanes sync.WaitGroup
	fed.Go(func() { r.feed.run(feeding) })
	fed.Go(func() { r.operator.watch(feeding) })
	for _, faults := range chaos.Plan(r.seed, r.scenario, r.length) {
		for _, i := range faults {
			r.planned[i.Kind]++
		}
		lanes.Go(func() { r.inject(t, start, faults) })
	}
	lanes.Wait()
	if r.brief {
		_ = sleep.For(t.Context(), briefly)
	} else {
		_ = sleep.For(t.Context(), settle)
	}
	stop()
	fed.Wait()
	if err := errors.Join(r.operator.unpause(t.Context()), poll.Until(t.Context(), func() error { return r.operator.removeOverrides(t.Context()) })); err != nil {
		t.Error(err)
	}
	r.drain(t)
	r.measure(t)
	h := r.history(t)
	verdict := chaos.Check(h)
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
		len(h.Tasks), len(h.Runs), len(h.Effects), (chaos.Now() - start).Seconds(), verdict.Summary(h))
}

// wantPolicies fails if the run had nothing to check of limits, rates, overrides, policies or priorities.
func (r *run) wantPolicies(t *testing.T, h *chaos.History, verdict *chaos.Verdict) {
	t.Helper()
	if verdict.Together < 3 || verdict.Throttled < 2 {
		t.Errorf("want resources with limits held by 3 at a time, and rates that keep tasks away, have %d and %d", verdict.Together, verdict.Throttled)
	}
	if verdict.Waits[0] == 0 {
		t.Error("want a hundred tasks each of priority 0 and of the highest")
	}
	if verdict.Held == 0 {
		t.Error("want tasks that failed and held their line")
	}
	if r.scenario == chaos.Standalone && verdict.Overridden == 0 { // failovers leave few
		t.Error("want overrides of limits that all servers heard of")
	}
	kinds := make(map[queue.EventKind]bool)
	for _, e := range h.Ends {
		kinds[e.By] = true
	}
	if len(kinds) < 4 {
		t.Errorf("want tasks that were rejected, coalesced, replaced, and waited too long, have %v", kinds)
	}
}

// inject injects the faults of a lane, one after another. A fault that is late, or that peace
// delays, leaves less time for the rest.
func (r *run) inject(t *testing.T, start time.Duration, faults []chaos.Injection) {
	t.Helper()
	putOff := time.Duration(0)
	for _, i := range faults {
		_ = sleep.For(t.Context(), start+i.At+putOff-chaos.Now())
		if peace := chaos.Peace(chaos.Now() - start); peace > 0 {
			putOff += peace
			_ = sleep.For(t.Context(), peace)
		}
		if t.Context().Err() != nil || t.Failed() || chaos.Now() > start+r.length {
			return
		}
		if err := r.injectOne(t.Context(), i, func(text string) {
			t.Logf("%6.1f s: %s%s", (chaos.Now() - start).Seconds(), i.Kind, text)
		}); err != nil {
			t.Errorf("%s: %v", i.Kind, err)
			return
		}
	}
}

func (r *run) injectOne(ctx context.Context, i chaos.Injection, log func(text string)) (err error) {
	inject := func(f *chaos.Fault) error { return r.testbed.inject(ctx, i, f) }
	switch i.Kind {
	case chaos.KillWorker, chaos.StopWorker, chaos.HaltWorker, chaos.RollingStart:
		inject = func(f *chaos.Fault) error { return r.fleet.inject(ctx, i, f) }
	case chaos.PauseQueue, chaos.DeleteTasks, chaos.ArchiveTasks, chaos.DeleteLock, chaos.RevokeLease, chaos.OverrideLimit:
		inject = func(f *chaos.Fault) error { return r.operator.inject(ctx, i, f) }
	default:
		if err := r.testbed.ready(ctx); err != nil {
			return err
		}
	}
	f := chaos.Fault{Kind: i.Kind, Start: chaos.Now()}
	log("")
	err = inject(&f)
	f.End = chaos.Now()
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
	for deadline := chaos.Now() + patience; ; _ = sleep.For(t.Context(), glance) {
		waiting, active, err := r.feed.unfinished()
		if err == nil && waiting+active == 0 {
			return
		}
		if chaos.Now() > deadline {
			t.Errorf("%d tasks are not done %v after the last fault (%v):\n%s", waiting+active, patience, err, r.dump(t))
			return
		}
	}
}

// dump shows the tasks that are left, the locks, and who waits for them.
func (r *run) dump(t *testing.T) string {
	t.Helper()
	const most = 20 // of each
	b := &strings.Builder{}
	for _, queue := range chaos.Queues {
		info, err := r.feed.inspector.GetQueueInfo(queue)
		fmt.Fprintf(b, "%s: %+v %v\n", queue, info, err)
		for _, list := range []func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
			r.feed.inspector.ListPendingTasks, r.feed.inspector.ListActiveTasks, r.feed.inspector.ListRetryTasks, r.feed.inspector.ListScheduledTasks,
		} {
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
	for _, name := range chaos.Resources() {
		fmt.Fprintf(b, "%s: %q, wait queue %v\n", name, rdb.Get(t.Context(), "lock:"+name).Val(),
			rdb.ZRangeWithScores(t.Context(), "{lock:"+name+"}:queue", 0, most).Val())
	}
	return b.String()
}

// measure compares what the workers use with what they used when they were new.
func (r *run) measure(t *testing.T) {
	t.Helper()
	err := poll.Until(t.Context(), func() error {
		if have := r.fleet.goroutines(); have > r.baseline+moreGoroutines {
			return fmt.Errorf("a worker has %d goroutines, a new one %d", have, r.baseline)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	memory, err := r.fleet.memory()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the largest worker has %d MB in memory", memory>>20)
	if memory > mostMemory {
		t.Errorf("want at most %d MB", mostMemory>>20)
	}
}
