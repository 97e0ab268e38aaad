package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/verify"
)

// TestBatchesOfKilledServers: many tasks wait for a few resources, on servers that work on up to ten at once, and of which some are
// killed. Nobody is at work on a resource of another, nobody is overtaken, and each task runs.
func TestBatchesOfKilledServers(t *testing.T) {
	t.Parallel()
	const resources, most, servers, lasts = 4, 10, 3, 3 * time.Second
	tasks, kills := 600, 3
	if verify.All() {
		tasks, kills = 20_000, 12
	}
	f := newFleet(t)
	var mu sync.Mutex
	var begun, sizes int
	atWork, done := make(map[string]int), make(map[string]map[int]bool) // by resource
	for n := range tasks {
		resource := fmt.Sprint("r", n%resources)
		f.add("q", resource, func(m *taskredis.Message) { m.Payload = []byte(strconv.Itoa(n)) })
		done[resource] = make(map[int]bool)
	}
	number := func(m *taskredis.Message) int {
		n, err := strconv.Atoi(string(m.Payload))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	begin := func(resource string, batch []int) {
		mu.Lock()
		defer mu.Unlock()
		begun, sizes = begun+1, sizes+len(batch)
		if atWork[resource]++; atWork[resource] > 1 {
			t.Errorf("%d are at work on %s", atWork[resource], resource)
		}
		if !slices.IsSorted(batch) {
			t.Errorf("%s: want them in their order, have %v", resource, batch)
		}
		for n := int(resource[1] - '0'); n < batch[0]; n += resources { // whose tasks are those from its number on
			if !done[resource][n] {
				t.Errorf("%s: %d is overtaken by %v", resource, n, batch)
			}
		}
	}
	start := func() *node {
		n := &node{killed: make(chan struct{})}
		n.cfg = f.config(func(ctx context.Context, task *Task) error {
			if task.First() != nil {
				return task.Join(number(task.Message))
			}
			batch := []int{number(task.Message)}
			if task.Resource != "" {
				for _, m := range task.More(most - 1).Joined(ctx) {
					if n, ok := m.Item.(int); ok {
						batch = append(batch, n)
					}
				}
			}
			if n.dead() {
				return errKilled
			}
			begin(task.Resource, batch)
			timer := time.NewTimer(5 * time.Millisecond)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			case <-n.killed:
			}
			mu.Lock()
			defer mu.Unlock()
			atWork[task.Resource]--
			if n.dead() || ctx.Err() != nil {
				return errors.Join(errKilled, ctx.Err())
			}
			for _, one := range batch {
				done[task.Resource][one] = true
			}
			return nil
		})
		slots(3)(&n.cfg)
		ttl(lasts)(&n.cfg)
		n.Server = New(n.cfg)
		if err := n.Start(t.Context(), f.rules); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.shut(t) })
		return n
	}
	all := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, some := range done {
			n += len(some)
		}
		return n
	}
	var nodes []*node
	for range servers {
		nodes = append(nodes, start())
	}
	for n := range kills {
		f.within(5*time.Minute, func() error {
			if all() < (n+1)*tasks/(kills+1) {
				return errors.New("want more tasks done")
			}
			return nil
		})
		nodes[0].kill()
		nodes = append(nodes[1:], start())
	}
	f.within(5*time.Minute, func() error {
		left := f.rdb.Exists(t.Context(), taskredis.PendingKey("q"), taskredis.ActiveKey("q"), taskredis.RetryKey("q"))
		if left.Err() == nil && left.Val() > 0 {
			return errors.New("want all tasks done")
		}
		return left.Err()
	})
	if n := all(); n != tasks || sizes < 2*begun {
		t.Errorf("want %d tasks done, in batches, have %d, and %d in %d batches", tasks, n, sizes, begun)
	}
}
