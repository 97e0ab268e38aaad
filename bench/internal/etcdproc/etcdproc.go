// Package etcdproc runs etcd for benchmarks.
package etcdproc

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/sidingq/siding/bench/internal/proc"
)

// A Cluster is an etcd of one member or several, all with default settings. What it is told is
// synced to the disk of the folder for temporary files.
type Cluster struct {
	Addrs []string // where clients find the members

	members []*proc.Server
}

// Start runs so many members on free ports until Stop, or until ctx ends.
func Start(ctx context.Context, members int) (_ *Cluster, err error) {
	c := &Cluster{}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	var flags [][]string
	var cluster []string
	for i := range members {
		addr, err := proc.Addr(ctx)
		if err != nil {
			return nil, err
		}
		peer, err := proc.Addr(ctx)
		if err != nil {
			return nil, err
		}
		name := "m" + strconv.Itoa(i)
		c.Addrs, cluster = append(c.Addrs, addr), append(cluster, name+"=http://"+peer)
		flags = append(flags, []string{
			"--name", name, "--log-level", "warn",
			"--listen-client-urls", "http://" + addr, "--advertise-client-urls", "http://" + addr,
			"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + peer,
		})
	}
	for i := range members {
		s, err := proc.Start(ctx, "etcd", func(dir string) []string {
			return append(flags[i], "--initial-cluster", strings.Join(cluster, ","), "--data-dir", dir+"/data")
		})
		if err != nil {
			return nil, err
		}
		c.members = append(c.members, s)
	}
	for i, s := range c.members {
		if err := s.Await(ctx, func() error { return healthy(ctx, c.Addrs[i]) }); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Stop kills the members and waits until they are gone.
func (c *Cluster) Stop() {
	for _, s := range c.members {
		s.Stop()
	}
}

// healthy returns why the member at addr has no leader, or does not commit, if so.
func healthy(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/health", http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true // no connection is left behind
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("health: want 200, have %s", resp.Status)
	}
	if closed := resp.Body.Close(); err == nil {
		err = closed
	}
	return err
}

// Version returns that of etcd, such as "etcd 3.5.9".
func Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "etcd", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask etcd for its version: %w", err)
	}
	_, rest, _ := strings.Cut(string(out), "etcd Version: ")
	number, _, _ := strings.Cut(rest, "\n")
	return "etcd " + number, nil
}
