package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/queue"
)

// slow is the round trip above which Redis limits what a worker can do.
const slow = 20 * time.Millisecond

// A node is one server of Redis.
type node struct {
	name    string
	version string // empty if the node does not tell
	trip    time.Duration
	err     error
}

// redis asks each node of Redis for its version, and how long a round trip takes.
func (x *examination) redis(ctx context.Context) error {
	var nodes []node
	if cluster, ok := x.rdb.(*redis.ClusterClient); ok {
		var mu sync.Mutex
		err := cluster.ForEachShard(ctx, func(ctx context.Context, one *redis.Client) error {
			found := ask(ctx, one, one.Options().Addr)
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, found)
			return nil
		})
		if err != nil {
			return err
		}
	} else {
		name := strings.Join(x.settings.Redis.Addrs, ",")
		if master := x.settings.Redis.MasterName; master != "" {
			name = "master " + master + " of the Sentinels " + name
		}
		nodes = []node{ask(ctx, x.rdb, name)}
	}
	slices.SortFunc(nodes, func(a, b node) int { return cmp.Compare(a.name, b.name) })
	x.reachable(nodes)
	return nil
}

// ask makes three round trips to a node. The shortest counts.
func ask(ctx context.Context, rdb redis.UniversalClient, name string) node {
	n := node{name: name}
	for range 3 {
		start := time.Now()
		if n.err = rdb.Ping(ctx).Err(); n.err != nil {
			return n
		}
		if trip := time.Since(start); n.trip == 0 || trip < n.trip {
			n.trip = trip
		}
	}
	n.version = versionIn(rdb.Info(ctx, "server").Val()) // which may not be allowed
	return n
}

// versionIn returns the version in an answer of INFO. Valkey has two, and the one of Redis says only with which it is compatible.
func versionIn(info string) (version string) {
	for line := range strings.Lines(info) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
		case "redis_version":
			version = value
		case "valkey_version":
			return "valkey " + value
		}
	}
	return version
}

// reachable checks how the nodes answer.
func (x *examination) reachable(nodes []node) {
	const name = "redis"
	versions := make(map[string]bool)
	for _, n := range nodes {
		found := fmt.Sprintf("%s answers in %.2f ms", n.name, float64(n.trip.Microseconds())/1000)
		if n.version != "" {
			versions[n.version] = true
			found += ", version " + n.version
		}
		switch {
		case n.err != nil:
			x.add(faulty, name, fmt.Sprintf("%s: %v", n.name, n.err),
				"this node of the Cluster does not answer; its locks and tasks have no spare, or cannot be used", "start it, or see its log and the network")
		case n.trip > slow:
			x.add(warning, name, found, "a task takes at least one round trip, and a lock lives by renewals",
				"run lockctl beside a worker to compare; see the network, and slow commands on Redis")
		default:
			x.add(ok, name, found, "", "")
		}
	}
	if len(versions) > 1 {
		x.add(warning, name, fmt.Sprintf("the nodes have %d different versions", len(versions)),
			"after a failover another version serves the locks", "finish the upgrade")
	}
}

// refusals are the traits of a Redis that refuses writes.
var refusals = []string{"memory", "disk", "role"}

// traitChecks are the checks of [queue.CheckRedis], and their traits.
var traitChecks = []struct {
	check, fine string
	traits      []string
}{
	{"redis version", "new enough", []string{"version"}},
	{"writes", "Redis takes writes", refusals},
	{"eviction", "Redis throws nothing away", []string{"maxmemory-policy"}},
	{"persistence", "Redis keeps its data over a restart", []string{"persistence", "appendfsync"}},
	{"clock of redis", "as this machine's", []string{"clock"}},
	{"unguarded servers", "no server runs guarded tasks without their locks", []string{"unguarded server"}},
}

// traits adds what [queue.CheckRedis] has found.
func (x *examination) traits(ctx context.Context) error {
	findings, err := queue.CheckRedis(ctx, x.rdb)
	if err != nil {
		return err
	}
	x.refuses = slices.ContainsFunc(findings, func(f queue.Finding) bool { return slices.Contains(refusals, f.Trait) })
	for _, t := range traitChecks {
		for _, f := range findings {
			if slices.Contains(t.traits, f.Trait) {
				x.checks = append(x.checks, checkOf(t.check, f))
			}
		}
		x.unless(t.check, t.fine)
	}
	return nil
}

// checkOf is a finding as a check.
func checkOf(name string, f queue.Finding) check {
	c := check{Check: name, Status: faulty, Found: f.Trait + " " + f.Have}
	if f.Trait == "clock" || f.Trait == "unguarded server" {
		c.Found = f.Have
	}
	if f.Server != "" {
		c.Found = f.Server + ": " + c.Found
	}
	if f.Trait == "persistence" || f.Trait == "appendfsync" {
		c.Status = warning // some want it so
	}
	if f.Advice == "" {
		c.Status, c.Found = warning, strings.TrimSpace(f.Server+" does not tell")
		c.Means, c.Do = "this user may not ask, or it is the Redis of --embedded, which does not tell", "allow this user INFO and CONFIG GET; with --embedded do nothing"
		return c
	}
	c.Means, c.Do, _ = strings.Cut(f.Advice, ": ") // what may happen, and then what to do
	return c
}
