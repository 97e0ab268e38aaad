// Package etcdtest starts real etcd servers for tests.
//
// Each has a port of its own, keeps its data in a folder of its own, and ends with
// its test, also when the test process dies without one. What it wrote to its log
// is shown when a test fails. Where etcd is not installed the test is skipped, or
// fails if CI is set.
package etcdtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testbin"
	"github.com/sidingq/siding/internal/testproc"
	"github.com/sidingq/siding/lock/locktest"
)

// A Server is one member of a cluster, which may be the only one.
type Server struct {
	// Addr is where clients find it, "127.0.0.1:port". It outlives Kill and Restart.
	Addr string

	name    string
	program string
	dir     string
	args    []string
	process *testproc.Process
	peers   *locktest.Proxy // what the other members reach it through
}

// Start runs a server until the test's cleanup.
func Start(tb testing.TB) *Server {
	tb.Helper()
	return StartCluster(tb, 1)[0]
}

// StartCluster runs so many servers that are one cluster, with the times that etcd
// has by default: a leader that is gone is replaced after one to two seconds, and a
// lease lives for two at least.
func StartCluster(tb testing.TB, members int) []*Server {
	tb.Helper()
	program := testbin.Find(tb, "etcd-server", "etcd")
	servers := make([]*Server, members)
	peers := make([]string, members)
	for i := range servers {
		name := "m" + strconv.Itoa(i)
		client, peer := address(tb), address(tb)
		proxy := locktest.NewProxy(tb, peer)
		peers[i] = name + "=http://" + proxy.Addr
		servers[i] = &Server{Addr: client, name: name, program: program, dir: tb.TempDir(), peers: proxy, args: []string{
			"--name", name,
			"--listen-client-urls", "http://" + client, "--advertise-client-urls", "http://" + client,
			"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + proxy.Addr,
			"--log-level", "warn",
		}}
	}
	for _, s := range servers {
		s.args = append(s.args, "--initial-cluster", strings.Join(peers, ","), "--initial-cluster-token", tb.Name())
		if err := s.launch(); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { s.stop(tb) })
	}
	for _, s := range servers {
		if err := s.healthy(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
	return servers
}

func address(tb testing.TB) string {
	tb.Helper()
	return "127.0.0.1:" + strconv.Itoa(testproc.FreePort(tb))
}

// Addrs are those of servers.
func Addrs(servers ...*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr
	}
	return addrs
}

func (s *Server) launch() error {
	log, err := os.OpenFile(s.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	s.process, err = testproc.Start(s.program, s.dir, log, slices.Concat(s.args, []string{"--data-dir", filepath.Join(s.dir, "data")}))
	return err
}

// healthy waits until the server has a leader and commits.
func (s *Server) healthy(ctx context.Context) error {
	err := testproc.Poll(ctx, func() error {
		if err := s.process.Gone(); err != nil {
			return err
		}
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
	})
	if err != nil {
		return fmt.Errorf("etcd at %s: %w; its log:\n%s", s.Addr, err, testproc.LogTail(s.logFile()))
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
	err := testproc.Poll(tb.Context(), func() error {
		for _, s := range servers {
			if leads, err := s.IsLeader(tb.Context()); err == nil && leads {
				leader = s
				return nil
			}
		}
		return errors.New("no leader")
	})
	if err != nil {
		tb.Fatal(err)
	}
	return leader
}

// Kill ends the server by SIGKILL, as a crash would, and waits until it is gone.
func (s *Server) Kill() { s.process.Kill() }

// Pause stops the server by SIGSTOP: connections stay open and nothing is
// answered. When Pause returns the server stands still.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	if err := s.process.Pause(); err != nil {
		tb.Fatalf("etcd at %s: %v", s.Addr, err)
	}
}

// Resume lets a paused server go on.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	if err := s.process.Resume(); err != nil {
		tb.Fatalf("etcd at %s: %v", s.Addr, err)
	}
}

// CutOff has the other members hear nothing of the server any more, although it hears
// them; false ends that.
func (s *Server) CutOff(on bool) { s.peers.BlackHole(on) }

// Restart kills the server if it still runs and starts it again, with the data
// that it had. It returns once the server is healthy.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		tb.Fatal(err)
	}
	if err := s.healthy(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// stop ends the server at the cleanup of a test, and shows its log if that failed.
func (s *Server) stop(tb testing.TB) {
	tb.Helper()
	s.Kill()
	if tb.Failed() {
		tb.Logf("the log of etcd %s at %s:\n%s", s.name, s.Addr, testproc.LogTail(s.logFile()))
	}
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "etcd.log") }
