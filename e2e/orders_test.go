package e2e

import (
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/poll"
)

// Two workers of 20 on a real order file: every task succeeds, and the ledger is
// what the file says.
func TestOrderFileThroughTwoWorkers(t *testing.T) {
	t.Parallel()
	s, file := newSite(t), orderFile(t)
	workers := []*worker{s.startWorker(t), s.startWorker(t)}
	begin := time.Now()
	if out, err := s.enqueue(t.Context(), "orders", file, "--json"); err != nil {
		t.Fatal(err)
	} else {
		t.Logf("enqueued in %.1f s: %s", time.Since(begin).Seconds(), out)
	}
	if info := s.awaitEmpty(t, 5*time.Minute); info.FailedTotal != 0 {
		t.Errorf("failed: want none, have %d", info.FailedTotal)
	}
	took := time.Since(begin)
	processed := s.queueInfo(t).ProcessedTotal
	for i, w := range workers {
		t.Logf("worker %d: %+v", i+1, w.terminate(t))
	}
	report := s.checkLedger(t, file)
	t.Logf("%d tasks in %.1f s, %.0f/s; %s", processed, took.Seconds(), float64(processed)/took.Seconds(), report)
	if !report.OK() {
		t.Error("the ledger does not agree with the file")
	}
	if processed != report.Effects {
		t.Errorf("tasks processed: want one for each of %d effects, have %d", report.Effects, processed)
	}
	if out, err := s.enqueue(t.Context(), "orders", file, "--json"); err != nil {
		t.Error(err)
	} else if n := s.queueInfo(t).Pending; n != 0 {
		t.Errorf("enqueued again: want nothing new, have %d pending: %s", n, out)
	}
}

// One worker is told to end in the middle and a new one takes its place;
// another is killed. Nothing is lost and nothing is done twice.
func TestWorkersEndInTheMiddle(t *testing.T) {
	t.Parallel()
	s, file := newSite(t), orderFile(t)
	leaves, dies := s.startWorker(t), s.startWorker(t)
	enqueued := make(chan error, 1)
	go func() {
		_, err := s.enqueue(t.Context(), "orders", file, "--json")
		enqueued <- err
	}()
	processed := func(n int) func() bool {
		return func() bool { return s.queueInfo(t).ProcessedTotal >= n }
	}
	poll.Eventually(t, "2,000 tasks done", processed(2000))
	leaves.terminate(t)
	s.startWorker(t)
	poll.Eventually(t, "6,000 tasks done", processed(6000))
	if err := dies.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-enqueued; err != nil {
		t.Fatal(err)
	}
	// asynq brings the tasks of the killed one back after up to 91 s.
	s.awaitEmpty(t, 6*time.Minute)
	if report := s.checkLedger(t, file); !report.OK() {
		t.Errorf("the ledger does not agree with the file: %s", report)
	}
}
