//go:build unix

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// cluster is one of three masters with a replica each.
type cluster struct {
	*promotions

	rdb    *redis.ClusterClient
	shards [][2]*redistest.Server
	nodes  map[*redistest.Server]*redis.Client
	addrs  []string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	const masters = 3
	nodes := redistest.StartCluster(t, masters)
	c := &cluster{nodes: make(map[*redistest.Server]*redis.Client)}
	c.rdb = queue.Redis(&redis.UniversalOptions{Addrs: nodes.Addrs}).(*redis.ClusterClient) //nolint:errcheck,forcetypeassert // it has several addresses
	t.Cleanup(func() { _ = c.rdb.Close() })
	for i := range masters {
		c.shards = append(c.shards, [2]*redistest.Server{nodes.Nodes[i], nodes.AddReplica(t, i)})
	}
	for _, node := range nodes.Nodes {
		c.nodes[node] = node.Client(t)
		c.addrs = append(c.addrs, node.Addr)
	}
	c.promotions = watchRoles(t, c.nodes)
	return c
}

func (c *cluster) reach() (addrs []string, masterName string) { return c.addrs, "" }
func (c *cluster) client() redis.UniversalClient              { return c.rdb }

func (c *cluster) ready(ctx context.Context) error {
	for _, shard := range c.shards {
		a, b := c.nodes[shard[0]], c.nodes[shard[1]]
		err := expect.Until(ctx, func() error {
			if inStep(ctx, a, b) == nil {
				return nil
			}
			return inStep(ctx, b, a)
		})
		if err != nil {
			return err
		}
	}
	return expect.Until(ctx, func() error { return c.agree(ctx) })
}

// agree returns an error unless all nodes have the same view of who serves what. A former master that
// was stopped follows its heir at once. But for up to a second, it may take the heir for one without
// slots. If the heir died then, the former master would not stand for election.
func (c *cluster) agree(ctx context.Context) error {
	first := ""
	for server, node := range c.nodes {
		view, err := viewOf(ctx, node)
		if err != nil {
			return err
		}
		if first = cmp.Or(first, view); view != first {
			return fmt.Errorf("%s: its view of the Cluster is not that of the others:\n%s\n%s", server.Addr, view, first)
		}
	}
	return nil
}

// viewOf returns who serves what, by a node's word; or an error if that takes a node for failing.
func viewOf(ctx context.Context, node *redis.Client) (string, error) {
	const id, flags, master, slots = 0, 2, 3, 8 // fields of CLUSTER NODES
	nodes, err := node.ClusterNodes(ctx).Result()
	if err != nil {
		return "", err
	}
	var view []string
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		role := strings.TrimSuffix(strings.TrimPrefix(f[flags], "myself,"), ",nofailover")
		if role != "master" && role != "slave" {
			return "", fmt.Errorf("%s: takes %s for %s", node.Options().Addr, f[id], role)
		}
		view = append(view, fmt.Sprint(f[id], role, f[master], f[min(slots, len(f)):]))
	}
	slices.Sort(view)
	return strings.Join(view, "\n"), nil
}

func (c *cluster) inject(ctx context.Context, i Injection, fault *Fault) error {
	switch i.Kind {
	case FlushScripts:
		var mu sync.Mutex // masters are asked side by side
		return c.rdb.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
			var one Fault
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				fault.Hits += one.Hits
			}()
			return flushScripts(ctx, rdb, &one)
		})
	case Failover, StopMaster:
		shard := c.shards[i.Pick%uint64(len(c.shards))]
		old, heir := shard[0], shard[1]
		if isMaster(ctx, c.nodes[heir]) == nil {
			old, heir = heir, old
		}
		halt(old, i.Kind)
		if err := c.replaced(ctx, c.nodes[heir]); err != nil {
			return err
		}
		if err := resume(ctx, old, i.Kind); err != nil {
			return err
		}
		return c.ready(ctx) // a master that was stopped keeps its role until the others tell it
	default:
		return fmt.Errorf("%s: not here", i.Kind)
	}
}

// replaced waits until the heir is a master. Once in some hundred failovers a replica does not stand for
// election, and the Cluster stays down. Then replaced does what an operator would do.
func (c *cluster) replaced(ctx context.Context, heir *redis.Client) error {
	const patience = 30 * time.Second
	promoted := func() error { return isMaster(ctx, heir) }
	election, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if expect.Until(election, promoted) == nil {
		return nil
	}
	if err := heir.Do(ctx, "cluster", "failover", "takeover").Err(); err != nil {
		return err
	}
	return expect.Until(ctx, promoted)
}
