package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/tasks"
)

// killedAgainBy is the README's promise for killed workers, with the default settings.
const killedAgainBy = 25 * time.Second

// The test kills workers by SIGKILL while each holds a lock for which another task waits. The killed tasks
// run again, the waiting ones go on after them, and no crash costs a retry.
func TestWorkersAreKilled(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	const kills = 10
	for name, electedDies := range map[string]bool{"among them the elected one": true, "but the elected one lives": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestbed(t)
			rdb := s.redis.Client(t)
			client := newClient(t, rdb)
			enqueue := func(order string) string {
				t.Helper()
				receipt := expect.Value(client.Enqueue(t.Context(), tasks.AuditOrder{Order: order}, nil))(t)
				return receipt.ID
			}
			holds := func(resource, id string) bool {
				return strings.Contains(rdb.Get(t.Context(), "lock:order:"+resource).Val(), id)
			}
			// elected returns the process that looks after the queues, as the name of its entry tells; "" for none.
			elected := func() string {
				keys := rdb.Keys(t.Context(), "siding:upkeep:*").Val()
				if len(keys) != 1 {
					return ""
				}
				return strings.Join(rdb.Keys(t.Context(), "asynq:servers:{*:"+rdb.Get(t.Context(), keys[0]).Val()+"}").Val(), " ")
			}
			const forever = "--work=1h"
			if !electedDies {
				s.startWorker(t, forever, "--concurrency=1")
				id := enqueue("busy")
				expect.Eventually(t, "the first worker busy and elected", func() bool { return holds("busy", id) && elected() != "" })
			}
			var victims []*worker
			var killed, waiting []string
			for n := range kills {
				victims = append(victims, s.startWorker(t, forever, "--concurrency=1"))
				order := fmt.Sprintf("crash-%d", n)
				killed = append(killed, enqueue(order))
				expect.Eventually(t, "a worker busy", func() bool { return holds(order, killed[n]) })
			}
			expect.Eventually(t, "one elected", func() bool { return elected() != "" })
			byPID := func(w *worker) bool { return strings.Contains(elected(), fmt.Sprintf(":%d:", w.Cmd.Process.Pid)) }
			expect.Need(t, slices.ContainsFunc(victims, byPID) == electedDies, "want a victim elected: %v, have %s", electedDies, elected())
			survivor := s.startWorker(t)
			for n := range kills {
				waiting = append(waiting, enqueue(fmt.Sprintf("crash-%d", n)))
			}
			expect.Eventually(t, "all waiting", func() bool { return s.queueInfo(t).Retry == kills })

			began := time.Now()
			for _, v := range victims {
				expect.OK(t, v.Cmd.Process.Kill())
			}
			again := s.timeGone(t, rdb, began, killed)
			next := s.timeGone(t, rdb, began, waiting)
			t.Logf("%d workers killed: the killed task ran after %s, the next waiter after %s", kills, span(again), span(next))
			if late := next[len(next)-1]; late > killedAgainBy {
				t.Errorf("want the next waiter to run within %v, have %v", killedAgainBy, late)
			}
			if late := again[len(again)-1]; late > killedAgainBy {
				t.Errorf("want the killed task to run within %v, have %v", killedAgainBy, late)
			}
			if info := s.queueInfo(t); info.FailedTotal != 0 || info.ProcessedTotal != 2*kills {
				t.Errorf("want %d tasks processed and none failed, have %d and %d", 2*kills, info.ProcessedTotal, info.FailedTotal)
			}
			counted := fmt.Sprintf("\nsiding_tasks_recovered_total{kind=%q} %d\n", tasks.AuditOrder{}.Kind(), kills)
			expect.Eventually(t, "all counted by their kind", func() bool { return strings.Contains(fetch(t, survivor.base(t)+"/metrics"), counted) })
		})
	}
}

// timeGone returns, sorted, the times from began to each task's success.
func (s *testbed) timeGone(t *testing.T, rdb redis.UniversalClient, began time.Time, ids []string) []time.Duration {
	t.Helper()
	var took []time.Duration
	left := slices.Clone(ids)
	expect.Eventually(t, "all tasks done", func() bool {
		left = slices.DeleteFunc(left, func(id string) bool {
			gone := rdb.Exists(t.Context(), "asynq:{default}:t:"+id).Val() == 0
			if gone {
				took = append(took, time.Since(began))
			}
			return gone
		})
		return len(left) == 0
	})
	slices.Sort(took)
	return took
}

func span(sorted []time.Duration) string {
	return fmt.Sprintf("%.1f to %.1f s (median %.1f)", sorted[0].Seconds(), sorted[len(sorted)-1].Seconds(), sorted[len(sorted)/2].Seconds())
}
