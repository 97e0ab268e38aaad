package redistest

import (
	"net"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
)

// MoveHalf begins to move the slot of the first key to another master, and moves these keys.
// Redis answers a script on keys of both masters with TRYAGAIN until finish has moved the rest.
func (c *Cluster) MoveHalf(tb testing.TB, keys ...string) (finish func()) {
	tb.Helper()
	client := c.Client(tb)
	slot := int(client.ClusterKeySlot(tb.Context(), keys[0]).Val())
	owner, err := client.MasterForKey(tb.Context(), keys[0])
	if err != nil {
		tb.Fatal(err)
	}
	from := owner.Options().Addr
	to := c.Nodes[slices.IndexFunc(c.Nodes, func(s *Server) bool { return s.Addr != from })]
	source, target := c.Nodes[slices.IndexFunc(c.Nodes, func(s *Server) bool { return s.Addr == from })].Client(tb), to.Client(tb)
	id := func(node *redis.Client) string { return node.Do(tb.Context(), "cluster", "myid").Val().(string) } //nolint:errcheck,forcetypeassert // it is
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	move := func(keys []string) {
		for _, key := range keys {
			do(tb, source, "migrate", host, port, key, 0, 5000)
		}
	}
	do(tb, target, "cluster", "setslot", slot, "importing", id(source))
	do(tb, source, "cluster", "setslot", slot, "migrating", id(target))
	move(keys)
	return func() {
		move(source.ClusterGetKeysInSlot(tb.Context(), slot, 1000).Val())
		do(tb, target, "cluster", "setslot", slot, "node", id(target))
		do(tb, source, "cluster", "setslot", slot, "node", id(target))
	}
}
