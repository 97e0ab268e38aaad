package e2e

import (
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
)

// limit bounds the time that the tasks of so many lines take.
func limit(lines int) time.Duration { return 2*time.Minute + time.Duration(lines)*20*time.Millisecond }

// Two workers run the tasks of an order file. Every task succeeds, and the ledger agrees with the
// file.
func TestOrderFileThroughTwoWorkers(t *testing.T) {
	t.Parallel()
	for name, open := range orderFiles(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "short" {
				verify.Long(t)
			}
			s, file := newTestbed(t), open(t)
			workers := []*worker{s.startWorker(t), s.startWorker(t)}
			begin := time.Now()
			if out, err := s.enqueueOrders(t.Context(), file); err != nil {
				t.Fatal(err)
			} else {
				t.Logf("enqueued in %.1f s: %s", time.Since(begin).Seconds(), out)
			}
			s.awaitEmpty(t, limit(countLines(t, file)))
			took := time.Since(begin)
			processed := s.queueInfo(t).ProcessedTotal
			for i, w := range workers {
				t.Logf("worker %d: %+v", i+1, w.terminate(t))
			}
			report := s.checkLedger(t, file)
			t.Logf("%d tasks in %.1f s, %.0f/s; %s", processed, took.Seconds(), float64(processed)/took.Seconds(), report)
			expect.That(t, report.OK(), "the ledger does not agree with the file")
			expect.That(t, processed == report.Effects, "tasks processed: want one for each of %d effects, have %d", report.Effects, processed)
			if out, err := s.enqueueOrders(t.Context(), file); err != nil {
				t.Error(err)
			} else if n := s.queueInfo(t).Pending; n != 0 {
				t.Errorf("enqueued again: want nothing new, have %d pending: %s", n, out)
			}
		})
	}
}
