package etcdlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/lock/locktest"
)

// An etcdServer is one member of a cluster, which may be the only one.
type etcdServer struct {
	*proc.Server

	// Addr is its address for clients, "127.0.0.1:port". The address outlives Kill and Restart.
	Addr string

	peer  string          // its address for the other members
	peers *locktest.Proxy // between the members and peer
}

// startEtcd runs a server until the test's cleanup.
func startEtcd(tb testing.TB) *etcdServer {
	tb.Helper()
	return startCluster(tb, 1)[0]
}

// startCluster starts so many servers that are one cluster, until the test's cleanup. They can be cut
// off from each other. etcd's default times apply: a dead leader is replaced after one to two seconds,
// and a lease lives for two at least.
func startCluster(tb testing.TB, members int) (servers []*etcdServer) {
	tb.Helper()
	program, err := proc.Look("etcd-server", "etcd")
	if err == nil {
		err = proc.OnFreePorts(func() (err error) {
			if servers, err = newCluster(tb.Context(), program, members); err != nil {
				return err
			}
			for _, s := range servers {
				s.peers = locktest.NewProxy(tb, s.peer)
			}
			return startAll(tb.Context(), servers)
		})
	}
	proc.Need(tb, err)
	for _, s := range servers {
		proc.ForTest(tb, s, nil)
	}
	return servers
}

func newCluster(ctx context.Context, program string, members int) (servers []*etcdServer, err error) {
	for range members {
		s := &etcdServer{}
		if s.Server, err = proc.New(program); err == nil {
			servers = append(servers, s)
			s.Ready = s.healthy
			s.Addr, err = proc.FreeAddr(ctx)
		}
		if err == nil {
			s.peer, err = proc.FreeAddr(ctx)
		}
		if err != nil {
			stopAll(servers)
			return nil, err
		}
	}
	return servers, nil
}

// startAll starts the members. After an error none runs.
func startAll(ctx context.Context, servers []*etcdServer) error {
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
		stopAll(servers)
	}
	return err
}

func stopAll(servers []*etcdServer) {
	for _, s := range servers {
		s.Stop()
	}
}

// name is the member's name in its cluster.
func (s *etcdServer) name() string { return filepath.Base(s.Dir) }

// advertised is the URL by which the other members reach the server.
func (s *etcdServer) advertised() string { return "http://" + s.peers.Addr }

// addrsOf returns the addresses of servers.
func addrsOf(servers ...*etcdServer) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr
	}
	return addrs
}

// healthy returns nil when the server has a leader and commits.
func (s *etcdServer) healthy(ctx context.Context) error {
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

// leads reports whether the server leads its cluster.
func (s *etcdServer) leads(ctx context.Context) bool {
	var status struct {
		Header struct {
			MemberID string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	err := s.ask(ctx, http.MethodPost, "/v3/maintenance/status", "{}", &status)
	return err == nil && status.Leader == status.Header.MemberID
}

// ask sends a request to the server's gateway.
func (s *etcdServer) ask(ctx context.Context, method, path, body string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.Addr+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Close = true // leaves no connection behind
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(answer)
}

// leaderOf returns the server that leads the cluster, once one does.
func leaderOf(tb testing.TB, servers []*etcdServer) (leader *etcdServer) {
	tb.Helper()
	expect.Eventually(tb, "a leader", func() bool {
		i := slices.IndexFunc(servers, func(s *etcdServer) bool { return s.leads(tb.Context()) })
		if i >= 0 {
			leader = servers[i]
		}
		return i >= 0
	})
	return leader
}

// cutOff has the other members hear nothing of the server, although it hears them. false ends
// that.
func (s *etcdServer) cutOff(on bool) { s.peers.BlackHole(on) }
