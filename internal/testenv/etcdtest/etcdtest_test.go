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
	if etcdtest.Leader(t, servers) == first {
		t.Error("want the first server back as a follower, have it leading")
	}
}
