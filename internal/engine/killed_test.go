package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
)

// TestKilledServers: servers are killed at work while many tasks wait for a few resources. Nobody is at work on a resource of
// another (the ledger looks), and each task runs.
func TestKilledServers(t *testing.T) {
	t.Parallel()
	const servers, work = 4, 10 * time.Millisecond
	tasks, kills, lasts := 600, 2, 3*time.Second
	if verify.All() {
		tasks, kills, lasts = 10_000, 6, 5*time.Second // longer than a busy machine has a server stand still
	}
	together := &batches{t: t, resources: 4, done: make(map[int]bool)}
	crowds := func(resources int) func(*fleet) {
		return func(f *fleet) {
			for range tasks / resources {
				f.crowd("q", 1, names(resources)...)
			}
		}
	}
	lines := func(how OnFailure, inOrder bool) func(*testing.T, []visit) {
		return func(t *testing.T, visits []visit) {
			t.Helper()
			failed, early, latest := 0, 0, make(map[string]string) // by resource
			for _, v := range visits {
				if v.ID < latest[v.Resource] {
					early++
				}
				latest[v.Resource] = max(latest[v.Resource], v.ID)
				if v.Retried > 0 {
					failed++
				}
			}
			expect.That(t, (early == 0) == inOrder, "%v: want all in order %t, have %d out of order", how, inOrder, early)
			expect.That(t, failed >= tasks/4, "want many retries, have %d", failed)
		}
	}
	for name, tt := range map[string]struct { //nolint:paralleltest // they would be too slow beside each other
		add    func(*fleet)
		change func(*Config)
		check  func(t *testing.T, visits []visit)
		long   bool // the simulation has such tasks, too
	}{
		"batches": {add: crowds(together.resources), change: together.join, check: func(t *testing.T, visits []visit) {
			t.Helper()
			expect.That(t, len(together.done) == tasks && len(visits) <= tasks/2, "want %d tasks done, in batches, have %d in %d", tasks, len(together.done), len(visits))
		}},
		// One task in five fails twice. With Overtake many are overtaken, so the test can tell.
		"held lines":      {add: crowds(50), change: failsTwice(Hold), check: lines(Hold, true), long: true},
		"overtaken lines": {add: crowds(50), change: failsTwice(Overtake), check: lines(Overtake, false), long: true},
		// Transfers between 50 accounts, and one task in twenty that needs 16 of them.
		"sets": {add: func(f *fleet) {
			r := rand.New(rand.NewPCG(verify.Seed(t), 0))
			for n := range tasks {
				size := 2
				if n%20 == 0 {
					size = 16
				}
				all := make([]string, size)
				for i, account := range r.Perm(50)[:size] {
					all[i] = fmt.Sprint("account:", account)
				}
				f.add("q", store.Join(all...))
			}
		}, change: func(c *Config) {
			c.Need = func(m *taskredis.Message, _ bool) (Need, error) { return Need{Resource: string(m.Payload)}, nil }
		}, long: true},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.long {
				verify.Long(t)
			}
			f, l := newFleet(t), newLedger(t)
			tt.add(f)
			start := func() *node { return f.node(l, always(work), slots(5), ttl(lasts), tt.change) }
			var nodes []*node
			for range servers {
				nodes = append(nodes, start())
			}
			for n := range kills {
				f.within(5*time.Minute, f.left("q", tasks-(n+1)*tasks/(kills+1)))
				f.eventually(func() error { // it is to die at work, if some is left by now
					nodes = append(nodes[1:], nodes[0])
					if !l.works(nodes[0]) && f.left("q", 0)() != nil {
						return errors.New("want a server at work")
					}
					return nil
				})
				nodes[0].kill()
				nodes = append(nodes[1:], start())
			}
			f.within(5*time.Minute, f.left("q", 0))
			visits, done := l.all(), make(map[string]bool)
			for _, v := range visits {
				done[v.ID] = true
			}
			if tt.check != nil {
				tt.check(t, visits)
			}
			expect.That(t, len(done) == tasks || name == "batches", "want %d tasks done, have %d", tasks, len(done))
		})
	}
}

// left returns an error while a queue has more than n tasks that are not done.
func (f *fleet) left(queue string, n int) func() error {
	return func() error {
		ctx := context.Background()
		pipe := f.rdb.TxPipeline()
		pending, active, retry := pipe.LLen(ctx, taskredis.PendingKey(queue)), pipe.LLen(ctx, taskredis.ActiveKey(queue)), pipe.ZCard(ctx, taskredis.RetryKey(queue))
		_, err := pipe.Exec(ctx)
		if have := int(pending.Val() + active.Val() + retry.Val()); err == nil && have > n {
			err = fmt.Errorf("want %d tasks left, have %d", n, have)
		}
		return err
	}
}

// works reports whether a handler of a node is at work.
func (l *ledger) works(n *node) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range l.at {
		if v.node == n {
			return true
		}
	}
	return false
}

// numberOf returns the number of a task of a crowd, from 0 on.
func numberOf(t *Task) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(t.ID, "task-"))
	return n - 1
}

// failsTwice has one task in five of 50 resources fail twice.
func failsTwice(how OnFailure) func(*Config) {
	return func(c *Config) {
		held(how, func(t *Task) error {
			if n := numberOf(t); (n+n/50)%5 == 0 && t.Retried < 2 {
				return errors.New("own failure")
			}
			return nil
		})(c)
		c.RetryDelay = func(int, error, *asynq.Task) time.Duration { return 20 * time.Millisecond }
	}
}

// The batches are of up to ten tasks of a resource. Nobody may be overtaken.
type batches struct {
	t         *testing.T
	resources int

	mu   sync.Mutex
	done map[int]bool // by number; those of a resource are as many numbers apart as there are resources
}

// join has a server work on batches.
func (b *batches) join(c *Config) {
	next := c.Handler
	c.Handler = func(ctx context.Context, task *Task) error {
		if task.First() != nil {
			return task.Join(numberOf(task))
		}
		batch := []int{numberOf(task)}
		for _, m := range task.More(9).Joined(ctx) {
			if n, ok := m.Item.(int); ok {
				batch = append(batch, n)
			}
		}
		expect.That(b.t, slices.IsSorted(batch), "%s: want them in their order, have %v", task.Resource, batch)
		b.mu.Lock()
		for n := batch[0] % b.resources; n < batch[0]; n += b.resources {
			expect.That(b.t, b.done[n], "%s: %d is overtaken by %v", task.Resource, n, batch)
		}
		b.mu.Unlock()
		if err := next(ctx, task); err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, n := range batch {
			b.done[n] = true
		}
		return nil
	}
}
