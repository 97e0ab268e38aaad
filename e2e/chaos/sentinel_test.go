//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// sentinel is a master with two replicas and three sentinels.
type sentinel struct {
	*redistest.Sentinel
	*promotions

	rdb   redis.UniversalClient
	nodes map[*redistest.Server]*redis.Client
}

func newSentinel(t *testing.T) *sentinel {
	t.Helper()
	s := &sentinel{Sentinel: redistest.StartSentinel(t), nodes: make(map[*redistest.Server]*redis.Client)}
	s.rdb = s.Client(t)
	for _, node := range s.Servers {
		s.nodes[node] = node.Client(t)
	}
	s.promotions = watchRoles(t, s.nodes)
	return s
}

func (s *sentinel) reach() (addrs []string, masterName string) { return s.Addrs, s.MasterName }
func (s *sentinel) client() redis.UniversalClient              { return s.rdb }

func (s *sentinel) ready(ctx context.Context) error {
	// After many failovers in a row a replica may follow a former master. The sentinels are slow
	// to notice.
	const patience = 3 * time.Second
	told := Now()
	return expect.Until(ctx, func() error {
		// Telling a server what to follow while the sentinels make it the master would have two
		// servers follow each other.
		master, err := s.Settled(ctx)
		if err != nil {
			return err
		}
		if err := isMaster(ctx, s.nodes[master]); err != nil {
			return err
		}
		err = s.follow(ctx, master)
		if err != nil && Now()-told > patience {
			told = Now()
			err = errors.Join(err, s.tell(ctx, master))
		}
		return err
	})
}

// follow returns an error unless the others are in step with the master.
func (s *sentinel) follow(ctx context.Context, master *redistest.Server) error {
	for _, node := range s.Servers {
		if node == master {
			continue
		}
		if err := inStep(ctx, s.nodes[master], s.nodes[node]); err != nil {
			return err
		}
	}
	return nil
}

// tell has the others follow the master. Those that do so already are left alone.
func (s *sentinel) tell(ctx context.Context, master *redistest.Server) error {
	host, port, _ := strings.Cut(master.Addr, ":")
	var errs []error
	for _, node := range s.Servers {
		if node != master {
			errs = append(errs, s.nodes[node].ReplicaOf(ctx, host, port).Err())
		}
	}
	return errors.Join(errs...)
}

func (s *sentinel) inject(ctx context.Context, i Injection, fault *Fault) error {
	old, err := s.FindMaster(ctx)
	if err != nil {
		return err
	}
	switch i.Kind {
	case FlushScripts:
		return flushScripts(ctx, s.nodes[old], fault)
	case Failover, StopMaster:
		return s.replace(ctx, old, i.Kind)
	default:
		return fmt.Errorf("%s: not here", i.Kind)
	}
}

// replace has the sentinels replace the master, which comes back as a replica.
func (s *sentinel) replace(ctx context.Context, old *redistest.Server, how Kind) error {
	halt(old, how)
	err := expect.Until(ctx, func() error {
		now, err := s.FindMaster(ctx)
		if err != nil {
			return err
		}
		if now == old {
			return errors.New("no new master")
		}
		return isMaster(ctx, s.nodes[now])
	})
	if err == nil {
		err = resume(ctx, old, how)
	}
	if err != nil {
		return err
	}
	// A master that was stopped keeps its role until the sentinels tell it, some seconds later.
	return s.ready(ctx)
}
