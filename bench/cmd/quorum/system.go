package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/etcdproc"
	"github.com/sidingq/siding/bench/internal/locking"
	"github.com/sidingq/siding/bench/internal/redisproc"
)

// What a system is made of.
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
	nodes []*redisproc.Server // of Redis
	etcd  *etcdproc.Cluster   // else
}

func (s system) start(ctx context.Context) (*servers, error) {
	if s.kind == etcdMembers {
		cluster, err := etcdproc.Start(ctx, s.nodes)
		if err != nil {
			return nil, err
		}
		return &servers{addrs: cluster.Addrs, etcd: cluster}, nil
	}
	up := &servers{}
	for range s.nodes {
		node, err := redisproc.Start(ctx)
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
	if s.etcd != nil {
		s.etcd.Stop()
	}
}

// version is that of its servers.
func (s *servers) version(ctx context.Context) (string, error) {
	if s.etcd != nil {
		return etcdproc.Version(ctx)
	}
	return redisproc.Version(ctx)
}

// roundTrips times the least that the servers can be asked for, and says what that is.
func (s *servers) roundTrips(ctx context.Context, n int) (took []time.Duration, what string, err error) {
	if s.etcd == nil {
		nodes := locking.Nodes(s.addrs[:1], redis.Options{})
		defer func() { err = errors.Join(err, locking.CloseNodes(nodes)) }()
		took, err = redisproc.RoundTrip(ctx, nodes[0], n)
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
