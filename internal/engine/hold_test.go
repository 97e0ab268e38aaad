package engine

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/verify"
)

// TestHeldLinesOfKilledServers: one task in five fails twice, and servers are killed. With Hold, all tasks of a resource run in
// their order. With Overtake, many do not, so the test can tell.
func TestHeldLinesOfKilledServers(t *testing.T) {
	t.Parallel()
	tasks, resources, kills := 2000, 20, 2
	if verify.All() {
		tasks, resources, kills = 100_000, 100, 8
	}
	const servers, rest, lasts = 4, 20 * time.Millisecond, 5 * time.Second      // longer than a busy machine has a server stand still
	for how, inOrder := range map[OnFailure]bool{Hold: true, Overtake: false} { //nolint:paralleltest // as each logs its speed
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			f, l := newFleet(t), newLedger(t)
			for range tasks / resources {
				f.crowd("q", 1, names(resources)...)
			}
			var begun atomic.Int64
			work := func(*Task) time.Duration { begun.Add(1); return 0 }
			fails := func(t *Task) error {
				if n, _ := strconv.Atoi(strings.TrimPrefix(t.ID, "task-")); (n+n/resources)%5 == 0 && t.Retried < 2 {
					return errors.New("own failure")
				}
				return nil
			}
			again := func(c *Config) { c.RetryDelay = func(int, error, *asynq.Task) time.Duration { return rest } }
			start := func() *node { return f.node(l, work, slots(25), ttl(lasts), held(how, fails), again) }
			began := time.Now()
			var nodes []*node
			for range servers {
				nodes = append(nodes, start())
			}
			for n := range kills {
				f.within(5*time.Minute, func() error {
					if want := int64((n + 1) * tasks / (kills + 1)); begun.Load() < want {
						return fmt.Errorf("want %d attempts, have %d", want, begun.Load())
					}
					return nil
				})
				nodes[n].kill()
				nodes = append(nodes, start())
			}
			f.within(5*time.Minute, func() error {
				left := f.rdb.Exists(t.Context(), taskredis.PendingKey("q"), taskredis.ActiveKey("q"), taskredis.RetryKey("q"))
				if left.Err() == nil && left.Val() > 0 {
					return errors.New("want all tasks done")
				}
				return left.Err()
			})
			took, early, failed := time.Since(began), 0, 0
			latest := make(map[string]string) // by resource
			done := make(map[string]bool)
			for _, v := range l.all() {
				if v.ID < latest[v.Resource] {
					early++
				}
				latest[v.Resource] = max(latest[v.Resource], v.ID)
				done[v.ID] = true
				if v.Retried > 0 {
					failed++
				}
			}
			t.Logf("%d tasks on %d resources, %d retries, %d servers killed: %d out of order, %.0f tasks/s", tasks, resources, failed, kills, early, float64(tasks)/took.Seconds())
			if (early == 0) != inOrder || len(done) != tasks || failed < tasks/4 {
				t.Errorf("want all %d tasks done, in order: %v; have %d, %d out of order", tasks, inOrder, len(done), early)
			}
		})
	}
}
