package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/locking"
	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/internal/testenv/etcdtest"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// The parts of a system.
const (
	redisNodes  = "redis"
	etcdMembers = "etcd"
)

// A system is what locks are kept on: so many servers of a kind.
type system struct {
	kind  string
	nodes int
}

// String reads like redis-5.
func (s system) String() string { return fmt.Sprintf("%s-%d", s.kind, s.nodes) }

// servers are those of a system that run.
type servers struct {
	addrs []string
	nodes []*redistest.Server // of Redis
	etcd  []*etcdtest.Server  // else
}

func (s system) start(ctx context.Context) (*servers, error) {
	if s.kind == etcdMembers {
		members, err := etcdtest.RunCluster(ctx, s.nodes)
		if err != nil {
			return nil, err
		}
		return &servers{addrs: etcdtest.Addrs(members...), etcd: members}, nil
	}
	up := &servers{}
	for range s.nodes {
		node, err := redistest.Run(ctx)
		if err != nil {
			up.stop()
			return nil, err
		}
		up.addrs, up.nodes = append(up.addrs, node.Addr), append(up.nodes, node)
	}
	return up, nil
}

func (s *servers) stop() {
	for _, node := range s.nodes {
		node.Stop()
	}
	for _, member := range s.etcd {
		member.Stop()
	}
}

// version is that of its servers.
func (s *servers) version(ctx context.Context) (string, error) {
	if s.etcd != nil {
		return etcdVersion(ctx)
	}
	return redisstat.Version(ctx)
}

// etcdVersion returns that of etcd, such as "etcd 3.5.9".
func etcdVersion(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "etcd", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask etcd for its version: %w", err)
	}
	_, rest, _ := strings.Cut(string(out), "etcd Version: ")
	number, _, _ := strings.Cut(rest, "\n")
	return "etcd " + number, nil
}

// roundTrips times the least that the servers can be asked for, and says what that is.
func (s *servers) roundTrips(ctx context.Context, n int) (took []time.Duration, what string, err error) {
	if s.etcd == nil {
		nodes := locking.Nodes(s.addrs[:1], redis.Options{})
		defer func() { err = errors.Join(err, locking.CloseNodes(nodes)) }()
		took, err = redisstat.RoundTrip(ctx, nodes[0], n)
		return took, "an empty script", err
	}
	client, err := newEtcd(s.addrs)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for range n {
		start := time.Now()
		if _, err := client.Put(ctx, "yardstick", ""); err != nil {
			return nil, "", err
		}
		took = append(took, time.Since(start))
	}
	return took, "a put", nil
}
