package etcdtest_test

import (
	"testing"

	"github.com/sidingq/siding/internal/testenv/etcdtest"
)

// TestLeaderIsReplaced: of three servers one leads, and after its death another.
func TestLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	servers := etcdtest.StartCluster(t, 3)
	first := etcdtest.Leader(t, servers)
	first.Kill()
	second := etcdtest.Leader(t, servers)
	if second == first {
		t.Error("want another leader, have the dead one")
	}
	first.Restart(t)
	if leads, err := first.IsLeader(t.Context()); err != nil || leads {
		t.Errorf("want it back as a follower, have it leading (%t), %v", leads, err)
	}
}
