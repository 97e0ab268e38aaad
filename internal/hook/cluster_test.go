package hook_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// Each queue lives on one node of a Cluster; the hook sits on the client of all.
func TestMovesInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	nodes := map[string]bool{}
	for i := range 30 {
		if len(nodes) == 3 {
			break
		}
		f := fleetOn(func() redis.UniversalClient { return cluster.Client(t) })
		f.queue = fmt.Sprintf("q%d-%s", i, uuid.NewString())
		node, err := f.rdb.(*redis.ClusterClient).MasterForKey(t.Context(), f.prefix()) //nolint:errcheck // made above
		must(t, err)
		if addr := node.Options().Addr; !nodes[addr] {
			nodes[addr] = true
			moves(t, f)
		}
	}
	if len(nodes) != 3 {
		t.Errorf("want queues on 3 nodes, have %v", nodes)
	}
}

// moves makes each move once.
func moves(t *testing.T, f *fleet) {
	t.Helper()
	w, other := f.worker(t), f.worker(t)
	f.wake(t, "nobody", 7, asynqredis.Gone)
	id := f.enqueue(t, asynq.MaxRetry(0), asynq.Unique(time.Minute), asynq.Retention(time.Hour))
	a := w.take(t, id)
	if err := f.rdb.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	f.wake(t, id, 7, asynqredis.Marked)
	a.park(t, 7)
	f.wake(t, id, 7, asynqredis.Woken)
	w.take(t, id).park(t, 8)
	f.wantIn(t, id, "retry")
	unique := f.read(t).task(id)["unique_key"]
	if ttl := f.rdb.PTTL(t.Context(), unique).Val(); ttl < time.Hour {
		t.Errorf("want its uniqueness to last for an hour or more, have %v", ttl)
	}
	f.others(t, 1)
	f.wake(t, id, 8, asynqredis.Woken)
	late := w.take(t, id)
	f.expire(t, id)
	f.recoverExpired(t, nil) // its last attempt: archived
	f.runNow(t, id)
	w.next(t).mustEnd(t, nil) // the other
	a = other.take(t, id)
	before := f.check(t)
	late.mustEnd(t, nil)
	f.unchanged(t, before)
	a.mustEnd(t, nil)
	f.wantIn(t, id, "completed")
}
