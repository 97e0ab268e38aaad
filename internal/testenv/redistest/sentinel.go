package redistest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A Sentinel is a master with two replicas, watched by three sentinels.
type Sentinel struct {
	// Servers are the three servers; the first one starts as the master.
	Servers []*Server
	// Sentinels are the three sentinels.
	Sentinels []*Server
	// Addrs are the addresses of the sentinels.
	Addrs []string
	// MasterName is the name under which they watch the master.
	MasterName string
}

// StartSentinel runs a master, two replicas and three sentinels until the test's cleanup. The call
// returns when the replicas are in step and every sentinel knows all the others, which takes some
// seconds. The sentinels replace a master that is silent for a second.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	const replicas, sentinels = 2, 3
	master := Start(tb)
	s := &Sentinel{Servers: []*Server{master}, MasterName: "mymaster"}
	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	for range replicas {
		s.Servers = append(s.Servers, Start(tb, "--replicaof", host, port))
	}
	// Sentinels learn of replicas from the master: at once, or 10 s later.
	client := master.Client(tb)
	await(tb, master, func(ctx context.Context) error {
		info := client.Info(ctx, "replication")
		for i := range replicas {
			if err := wantLine(info, fmt.Sprintf("slave%d:", i), "state=online"); err != nil {
				return err
			}
		}
		return nil
	})
	for range sentinels {
		sentinel := Start(tb, s.sentinelConfig(tb, host, port), "--sentinel")
		s.Sentinels = append(s.Sentinels, sentinel)
		s.Addrs = append(s.Addrs, sentinel.Addr)
	}
	for _, sentinel := range s.Sentinels {
		await(tb, sentinel, func(ctx context.Context) error {
			state, err := s.watched(ctx, sentinel)
			if err != nil {
				return err
			}
			want := fmt.Sprintf("master, %d replicas, %d other sentinels", replicas, sentinels-1)
			have := fmt.Sprintf("%s, %s replicas, %s other sentinels", state["flags"], state["num-slaves"], state["num-other-sentinels"])
			if have != want {
				return fmt.Errorf("want %s, have %s", want, have)
			}
			return nil
		})
	}
	return s
}

// sentinelConfig writes the file in which one sentinel has its configuration and its state.
func (s *Sentinel) sentinelConfig(tb testing.TB, host, port string) string {
	tb.Helper()
	lines := []string{
		fmt.Sprintf("sentinel monitor %s %s %s 2", s.MasterName, host, port),
		fmt.Sprintf("sentinel down-after-milliseconds %s 1000", s.MasterName),
		// The next failover waits for up to twice as long.
		fmt.Sprintf("sentinel failover-timeout %s 3000", s.MasterName),
		fmt.Sprintf("sentinel parallel-syncs %s 2", s.MasterName),
	}
	file := filepath.Join(tb.TempDir(), "sentinel.conf")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// Client returns a new client of the current master, closed at the test's cleanup.
func (s *Sentinel) Client(tb testing.TB) redis.UniversalClient {
	tb.Helper()
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:            s.MasterName,
		SentinelAddrs:         s.Addrs,
		ContextTimeoutEnabled: true,
	})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Master returns the server that the latest decision of the living sentinels made the master.
// The sentinels spread it among each other within about two seconds.
func (s *Sentinel) Master(tb testing.TB) *Server {
	tb.Helper()
	master, err := s.FindMaster(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return master
}

// FindMaster is Master for other goroutines than the test's own.
func (s *Sentinel) FindMaster(ctx context.Context) (*Server, error) {
	states, err := s.states(ctx)
	if err != nil {
		return nil, err
	}
	latest, addr := -1, ""
	for sentinel, state := range states {
		epoch, err := strconv.Atoi(state["config-epoch"])
		if err != nil {
			return nil, fmt.Errorf("sentinel at %s: config-epoch: %w", sentinel.Addr, err)
		}
		if epoch > latest {
			latest, addr = epoch, masterAddr(state)
		}
	}
	return s.server(addr)
}

// Settled returns the master if all living sentinels name the same one. None of them may take the
// master for dead, or be about to replace it. Otherwise it returns an error.
func (s *Sentinel) Settled(ctx context.Context) (*Server, error) {
	states, err := s.states(ctx)
	if err != nil {
		return nil, err
	}
	addr := ""
	for sentinel, state := range states {
		if state["flags"] != "master" {
			return nil, fmt.Errorf("sentinel at %s: %s is %s", sentinel.Addr, masterAddr(state), state["flags"])
		}
		if addr = cmp.Or(addr, masterAddr(state)); addr != masterAddr(state) {
			return nil, fmt.Errorf("sentinels: some take %s for the master, some %s", addr, masterAddr(state))
		}
	}
	return s.server(addr)
}

// server returns the server that the sentinels named.
func (s *Sentinel) server(addr string) (*Server, error) {
	i := slices.IndexFunc(s.Servers, func(server *Server) bool { return server.Addr == addr })
	if i < 0 {
		return nil, fmt.Errorf("sentinels: want a master that is ours, have %q", addr)
	}
	return s.Servers[i], nil
}

// states returns what each living sentinel knows of the master.
func (s *Sentinel) states(ctx context.Context) (map[*Server]map[string]string, error) {
	states := make(map[*Server]map[string]string)
	for _, sentinel := range s.Sentinels {
		if sentinel.Gone() != nil {
			continue
		}
		state, err := s.watched(ctx, sentinel)
		if err != nil {
			return nil, fmt.Errorf("sentinel at %s: %w", sentinel.Addr, err)
		}
		states[sentinel] = state
	}
	return states, nil
}

func masterAddr(state map[string]string) string {
	return net.JoinHostPort(state["ip"], state["port"])
}

// watched returns what a sentinel knows of the master.
func (s *Sentinel) watched(ctx context.Context, sentinel *Server) (map[string]string, error) {
	client := redis.NewSentinelClient(sentinel.options())
	defer client.Close()
	return client.Master(ctx, s.MasterName).Result()
}
