package queue_test

import (
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/queue"
)

// A backlog on one resource is served in the order in which it was enqueued. With lock and task on
// different masters, workers that take tasks at the same time may come to the free lock in another
// order; among those that wait they have the right order again.
func TestBacklogIsServedInOrder(t *testing.T) {
	t.Parallel()
	const tasks, workers = 300, 20
	for name, tt := range map[string]struct {
		setup func(*testing.T) *bundle
		most  int // by how many places a task may be displaced
	}{
		"one Redis": {setup, 0},
		"Cluster":   {setupCluster, workers},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st := tt.setup(t), newStage(t)
			ids := b.enqueueJobs(t, 0, tasks-1)
			b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: workers}}, st.run)
			b.awaitGone(t, ids...)
			displaced, most := 0, 0
			for place, n := range st.order() {
				if by := max(place-n, n-place); by > 0 {
					displaced, most = displaced+1, max(most, by)
				}
			}
			t.Logf("%d of %d tasks displaced, by %d places at most", displaced, tasks, most)
			if most > tt.most {
				t.Errorf("want tasks displaced by %d places at most, have %d of them, by %d", tt.most, displaced, most)
			}
		})
	}
}
