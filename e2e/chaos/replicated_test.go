//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/e2e/chaos"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/queue"
)

// sentinel is a master with two replicas and three sentinels.
type sentinel struct {
	*redistest.Sentinel
	*promotions

	rdb   redis.UniversalClient
	nodes map[*redistest.Server]*redis.Client
}

func newSentinel(t *testing.T) *sentinel {
	t.Helper()
	s := &sentinel{Sentinel: redistest.StartSentinel(t), nodes: make(map[*redistest.Server]*redis.Client)}
	s.rdb = s.Client(t)
	for _, node := range s.Servers {
		s.nodes[node] = node.Client(t)
	}
	s.promotions = watchRoles(t, s.nodes)
	return s
}

func (s *sentinel) reach() (addrs []string, masterName string) { return s.Addrs, s.MasterName }
func (s *sentinel) client() redis.UniversalClient              { return s.rdb }

func (s *sentinel) ready(ctx context.Context) error {
	// After many failovers in a row a replica may follow a former master. The sentinels are slow
	// to notice.
	const patience = 3 * time.Second
	told := chaos.Now()
	return poll.Until(ctx, func() error {
		// Telling a server what to follow while the sentinels make it the master would have two
		// servers follow each other.
		master, err := s.Settled(ctx)
		if err != nil {
			return err
		}
		if err := says(ctx, s.nodes[master], "role:master"); err != nil {
			return err
		}
		err = s.follow(ctx, master)
		if err != nil && chaos.Now()-told > patience {
			told = chaos.Now()
			err = errors.Join(err, s.tell(ctx, master))
		}
		return err
	})
}

// follow returns an error unless the others are in step with the master.
func (s *sentinel) follow(ctx context.Context, master *redistest.Server) error {
	for _, node := range s.Servers {
		if node == master {
			continue
		}
		if err := inStep(ctx, s.nodes[master], s.nodes[node]); err != nil {
			return err
		}
	}
	return nil
}

// tell has the others follow the master. Those that do so already are left alone.
func (s *sentinel) tell(ctx context.Context, master *redistest.Server) error {
	host, port, _ := strings.Cut(master.Addr, ":")
	var errs []error
	for _, node := range s.Servers {
		if node != master {
			errs = append(errs, s.nodes[node].ReplicaOf(ctx, host, port).Err())
		}
	}
	return errors.Join(errs...)
}

func (s *sentinel) inject(ctx context.Context, i chaos.Injection, fault *chaos.Fault) error {
	old, err := s.FindMaster(ctx)
	if err != nil {
		return err
	}
	switch i.Kind {
	case chaos.FlushScripts:
		return flushScripts(ctx, s.nodes[old], fault)
	case chaos.Failover, chaos.StopMaster:
		return s.replace(ctx, old, i.Kind)
	default:
		return fmt.Errorf("%s: not here", i.Kind)
	}
}

// replace has the sentinels replace the master, which comes back as a replica.
func (s *sentinel) replace(ctx context.Context, old *redistest.Server, how chaos.Kind) error {
	halt(old, how)
	err := poll.Until(ctx, func() error {
		now, err := s.FindMaster(ctx)
		if err != nil {
			return err
		}
		if now == old {
			return errors.New("no new master")
		}
		return says(ctx, s.nodes[now], "role:master")
	})
	if err == nil {
		err = resume(ctx, old, how)
	}
	if err != nil {
		return err
	}
	// A master that was stopped keeps its role until the sentinels tell it, some seconds later.
	return s.ready(ctx)
}

// halt takes a master away.
func halt(master *redistest.Server, how chaos.Kind) {
	if how == chaos.StopMaster {
		master.Pause()
	} else {
		master.Kill()
	}
}

// resume brings it back once it has been replaced.
func resume(ctx context.Context, old *redistest.Server, how chaos.Kind) error {
	if how == chaos.StopMaster {
		old.Resume()
		return nil
	}
	return old.Revive(ctx)
}

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
		err := poll.Until(ctx, func() error {
			if inStep(ctx, a, b) == nil {
				return nil
			}
			return inStep(ctx, b, a)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) inject(ctx context.Context, i chaos.Injection, fault *chaos.Fault) error {
	switch i.Kind {
	case chaos.FlushScripts:
		var mu sync.Mutex // masters are asked side by side
		return c.rdb.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
			var one chaos.Fault
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				fault.Hits += one.Hits
			}()
			return flushScripts(ctx, rdb, &one)
		})
	case chaos.Failover, chaos.StopMaster:
		shard := c.shards[i.Pick%uint64(len(c.shards))]
		old, heir := shard[0], shard[1]
		if says(ctx, c.nodes[heir], "role:master") == nil {
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
	promoted := func() error { return says(ctx, heir, "role:master") }
	election, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if poll.Until(election, promoted) == nil {
		return nil
	}
	if err := heir.Do(ctx, "cluster", "failover", "takeover").Err(); err != nil {
		return err
	}
	return poll.Until(ctx, promoted)
}

// The chaos goes on when a replica does not stand for election.
func TestReplicaDoesNotStand(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	c := newCluster(t)
	if err := c.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	heir := c.nodes[c.shards[0][1]]
	if err := heir.ConfigSet(t.Context(), "cluster-replica-no-failover", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.inject(t.Context(), chaos.Injection{Kind: chaos.Failover, Pick: 0}, nil); err != nil {
		t.Fatal(err)
	}
	if err := says(t.Context(), heir, "role:master"); err != nil {
		t.Error(err)
	}
}

// inStep returns an error unless the replica has what its master has now. A failover then loses no
// more than the last moments.
func inStep(ctx context.Context, master, replica *redis.Client) error {
	_, port, _ := strings.Cut(master.Options().Addr, ":")
	if err := says(ctx, replica, "master_port:"+port+"\r\nmaster_link_status:up"); err != nil {
		return err
	}
	want, err := offset(ctx, master, "master_repl_offset")
	if err != nil {
		return err
	}
	have, err := offset(ctx, replica, "slave_repl_offset")
	if err == nil && have < want {
		err = fmt.Errorf("replica at %s: %d behind", replica.Options().Addr, want-have)
	}
	return err
}

func offset(ctx context.Context, rdb *redis.Client, name string) (int64, error) {
	info, err := rdb.Info(ctx, "replication").Result()
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, name+":")
	digits, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %s: %w", rdb.Options().Addr, name, err)
	}
	return n, nil
}

// says returns an error unless the server's INFO has the lines.
func says(ctx context.Context, rdb *redis.Client, lines string) error {
	info, err := rdb.Info(ctx, "replication").Result()
	if err == nil && !strings.Contains(info, lines) {
		err = fmt.Errorf("%s: does not say %q", rdb.Options().Addr, lines)
	}
	return err
}
