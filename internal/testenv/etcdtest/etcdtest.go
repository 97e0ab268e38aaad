// Package etcdtest runs real etcd servers for tests and benchmarks. Each has ports of
// its own. See package proc for how it ends, and what happens where etcd is missing.
package etcdtest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/lock/locktest"
)

// A Server is one member of a cluster, which may be the only one.
type Server struct {
	*proc.Server

	// Addr is where clients find it, "127.0.0.1:port". It outlives Kill and Restart.
	Addr string

	peer  string          // where the other members find it
	peers *locktest.Proxy // in tests, what they reach it through
}

// RunCluster starts so many servers that are one cluster, with the times that etcd
// has by default: a leader that is gone is replaced after one to two seconds, and a
// lease lives for two at least. The caller must Stop them.
func RunCluster(ctx context.Context, members int) ([]*Server, error) {
	program, err := proc.Look(debianPackage, name)
	if err != nil {
		return nil, err
	}
	return run(ctx, program, members, func(*Server) {})
}

// Start runs a server until the test's cleanup.
func Start(tb testing.TB) *Server {
	tb.Helper()
	return StartCluster(tb, 1)[0]
}

// StartCluster is RunCluster until the test's cleanup, with members that can be cut
// off from each other.
func StartCluster(tb testing.TB, members int) []*Server {
	tb.Helper()
	servers, err := run(tb.Context(), proc.Find(tb, debianPackage, name), members, func(s *Server) {
		s.peers = locktest.NewProxy(tb, s.peer)
	})
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range servers {
		tb.Cleanup(func() { s.StopAfter(tb) })
	}
	return servers
}

// The program, and what to install for it.
const name, debianPackage = "etcd", "etcd-server"

// run starts a cluster. It calls prepare for each member before the member starts.
// After an error no member runs.
func run(ctx context.Context, program string, members int, prepare func(*Server)) ([]*Server, error) {
	// Nothing reserves a port between its choice and the server's bind. If somebody
	// else takes one in between, run tries a new cluster with other ports.
	const attempts = 10
	var err error
	for range attempts {
		var servers []*Server
		if servers, err = newCluster(ctx, program, members); err != nil {
			break
		}
		for _, s := range servers {
			prepare(s)
		}
		if err = start(ctx, servers); err == nil {
			return servers, nil
		}
		if !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	return nil, err
}

func newCluster(ctx context.Context, program string, members int) (servers []*Server, err error) {
	for range members {
		s := &Server{}
		if s.Server, err = proc.New(program); err == nil {
			servers = append(servers, s)
			s.Ready = s.healthy
			s.Addr, err = proc.FreeAddr(ctx)
		}
		if err == nil {
			s.peer, err = proc.FreeAddr(ctx)
		}
		if err != nil {
			stop(servers)
			return nil, err
		}
	}
	return servers, nil
}

// start starts the members. After an error none runs.
func start(ctx context.Context, servers []*Server) error {
	var cluster []string
	for _, s := range servers {
		cluster = append(cluster, s.name()+"="+s.advertised())
	}
	errs := make([]error, len(servers))
	starting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var all sync.WaitGroup
	for i, s := range servers {
		s.Args = []string{
			"--name", s.name(), "--data-dir", filepath.Join(s.Dir, "data"), "--log-level", "warn",
			"--listen-client-urls", "http://" + s.Addr, "--advertise-client-urls", "http://" + s.Addr,
			"--listen-peer-urls", "http://" + s.peer, "--initial-advertise-peer-urls", s.advertised(),
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-token", servers[0].Dir,
		}
		all.Go(func() { // none is healthy without others
			if errs[i] = s.Start(starting); errs[i] != nil {
				giveUp()
			}
		})
	}
	all.Wait()
	err := errors.Join(errs...)
	if err != nil {
		stop(servers)
	}
	return err
}

func stop(servers []*Server) {
	for _, s := range servers {
		s.Stop()
	}
}

// name is the member's name in its cluster.
func (s *Server) name() string { return filepath.Base(s.Dir) }

// advertised is the URL at which the other members reach it.
func (s *Server) advertised() string {
	if s.peers != nil {
		return "http://" + s.peers.Addr
	}
	return "http://" + s.peer
}

// Addrs are those of servers.
func Addrs(servers ...*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr
	}
	return addrs
}

// healthy returns nil when the server has a leader and commits.
func (s *Server) healthy(ctx context.Context) error {
	var health struct {
		Health string `json:"health"`
	}
	if err := s.ask(ctx, http.MethodGet, "/health", "", &health); err != nil {
		return err
	}
	if health.Health != "true" {
		return errors.New("not healthy")
	}
	return nil
}

// IsLeader reports whether the server leads its cluster.
func (s *Server) IsLeader(ctx context.Context) (bool, error) {
	var status struct {
		Header struct {
			MemberID string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	if err := s.ask(ctx, http.MethodPost, "/v3/maintenance/status", "{}", &status); err != nil {
		return false, err
	}
	return status.Leader == status.Header.MemberID, nil
}

// ask sends a request to the server's gateway.
func (s *Server) ask(ctx context.Context, method, path, body string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.Addr+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	// One connection for each request, so that none is left behind.
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(answer)
}

// Leader returns the server that leads the cluster, once one does.
func Leader(tb testing.TB, servers []*Server) *Server {
	tb.Helper()
	var leader *Server
	poll.Eventually(tb, "a leader", func() bool {
		for _, s := range servers {
			if leads, err := s.IsLeader(tb.Context()); err == nil && leads {
				leader = s
				return true
			}
		}
		return false
	})
	return leader
}

// CutOff has the other members hear nothing of the server any more, although it hears
// them; false ends that.
func (s *Server) CutOff(on bool) { s.peers.BlackHole(on) }
