package redistest_test

import (
	"fmt"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
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
	verify.Long(t)
	c := redistest.StartCluster(t, 3)
	client := c.AddReplica(t, 0).Client(t)
	const key = "bar" // slot 5061, of the first third
	if err := c.Nodes[0].Client(t).Set(t.Context(), key, "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	c.Nodes[0].Kill()
	expect.Eventually(t, "a master that writes", func() bool { return client.Set(t.Context(), key, "w", 0).Err() == nil })
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	verify.Long(t)
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
	expect.Eventually(t, "nothing settled while the master is dead", func() bool {
		_, err := s.Settled(t.Context())
		return err != nil
	})
	expect.Eventually(t, "a master that writes", func() bool { return client.Set(t.Context(), "k", "w", 0).Err() == nil })
	expect.Eventually(t, "another master than the first", func() bool { return s.Master(t) != first })
	expect.Eventually(t, "the new master to be settled", func() bool {
		settled, err := s.Settled(t.Context())
		return err == nil && settled == s.Master(t)
	})
}
