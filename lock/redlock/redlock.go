package redlock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/lock"
)

// leastNodes is how many it takes for one to be missed.
const leastNodes = 3

// NoRestartDelay is a [Config.RestartDelay] for nodes that forget nothing.
const NoRestartDelay time.Duration = -1

// Config configures the store. The zero value works.
type Config struct {
	// NodeTimeout is how long a call waits for the nodes, all at once: 1 ms to 10 s, and half of a
	// lock's TTL at most. A node that hangs costs each call so much. A request for a busy lock
	// costs twice as much, as its votes are released everywhere. A request that too few nodes
	// answer costs three times as much. A node that answers later does not vote; at first the time
	// includes making the connection. Defaults to 50 ms.
	NodeTimeout time.Duration
	// RestartDelay is how long a node that was started does not vote, as it may have forgotten
	// locks. A shorter delay than the TTL of a lock counts as that TTL. Set the TTL of the
	// longest-lived locks on these nodes, up to 24 h. So new nodes give no locks at first. Set
	// [NoRestartDelay] only if every node keeps what it grants (appendonly yes, appendfsync
	// always). Defaults to the TTL.
	RestartDelay time.Duration
}

func (c Config) withDefaults() Config {
	c.NodeTimeout = cmp.Or(c.NodeTimeout, 50*time.Millisecond)
	return c
}

func (c Config) validate() error {
	if least, most := time.Millisecond, 10*time.Second; c.NodeTimeout < least || c.NodeTimeout > most {
		return fmt.Errorf("redlock: node timeout: want %v to %v, have %v", least, most, c.NodeTimeout)
	}
	if d := c.RestartDelay; d != NoRestartDelay && (d < 0 || d > 24*time.Hour) {
		return fmt.Errorf("redlock: restart delay: want NoRestartDelay or 0 to 24h, have %v", d)
	}
	return nil
}

// New returns a [lock.Store] on clients, one of each of three or more independent servers. The
// caller closes the clients. An even number works, but survives the loss of no more nodes than the
// odd one below it.
//
// New asks each server who it is, and waits for a second or NodeTimeout, whichever is longer. A
// minority may be out of reach. It is an error if more of them are. So is a server that is given
// twice, by whatever address, that is a replica or a part of a Cluster, or that refuses to answer.
// Each vote asks again who the server is. So no server has two votes, also if it was out of reach.
//
// The clients need ContextTimeoutEnabled. Without that, go-redis would wait for a server that hangs
// until ReadTimeout, several times. Set DialerRetries to 1 and MaxRetries to -1: the clients then see
// at once that a server is down, and the other nodes make up for it.
func New(ctx context.Context, clients []*redis.Client, cfg Config) (lock.Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if have := len(clients); have < leastNodes {
		return nil, fmt.Errorf("redlock: nodes: want %d or more, as of fewer none may fail, have %d", leastNodes, have)
	}
	s := &majority{cfg: cfg}
	for i, client := range clients {
		if client == nil {
			return nil, fmt.Errorf("redlock: node %d: want a client, have nil", i+1)
		}
		n := node{voter: server{client}, name: fmt.Sprintf("node %d (%s)", i+1, client.Options().Addr)}
		if !client.Options().ContextTimeoutEnabled {
			return nil, fmt.Errorf("redlock: %s: want ContextTimeoutEnabled, have a client whose calls go on after their time", n.name)
		}
		s.nodes = append(s.nodes, n)
	}
	if err := s.check(ctx, clients); err != nil {
		return nil, err
	}
	return s, nil
}

// check asks the servers who they are.
func (s *majority) check(ctx context.Context, clients []*redis.Client) error {
	const longest = time.Second // a connection has to be made first, so this is not NodeTimeout
	answers := atOnce(ctx, max(longest, s.cfg.NodeTimeout), clients, func(ctx context.Context, client *redis.Client) (string, error) {
		return client.Info(ctx).Result()
	})
	names := make(map[string]string, len(answers)) // by run
	unreachable := tally{nodes: len(answers)}
	for i, a := range answers {
		name, run, role := s.nodes[i].name, infoField(a.of, "run_id"), infoField(a.of, "role")
		// Valkey calls it server_mode. A server that tells neither is not refused for that, nor for its role.
		mode := cmp.Or(infoField(a.of, "redis_mode"), infoField(a.of, "server_mode"))
		switch {
		case a.err != nil && refuses(a.err):
			return fmt.Errorf("redlock: %s: %w", name, a.err)
		case a.err != nil:
			unreachable.miss(s.nodes[i], a.err)
		case run == "":
			return fmt.Errorf("redlock: %s: want a run_id in its INFO, have none", name)
		case mode != "" && mode != "standalone":
			return fmt.Errorf("redlock: %s: want a single server, have one in %s mode", name, mode)
		case role == "slave" || role == "replica":
			return fmt.Errorf("redlock: %s: want a master, have a %s", name, role)
		case names[run] != "":
			return fmt.Errorf("redlock: %s: want a server of its own, have that of %s", name, names[run])
		default:
			names[run] = name
		}
	}
	if unreachable.undecided() {
		return unreachable.failed()
	}
	return nil
}

// refuses reports whether a server is there and will not answer. One that loads its data, or
// runs a long script, will.
func refuses(err error) bool { return redisreply.Answered(err) && !redisreply.Transient(err) }
