package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/tasks/orders/ordertest"
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

// One worker is told to end in the middle, and a new one takes its place. Another is killed by
// SIGKILL. No task is lost, and none is done twice.
func TestWorkersEndInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, open := range orderFiles(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "short" {
				verify.Long(t)
			}
			s, file := newTestbed(t), open(t)
			lines := countLines(t, file)
			const work = "--work=2ms" // keeps the workers busy until one is killed
			leaves, dies := s.startWorker(t, work), s.startWorker(t, work)
			enqueued := make(chan error, 1)
			go func() {
				_, err := s.enqueueOrders(t.Context(), file)
				enqueued <- err
			}()
			s.awaitProcessed(t, lines/8, limit(lines))
			leaves.terminate(t)
			survives := s.startWorker(t, work)
			s.awaitProcessed(t, lines/2, limit(lines))
			// A real file may be too short for the workers to be busy.
			long := lines >= ordertest.LeastLines
			held := s.killBusy(t, dies, long)
			for long && held == 0 { // it released its last lock as it died
				held = s.killBusy(t, s.startWorker(t, work), long)
			}
			t.Logf("killed after %d tasks, with %d locks", s.queueInfo(t).ProcessedTotal, held)
			expect.OK(t, <-enqueued)
			s.awaitEmpty(t, limit(lines))
			if report := s.checkLedger(t, file); !report.OK() {
				t.Errorf("the ledger does not agree with the file: %s", report)
			}
			survives.terminate(t)
			recovered := strings.Count(survives.Stderr.String(), "a task whose worker died or was cut off has its place in its line again")
			t.Logf("%d tasks were requeued", recovered)
			expect.That(t, held <= 0 || recovered != 0, "want the survivor to requeue tasks that held %d locks, have none requeued", held)
		})
	}
}

// killBusy kills a worker; with busy, not before the worker holds the lock of a task. held is how
// many such locks the dead worker holds. It had that many tasks.
func (s *testbed) killBusy(t *testing.T, w *worker, busy bool) (held int) {
	t.Helper()
	rdb := s.redis.Client(t)
	if busy {
		expect.Eventually(t, "the worker to hold a lock", func() bool { return s.locksOf(t, rdb, w) > 0 })
	}
	w.kill(t)
	return s.locksOf(t, rdb, w)
}

// locksOf returns how many locks a worker holds for its tasks.
func (*testbed) locksOf(t *testing.T, rdb *redis.Client, w *worker) (held int) {
	t.Helper()
	holder := fmt.Sprintf("(pid %d)", w.Cmd.Process.Pid)
	keys := rdb.Scan(t.Context(), 0, "lock:*", 1000).Iterator()
	var all []string
	for keys.Next(t.Context()) {
		all = append(all, keys.Val())
	}
	expect.OK(t, keys.Err())
	if len(all) == 0 {
		return 0
	}
	values := expect.Value(rdb.MGet(t.Context(), all...).Result())(t)
	for _, value := range values {
		text, _ := value.(string)
		if strings.Contains(text, holder) {
			held++
		}
	}
	return held
}
