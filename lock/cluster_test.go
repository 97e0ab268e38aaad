package lock_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

// TestCluster lives whole lives on three masters: a script whose keys lie in
// two slots is refused there.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	client := cluster.Client(t)
	ctx := t.Context()
	for i := range 30 {
		s := setUp(t, client, lock.Config{}).on(fmt.Sprintf("order:%d", i))
		slot := client.ClusterKeySlot(ctx, s.key).Val()
		for _, companion := range []string{s.fence, s.row} {
			if have := client.ClusterKeySlot(ctx, companion).Val(); have != slot {
				t.Errorf("want %s in slot %d, have %d", companion, slot, have)
			}
		}

		held := s.take("")
		if err := held.Renew(ctx); err != nil {
			t.Fatal(err)
		}
		s.join(names(3)...)
		s.handOff(held, "w1")
		s.leave("w1")
		s.wantNext("w2")
		second := s.take("w2")
		if second.Fence() <= held.Fence() {
			t.Errorf("want a fence above %d, have %d", held.Fence(), second.Fence())
		}
		if err := held.Renew(ctx); !errors.Is(err, lock.ErrLost) {
			t.Errorf("want ErrLost, have %v", err)
		}
		if n := client.Exists(ctx, s.key).Val() + client.Exists(ctx, s.fence).Val() + client.Exists(ctx, s.row).Val(); n != 3 {
			t.Errorf("want three keys of these names, have %d", n)
		}
		s.leave("w3")
		s.release(second)
	}
	for _, node := range cluster.Nodes {
		if n := node.Client(t).DBSize(ctx).Val(); n == 0 {
			t.Errorf("want locks on all masters, have none on %s", node.Addr)
		}
	}
}
