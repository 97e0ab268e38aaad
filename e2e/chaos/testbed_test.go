//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock/locktest"
)

// A testbed is the Redis of a run, and its faults.
type testbed interface {
	// reach returns the addresses for workers.
	reach() (addrs []string, masterName string)
	// client returns the client of the harness, which injected network faults leave alone.
	client() redis.UniversalClient
	// ready returns when the damage of earlier faults is repaired. A replica that is not in step
	// loses more in a failover than need be.
	ready(ctx context.Context) error
	// uninjected returns the faults that came by themselves.
	uninjected(faults []Fault) []Fault
	// inject returns when the fault is over. An error ends the run.
	inject(ctx context.Context, i Injection, fault *Fault) error
}

func newTestbed(t *testing.T, s Scenario) testbed {
	t.Helper()
	switch s {
	case Standalone:
		return newStandalone(t)
	case Sentinel:
		return newSentinel(t)
	case Cluster:
		return newCluster(t)
	default:
		t.Fatalf("scenario: want standalone, sentinel or cluster, have %q", s)
		return nil
	}
}

// standalone is a single server behind a network that fails. The server remembers each acknowledged
// write.
type standalone struct {
	server *redistest.Server
	reader *redistest.Server // reads what is thrown away
	look   *asynq.Inspector  // of the reader
	proxy  *locktest.Proxy
	rdb    *redis.Client
	probe  *redis.Client // goes through the proxy, as workers do
	stalls []Fault       // of the disk
}

func (s *standalone) uninjected([]Fault) []Fault {
	_ = s.noteStalls(context.Background()) // what it does not tell excuses nothing
	return s.stalls
}

func newStandalone(t *testing.T) *standalone {
	t.Helper()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always",
		"--latency-monitor-threshold", fmt.Sprint(leastStall.Milliseconds()))
	reader := redistest.Start(t, "--appendonly", "yes")
	reader.Kill()
	s := &standalone{
		server: server, reader: reader, look: asynq.NewInspectorFromRedisClient(reader.Client(t)),
		proxy: locktest.NewProxy(t, server.Addr), rdb: server.Client(t),
	}
	s.probe = redis.NewClient(&redis.Options{Addr: s.proxy.Addr, PoolSize: 1})
	t.Cleanup(func() { _ = s.probe.Close() })
	return s
}

func (s *standalone) reach() (addrs []string, masterName string) { return []string{s.proxy.Addr}, "" }
func (s *standalone) client() redis.UniversalClient              { return s.rdb }

func (s *standalone) ready(context.Context) error { return nil }

func (s *standalone) inject(ctx context.Context, i Injection, fault *Fault) error {
	switch i.Kind {
	case RestartKept, RestartEmpty:
		err := s.noteStalls(ctx)
		if err != nil {
			return err
		}
		s.server.Kill()
		if i.Kind == RestartEmpty {
			if fault.Forgot, err = s.throwAway(ctx); err != nil {
				return err
			}
		}
		_ = sleep.For(ctx, i.For)
		return s.server.Revive(ctx)
	case HangRedis:
		s.server.Pause()
		_ = sleep.For(ctx, i.For)
		s.server.Resume()
	case DelayReplies:
		end, delay := Now()+i.For, time.Duration(5+i.Pick%500)*time.Millisecond
		s.proxy.Delay(delay)
		asked := Now()
		if s.probe.Ping(ctx).Err() == nil && Now()-asked >= delay {
			fault.Hits++
		}
		_ = sleep.For(ctx, end-Now())
		s.proxy.Delay(0)
	case CutConnections:
		const cuts = 5
		before := s.probe.ClientID(ctx).Val()
		for range cuts {
			s.proxy.Cut()
			_ = sleep.For(ctx, i.For/cuts)
		}
		if after := s.probe.ClientID(ctx).Val(); before != 0 && after > before { // by another connection
			fault.Hits++
		}
	case SwallowReplies:
		s.proxy.SwallowReplies(true)
		_ = sleep.For(ctx, i.For)
		s.proxy.SwallowReplies(false)
	case LosePackets:
		s.proxy.BlackHole(true)
		_ = sleep.For(ctx, i.For)
		s.proxy.BlackHole(false)
	case FlushScripts:
		return flushScripts(ctx, s.rdb, fault)
	default:
		return fmt.Errorf("%s: not here", i.Kind)
	}
	return nil
}

// throwAway removes the dead server's data and returns the tasks that were in it.
func (s *standalone) throwAway(ctx context.Context) (map[string]bool, error) {
	const folder = "appendonlydir"
	from, to := filepath.Join(s.server.Dir, folder), filepath.Join(s.reader.Dir, folder)
	if err := errors.Join(os.RemoveAll(to), os.Rename(from, to), s.reader.Revive(ctx)); err != nil {
		return nil, err
	}
	defer s.reader.Kill()
	f := feed{inspector: s.look}
	return f.in(append(f.unfinished(), s.look.ListArchivedTasks)...)
}

// flushScripts makes a server forget its scripts.
func flushScripts(ctx context.Context, rdb *redis.Client, fault *Fault) error {
	_, rest, _ := strings.Cut(rdb.Info(ctx, "memory").Val(), "number_of_cached_scripts:")
	_, _ = fmt.Sscan(rest, &fault.Hits)
	return rdb.ScriptFlush(ctx).Err()
}
