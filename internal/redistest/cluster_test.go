package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/redistest"
)

func TestClusterServesAllSlots(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	client := c.Client(t)
	ctx := t.Context()
	for i := range 300 {
		if err := client.Set(ctx, fmt.Sprint("key", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range c.Nodes {
		if n := node.Client(t).DBSize(ctx).Val(); n < 50 {
			t.Errorf("want about 100 keys at each node, have %d at %s", n, node.Addr)
		}
	}
}

func TestClusterOfOne(t *testing.T) {
	t.Parallel()
	if err := redistest.StartCluster(t, 1).Client(t).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
}

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	c.AddReplica(t, 0)
	client := c.Client(t)
	const key = "bar" // slot 5061, of the first third
	if err := c.Nodes[0].Client(t).Set(t.Context(), key, "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	c.Nodes[0].Kill()
	eventually(t, func(ctx context.Context) error { return client.Set(ctx, key, "w", 0).Err() })
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	client := s.Client(t)
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	first := s.Master(t)
	if first != s.Servers[0] {
		t.Errorf("want the first server as the master, have %s", first.Addr)
	}
	if settled, err := s.Settled(t.Context()); settled != first || err != nil {
		t.Errorf("want the first server as the settled master, have %v, %v", settled, err)
	}
	first.Kill()
	eventually(t, func(ctx context.Context) error {
		if _, err := s.Settled(ctx); err == nil {
			return errors.New("want nothing settled while the master is dead")
		}
		return nil
	})
	eventually(t, func(ctx context.Context) error { return client.Set(ctx, "k", "w", 0).Err() })
	eventually(t, func(context.Context) error {
		if s.Master(t) == first { //nolint:contextcheck // ends with the test's own
			return errors.New("want another master than the first")
		}
		return nil
	})
	eventually(t, func(ctx context.Context) error {
		settled, err := s.Settled(ctx)
		if err == nil && settled != s.Master(t) { //nolint:contextcheck // ends with the test's own
			err = fmt.Errorf("want the new master to be settled, have %s", settled.Addr)
		}
		return err
	})
}

// eventually waits until check succeeds.
func eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("not in time: %v", err)
		}
	}
}
