//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// A crossing is a testbed with a client, on one Redis or on a Cluster.
type crossing struct {
	*testbed

	rdb       redis.UniversalClient
	client    *queue.Client
	inspector *asynq.Inspector
}

// onEachRedis runs a test on one Redis, and on a Cluster of two masters.
func onEachRedis(t *testing.T, run func(*testing.T, *crossing)) {
	t.Helper()
	for _, cluster := range []bool{false, true} {
		t.Run(fmt.Sprintf("cluster=%t", cluster), func(t *testing.T) {
			t.Parallel()
			c := &crossing{testbed: newTestbed(t)}
			c.rdb = c.redis.Client(t)
			if cluster {
				nodes := redistest.StartCluster(t, 2)
				c.env = append(c.env, "SIDING_REDIS_CLUSTER=true", "SIDING_REDIS_ADDRS="+strings.Join(nodes.Addrs, ","))
				c.rdb = nodes.Client(t)
			}
			c.env = append(c.env, "SIDING_LOCK_TTL=4s")
			c.client, c.inspector = newClient(t, c.rdb), asynq.NewInspectorFromRedisClient(c.rdb)
			run(t, c)
		})
	}
}

func (c *crossing) enqueue(t *testing.T, order string, p *queue.Policy) (id string) {
	t.Helper()
	receipt := expect.Value(c.client.Enqueue(t.Context(), tasks.AuditOrder{Order: order}, &queue.Options{Policy: p, Retention: time.Hour}))(t)
	return receipt.ID
}

func (c *crossing) await(t *testing.T, id string, states ...asynq.TaskState) (info *asynq.TaskInfo) {
	t.Helper()
	expect.Eventually(t, fmt.Sprintf("task %s to be %v", id, states), func() bool {
		var err error
		info, err = c.inspector.GetTaskInfo("default", id)
		return err == nil && slices.Contains(states, info.State)
	})
	return info
}

// awaitHolder waits until a task has the lock of an order.
func (c *crossing) awaitHolder(t *testing.T, order, id string) {
	t.Helper()
	expect.Eventually(t, "task "+id+" at work", func() bool {
		value := c.rdb.Get(t.Context(), "lock:order:"+order).Val()
		return strings.HasPrefix(value, "siding:") && strings.Contains(value, id)
	})
}

// The workers of a task with a policy are killed, one after the other, while another one waits for which a third was dropped or
// rejected. No task that has begun is ended by its policy,
// and all that were to run have run in the end.
func TestWorkersOfTasksWithPoliciesAreKilled(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	for _, test := range []struct {
		policy queue.Policy
		second *queue.Policy   // of the one that waits
		third  asynq.TaskState // what becomes of the third, 0 if it waits in place of the second
	}{
		{queue.Policy{OnBusy: queue.OnBusyCoalesce}, &queue.Policy{OnBusy: queue.OnBusyCoalesce}, asynq.TaskStateCompleted},
		{queue.Policy{OnBusy: queue.OnBusyReplace}, &queue.Policy{OnBusy: queue.OnBusyReplace}, 0},
		{queue.Policy{OnBusy: queue.OnBusyReject}, nil, asynq.TaskStateArchived},
		{queue.Policy{MaxWaiting: 1}, nil, asynq.TaskStateArchived},
	} {
		t.Run(string(test.policy.OnBusy)+strconv.Itoa(test.policy.MaxWaiting), func(t *testing.T) {
			t.Parallel()
			onEachRedis(t, func(t *testing.T, c *crossing) {
				t.Helper()
				a := c.startWorker(t, "--work=1h", "--concurrency=1")
				first := c.enqueue(t, "x", &test.policy)
				c.awaitHolder(t, "x", first)
				b := c.startWorker(t, "--work=1h", "--concurrency=2")
				next := c.enqueue(t, "x", test.second)
				c.await(t, next, asynq.TaskStateRetry)
				third := c.enqueue(t, "x", &test.policy)
				if test.third == 0 {
					expect.Eventually(t, "the second replaced", func() bool {
						_, err := c.inspector.GetTaskInfo("default", next)
						return err != nil
					})
					next = third
					c.await(t, next, asynq.TaskStateRetry)
				} else if info := c.await(t, third, test.third); test.third == asynq.TaskStateCompleted && string(info.Result) != "coalesced: "+next {
					t.Errorf("want the id of the one that waits, have %q", info.Result)
				}

				a.kill(t)
				c.awaitHolder(t, "x", first) // it has kept its place
				c.await(t, next, asynq.TaskStateRetry)
				b.kill(t)
				c.startWorker(t)
				for _, id := range []string{first, next} {
					if info := c.await(t, id, asynq.TaskStateCompleted, asynq.TaskStateArchived); info.State != asynq.TaskStateCompleted || len(info.Result) > 0 || info.Retried > 0 {
						t.Errorf("want it run, and no retry used, have %v, %q, %q", info.State, info.LastErr, info.Result)
					}
				}
			})
		})
	}
}

// All workers die while a task waits. It has waited for too long when others come. It is archived then, and
// does not run.
func TestMaxWaitWhileWorkersAreDead(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	onEachRedis(t, func(t *testing.T, c *crossing) {
		t.Helper()
		a := c.startWorker(t, "--work=1h", "--concurrency=1")
		first := c.enqueue(t, "x", nil)
		c.awaitHolder(t, "x", first)
		b := c.startWorker(t, "--work=1h")
		const longest = 2 * time.Second
		late := c.enqueue(t, "x", &queue.Policy{MaxWait: longest})
		c.await(t, late, asynq.TaskStateRetry)
		parked := time.Now()
		b.kill(t)
		a.kill(t)
		expect.Eventually(t, "its time over", func() bool { return time.Since(parked) > longest })
		c.startWorker(t)
		if info := c.await(t, late, asynq.TaskStateArchived, asynq.TaskStateCompleted); info.State != asynq.TaskStateArchived || !strings.HasPrefix(info.LastErr, "waited too long") {
			t.Errorf("want it archived as too late, have %v, %q", info.State, info.LastErr)
		}
		c.await(t, first, asynq.TaskStateCompleted)
	})
}

// Tasks wait for the time at which their rate allows them to start. One worker is killed and another is
// stopped meanwhile, and goes on later. All tasks run, and no more often than the rate allows.
func TestRateWhileWorkersDie(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	onEachRedis(t, func(t *testing.T, c *crossing) {
		t.Helper()
		const count, starts, period = 12, 2, 2 * time.Second
		c.env = append(c.env, "SIDING_LIMITS=order:x=10 2/2s 1000/1h") // the second keeps the log of all starts
		a, b := c.startWorker(t, "--work", "500ms"), c.startWorker(t, "--work", "500ms")
		var ids []string
		for range count {
			ids = append(ids, c.enqueue(t, "x", nil))
		}
		log := func() (at []int64) {
			for _, text := range c.rdb.LRange(t.Context(), "{lock:order:x}:starts", 0, -1).Val() {
				us := expect.Value(strconv.ParseInt(text, 10, 64))(t)
				at = append(at, us)
			}
			slices.Sort(at)
			return at
		}
		expect.Eventually(t, "the first started", func() bool { return len(log()) >= 2 })
		a.kill(t)
		expect.Eventually(t, "some more started", func() bool { return len(log()) >= 6 })
		b.Signal(t, syscall.SIGSTOP)
		c.env = append(c.env, "SIDING_LEDGER_DSN="+c.ledger+".third") // b may have been stopped in a write
		c.startWorker(t)
		expect.Eventually(t, "one started by the third worker", func() bool { return len(log()) >= 8 })
		b.Signal(t, syscall.SIGCONT)
		for _, id := range ids {
			c.await(t, id, asynq.TaskStateCompleted)
		}
		at := log()
		if len(at) < count {
			t.Fatalf("want %d starts in the log, have %d", count, len(at))
		}
		var late time.Duration
		for i := starts; i < len(at); i++ {
			took := time.Duration(at[i]-at[i-starts]) * time.Microsecond
			if took < period-time.Millisecond {
				t.Errorf("want at most %d starts in %v, have %d within %v", starts, period, starts+1, took)
			}
			late = max(late, took-period)
		}
		t.Logf("the latest start came %v after its time", late)
	})
}
