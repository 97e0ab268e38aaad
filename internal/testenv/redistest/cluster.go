package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// NodeTimeout is how long the others wait for a silent node of a [Cluster] before they replace it.
const NodeTimeout = 2 * time.Second

// slots is the number of hash slots of every Redis Cluster.
const slots = 16384

// A Cluster is a Redis Cluster whose slots are spread evenly over its masters.
type Cluster struct {
	// Nodes are its masters in the order of their slots, then the replicas in the order of
	// their addition.
	Nodes []*Server
	// Addrs are the addresses of the first masters, enough to find all nodes.
	Addrs []string
}

// StartCluster runs a Cluster of so many masters, 1 or more, until the test's cleanup. The call
// returns when every node sees all slots served, which takes about two seconds.
func StartCluster(tb testing.TB, masters int) *Cluster {
	tb.Helper()
	c := &Cluster{}
	for i := range masters {
		c.join(tb)
		first, last := i*slots/masters, (i+1)*slots/masters-1
		client := c.Nodes[i].Client(tb)
		// Nodes that meet with equal epochs must first agree who gets a new one.
		do(tb, client, "cluster", "set-config-epoch", i+1)
		do(tb, client, "cluster", "addslotsrange", first, last)
		c.Addrs = append(c.Addrs, c.Nodes[i].Addr)
	}
	c.meet(tb)
	return c
}

// AddReplica adds a replica of the master at that index of Nodes. The call returns when the replica
// is in step and known to all nodes. If its master is killed, the replica takes over after some
// seconds, given at least two other masters.
func (c *Cluster) AddReplica(tb testing.TB, master int) *Server {
	tb.Helper()
	s := c.join(tb)
	c.meet(tb)
	client := s.Client(tb)
	do(tb, client, "cluster", "replicate", c.Nodes[master].Client(tb).ClusterMyID(tb.Context()).Val())
	await(tb, s, func(ctx context.Context) error {
		return wantLine(client.Info(ctx, "replication"), "master_link_status:up")
	})
	// Clients ask any node who serves a slot.
	for _, node := range c.Nodes {
		client := node.Client(tb)
		await(tb, node, func(ctx context.Context) error {
			return wantLine(client.ClusterNodes(ctx), s.Addr+"@", "slave")
		})
	}
	return s
}

// Client returns a new client of the Cluster, closed at the test's cleanup. Calls end with their
// context's deadline (ContextTimeoutEnabled). As by go-redis's defaults, it may learn of a failover
// a minute late.
func (c *Cluster) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                 slices.Clone(c.Addrs), // go-redis appends to it
		ContextTimeoutEnabled: true,
	})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// join starts a node that knows no other yet.
func (c *Cluster) join(tb testing.TB) *Server {
	tb.Helper()
	s := Start(tb, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1",
		"--cluster-node-timeout", strconv.FormatInt(NodeTimeout.Milliseconds(), 10))
	c.Nodes = append(c.Nodes, s)
	return s
}

// meet makes the nodes known to each other and waits until all see all slots.
func (c *Cluster) meet(tb testing.TB) {
	tb.Helper()
	first := c.Nodes[0].Client(tb)
	for _, node := range c.Nodes[1:] {
		host, port, err := net.SplitHostPort(node.Addr)
		if err != nil {
			tb.Fatal(err)
		}
		do(tb, first, "cluster", "meet", host, port)
	}
	for _, node := range c.Nodes {
		client := node.Client(tb)
		await(tb, node, func(ctx context.Context) error {
			info := client.ClusterInfo(ctx)
			for _, want := range []string{
				"cluster_state:ok",
				"cluster_slots_ok:" + strconv.Itoa(slots),
				"cluster_known_nodes:" + strconv.Itoa(len(c.Nodes)),
			} {
				if err := wantLine(info, want); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// do sends a command that must succeed.
func do(tb testing.TB, client *redis.Client, args ...any) {
	tb.Helper()
	if err := client.Do(tb.Context(), args...).Err(); err != nil {
		tb.Fatalf("%s: %v: %v", client.Options().Addr, args, err)
	}
}

// await waits until check, which asks the server, returns nil.
func await(tb testing.TB, s *Server, check func(context.Context) error) {
	tb.Helper()
	if err := s.Await(tb.Context(), check); err != nil {
		tb.Fatal(err)
	}
}

// wantLine returns an error unless a line of the answer holds all of parts.
func wantLine(answer *redis.StringCmd, parts ...string) error {
	text, err := answer.Result()
	if err != nil {
		return err
	}
lines:
	for line := range strings.Lines(text) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		return nil
	}
	return fmt.Errorf("want a line with %q, have:\n%s", parts, text)
}
