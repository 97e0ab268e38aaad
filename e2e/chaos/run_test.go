//go:build unix

package chaos_test

import (
	"context"
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
)

const (
	fleetSize   = 5
	concurrency = 12
	// patience is how long the last tasks may take when the faults are over: asynq
	// brings back what it has lost sight of after a minute and a half, and tries
	// again up to three quarters of a minute later.
	patience = 200 * time.Second
	// settle is for how long tasks go on to be enqueued after the last fault, and
	// briefly in a brief run.
	settle, briefly = 10 * time.Second, 2 * time.Second
	// moreGoroutines is how many more than a new worker an old one may have: those
	// of connections, not of tasks.
	moreGoroutines = 20
	mostMemory     = 500 << 20 // bytes; the race detector takes its share
)

// A plan says what a run is to do.
type plan struct {
	seed     uint64
	scenario chaos.Scenario
	length   time.Duration // of the faults
	// brief leaves out the tasks that only asynq brings back.
	brief bool
}

// A run is one fleet on one site.
type run struct {
	plan

	site     site
	ledger   *chaos.Ledger
	fleet    *fleet
	feed     *feed
	operator *operator
	baseline int // goroutines of a worker that is idle

	wrong []string // found before the check

	mu     sync.Mutex
	faults []chaos.Fault
}

func newRun(t *testing.T, p plan) *run {
	t.Helper()
	r := &run{plan: p, site: newSite(t, p.scenario)}
	dsn := pgtest.DSN(t)
	var err error
	if r.ledger, err = chaos.OpenLedger(dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.ledger.Close() })
	if err := r.ledger.Create(t.Context(), chaos.Resources()); err != nil {
		t.Fatal(err)
	}
	addrs, master := r.site.reach()
	r.fleet = newFleet(t, chaos.Settings{
		Addrs: addrs, MasterName: master, Ledger: dsn, Concurrency: concurrency, RecoverAll: p.brief,
	}, fleetSize)
	r.feed = newFeed(p.seed, p.brief, r.site.client())
	r.operator = &operator{rdb: r.site.client(), inspector: r.feed.inspector, feed: r.feed}
	r.baseline = r.fleet.goroutines()
	return r
}

// do injects the faults, waits until all is done, and checks it.
func (r *run) do(t *testing.T) *chaos.Report {
	t.Helper()
	start := chaos.Now()
	t.Logf("the clock of the findings is at %v", start)
	feeding, stop := context.WithCancel(t.Context())
	defer stop()
	var fed, lanes sync.WaitGroup
	fed.Go(func() { r.feed.run(feeding) })
	for _, faults := range chaos.Plan(r.seed, r.scenario, r.length) {
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
	if err := r.operator.unpause(t.Context()); err != nil {
		t.Error(err)
	}
	r.drain(t)
	report := &chaos.Report{Seed: r.seed, Scenario: r.scenario, Seconds: (chaos.Now() - start).Seconds()}
	r.measure(t, report)
	h := r.history(t)
	v := chaos.Check(h)
	report.Effects, report.Runs, report.Faults, report.Back = len(h.Effects), len(h.Runs), v.Faults, v.Back
	report.Wrong = append(r.wrong, v.Wrong...)
	for _, wrong := range report.Wrong[:min(len(report.Wrong), 5)] {
		t.Log(wrong, "\n", r.fleet.said(wrong))
	}
	for _, task := range h.Tasks {
		if !task.Unknown {
			report.Tasks++
		}
	}
	return report
}

// inject injects the faults of a lane, one after another. One that is late, or put off
// for the sake of peace, leaves less time for the rest.
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
	inject := func(f *chaos.Fault) error { return r.site.inject(ctx, i, f) }
	switch i.Kind {
	case chaos.KillWorker, chaos.StopWorker, chaos.HaltWorker, chaos.RollingStart:
		inject = func(f *chaos.Fault) error { return r.fleet.inject(ctx, i, f) }
	case chaos.PauseQueue, chaos.DeleteTasks, chaos.ArchiveTasks, chaos.DeleteLock:
		inject = func(f *chaos.Fault) error { return r.operator.inject(ctx, i, f) }
	default:
		if err := r.site.ready(ctx); err != nil {
			return err
		}
	}
	f := chaos.Fault{Kind: i.Kind, Start: chaos.Now()}
	log("")
	if err := inject(&f); err != nil {
		return err
	}
	f.End = chaos.Now()
	log(fmt.Sprintf(": over after %.1f s", (f.End - f.Start).Seconds()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
	return nil
}

// drain waits until no task is left that is to run.
func (r *run) drain(t *testing.T) {
	t.Helper()
	const glance = 200 * time.Millisecond
	for deadline := chaos.Now() + patience; ; _ = sleep.For(t.Context(), glance) {
		waiting, active, err := r.feed.unfinished()
		if err == nil && waiting+active == 0 {
			return
		}
		if chaos.Now() > deadline {
			r.wrong = append(r.wrong, fmt.Sprintf("%d tasks are not done %v after the last fault (%v):\n%s", waiting+active, patience, err, r.dump(t)))
			return
		}
	}
}

// dump shows the tasks that are left, and the lines and locks.
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
	rdb := r.site.client()
	for _, name := range chaos.Resources() {
		fmt.Fprintf(b, "%s: %q, line %v\n", name, rdb.Get(t.Context(), "lock:"+name).Val(),
			rdb.ZRangeWithScores(t.Context(), "{lock:"+name+"}:line", 0, most).Val())
	}
	return b.String()
}

// measure compares what the workers use with what they used when they were new.
func (r *run) measure(t *testing.T, report *chaos.Report) {
	t.Helper()
	err := poll.Until(t.Context(), func() error {
		if report.Goroutines = r.fleet.goroutines(); report.Goroutines > r.baseline+moreGoroutines {
			return fmt.Errorf("a worker has %d goroutines, a new one %d", report.Goroutines, r.baseline)
		}
		return nil
	})
	if err != nil {
		r.wrong = append(r.wrong, err.Error())
	}
	if report.Memory, err = r.fleet.memory(); err != nil {
		t.Fatal(err)
	}
	if report.Memory > mostMemory {
		r.wrong = append(r.wrong, fmt.Sprintf("a worker has %d MB in memory, want at most %d", report.Memory>>20, mostMemory>>20))
	}
}
