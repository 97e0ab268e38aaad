//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/e2e/chaos"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// A site is the Redis of a run, and its faults.
type site interface {
	// reach is how workers reach it.
	reach() (addrs []string, masterName string)
	// client is how the harness does, whatever becomes of the network.
	client() redis.UniversalClient
	// ready returns when what an earlier fault broke is whole again: replicas that
	// are in step, without which a failover loses more than it has to.
	ready(ctx context.Context) error
	// uninjected returns the failovers that were nobody's doing.
	uninjected(faults []chaos.Fault) []chaos.Fault
	// inject returns when the fault is over. Its errors end the run.
	inject(ctx context.Context, i chaos.Injection, fault *chaos.Fault) error
}

func newSite(t *testing.T, s chaos.Scenario) site {
	t.Helper()
	switch s {
	case chaos.Standalone:
		return newStandalone(t)
	case chaos.Sentinel:
		return newSentinel(t)
	case chaos.Cluster:
		return newCluster(t)
	default:
		t.Fatalf("scenario: want standalone, sentinel or cluster, have %q", s)
		return nil
	}
}

// standalone is a single server that remembers each write that it acknowledged,
// behind a network that fails.
type standalone struct {
	server *redistest.Server
	reader *redistest.Server // reads what is thrown away
	look   *asynq.Inspector  // of the reader
	proxy  *locktest.Proxy
	rdb    *redis.Client
}

func (s *standalone) uninjected([]chaos.Fault) []chaos.Fault { return nil }

func newStandalone(t *testing.T) *standalone {
	t.Helper()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	reader := redistest.Start(t, "--appendonly", "yes")
	reader.Kill()
	return &standalone{server: server, reader: reader, look: asynq.NewInspectorFromRedisClient(reader.Client(t)), proxy: locktest.NewProxy(t, server.Addr), rdb: server.Client(t)}
}

func (s *standalone) reach() (addrs []string, masterName string) { return []string{s.proxy.Addr}, "" }
func (s *standalone) client() redis.UniversalClient              { return s.rdb }

func (s *standalone) ready(context.Context) error { return nil }

func (s *standalone) inject(ctx context.Context, i chaos.Injection, fault *chaos.Fault) error {
	switch i.Kind {
	case chaos.RestartKept:
		s.server.Kill()
		_ = sleep.For(ctx, i.For)
		return s.server.Revive(ctx)
	case chaos.RestartEmpty:
		s.server.Kill()
		var err error
		if fault.Forgot, err = s.throwAway(ctx); err != nil {
			return err
		}
		_ = sleep.For(ctx, i.For)
		return s.server.Revive(ctx)
	case chaos.HangRedis:
		s.server.Pause()
		_ = sleep.For(ctx, i.For)
		s.server.Resume()
	case chaos.DelayReplies:
		s.proxy.Delay(time.Duration(5+i.Pick%500) * time.Millisecond)
		_ = sleep.For(ctx, i.For)
		s.proxy.Delay(0)
	case chaos.CutConnections:
		const cuts = 5
		for range cuts {
			s.proxy.Cut()
			_ = sleep.For(ctx, i.For/cuts)
		}
	case chaos.SwallowReplies:
		s.proxy.SwallowReplies(true)
		_ = sleep.For(ctx, i.For)
		s.proxy.SwallowReplies(false)
	case chaos.LosePackets:
		s.proxy.BlackHole(true)
		_ = sleep.For(ctx, i.For)
		s.proxy.BlackHole(false)
	case chaos.FlushScripts:
		return s.rdb.ScriptFlush(ctx).Err()
	default:
		return fmt.Errorf("%s: not here", i.Kind)
	}
	return nil
}

// throwAway removes the dead server's data and returns the tasks that were in it.
func (s *standalone) throwAway(ctx context.Context) (map[string]bool, error) {
	const folder = "appendonlydir"
	from, to := filepath.Join(s.server.Dir, folder), filepath.Join(s.reader.Dir, folder)
	if err := errors.Join(os.RemoveAll(to), os.Rename(from, to), s.reader.Revive(ctx)); err != nil {
		return nil, err
	}
	defer s.reader.Kill()
	return tasksIn(s.look, s.look.ListPendingTasks, s.look.ListActiveTasks, s.look.ListRetryTasks, s.look.ListScheduledTasks, s.look.ListArchivedTasks)
}

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
	// After many failovers in a row a replica may follow one that is a master no
	// more; the sentinels are slow to notice.
	const patience = 3 * time.Second
	told := chaos.Now()
	return poll.Until(ctx, func() error {
		// Whoever is told what to follow while the sentinels make it the master follows,
		// in the end, one that follows it.
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

// tell has the others follow the master. Those that do are not disturbed.
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

func (s *sentinel) inject(ctx context.Context, i chaos.Injection, _ *chaos.Fault) error {
	old, err := s.FindMaster(ctx)
	if err != nil {
		return err
	}
	switch i.Kind {
	case chaos.FlushScripts:
		return s.nodes[old].ScriptFlush(ctx).Err()
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
	// Until the sentinels tell it, some seconds later, one that was stopped takes itself for
	// the master.
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

func (c *cluster) inject(ctx context.Context, i chaos.Injection, _ *chaos.Fault) error {
	switch i.Kind {
	case chaos.FlushScripts:
		return c.rdb.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
			return rdb.ScriptFlush(ctx).Err()
		})
	case chaos.Failover, chaos.StopMaster:
		shard := c.shards[i.Pick%uint64(len(c.shards))]
		old, heir := shard[0], shard[1]
		if says(ctx, c.nodes[heir], "role:master") == nil {
			old, heir = heir, old
		}
		halt(old, i.Kind)
		if err := poll.Until(ctx, func() error { return says(ctx, c.nodes[heir], "role:master") }); err != nil {
			return err
		}
		if err := resume(ctx, old, i.Kind); err != nil {
			return err
		}
		return c.ready(ctx) // one that was stopped takes itself for the master until it is told
	default:
		return fmt.Errorf("%s: not here", i.Kind)
	}
}

// inStep returns an error unless the replica has what its master has by now, so that a
// failover loses no more than the last moments.
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
