package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisServer is a redis-server that keeps nothing.
type redisServer struct {
	addr string
	dir  string
	end  context.CancelFunc
	cmd  *exec.Cmd
}

// startRedis runs redis-server on a free port until stop, or until ctx ends.
func startRedis(ctx context.Context) (*redisServer, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "locks-")
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "redis-server",
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "no")
	s := &redisServer{addr: addr, dir: dir, end: end, cmd: cmd}
	if err := cmd.Start(); err != nil {
		end()
		return nil, errors.Join(fmt.Errorf("start a Redis: %w", err), os.RemoveAll(dir))
	}
	if err := answers(ctx, addr); err != nil {
		s.stop()
		return nil, fmt.Errorf("start a Redis: %w", err)
	}
	return s, nil
}

// stop kills the server and waits until it is gone.
func (s *redisServer) stop() {
	s.end()
	// It ends by a signal and keeps nothing, so neither error means anything.
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// answers waits until the Redis at addr answers.
func answers(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		if paused := pause(ctx, 10*time.Millisecond); paused != nil {
			return err
		}
	}
}

// pause waits for d, or returns why ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// A counter tells how many commands Redis has run since the start of count.
type counter struct {
	client *redis.Client
	before map[string]int
}

// setUpCommands are those by which clients open connections, and our own.
var setUpCommands = []string{"auth", "hello", "select", "ping", "command", "client|setinfo", "client|setname", "client|tracking", "client|maint_notifications", "info"}

func count(ctx context.Context, client *redis.Client) (counter, error) {
	before, err := commands(ctx, client)
	return counter{client, before}, err
}

// since returns how many commands were sent, and how many were run, those
// inside scripts included.
func (c counter) since(ctx context.Context, direct []string) (sent, ran int, err error) {
	after, err := commands(ctx, c.client)
	if err != nil {
		return 0, 0, err
	}
	for name := range maps.Keys(after) {
		n := after[name] - c.before[name]
		ran += n
		if name == "eval" || name == "evalsha" || slices.Contains(direct, name) {
			sent += n
		}
	}
	return sent, ran, nil
}

// commands reads how often Redis has run each command so far.
func commands(ctx context.Context, client *redis.Client) (map[string]int, error) {
	info, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return nil, err
	}
	calls := make(map[string]int)
	for line := range strings.Lines(info) {
		// cmdstat_get:calls=5,usec=10,...
		name, rest, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		digits, _, _ := strings.Cut(rest, ",")
		if !found || slices.Contains(setUpCommands, name) {
			continue
		}
		if calls[name], err = strconv.Atoi(digits); err != nil {
			return nil, fmt.Errorf("commandstats: %w", err)
		}
	}
	return calls, nil
}
