package chaos_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/chaos"
	"github.com/sidingq/siding/internal/redistest"
)

// promotions are the times at which a replica was seen to have become a master. On
// a machine that is busy enough a master is taken for dead without anybody's doing.
type promotions struct {
	mu sync.Mutex
	at []time.Duration
}

// watchRoles looks at the nodes until the test is over.
func watchRoles(t *testing.T, nodes map[*redistest.Server]*redis.Client) *promotions {
	t.Helper()
	const glance = 100 * time.Millisecond
	p := &promotions{}
	ctx, cancel := context.WithCancel(context.Background())
	var watchers sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		watchers.Wait()
	})
	for _, node := range nodes {
		watchers.Go(func() {
			for replica := false; wait(ctx, glance); {
				info, err := node.Info(ctx, "replication").Result()
				switch {
				case err != nil: // stopped, or dead; it keeps its role
				case strings.Contains(info, "role:slave"):
					replica = true
				case replica:
					replica = false
					p.mu.Lock()
					p.at = append(p.at, chaos.Now())
					p.mu.Unlock()
				}
			}
		})
	}
	return p
}

// uninjected returns the failovers that are not among the faults.
func (p *promotions) uninjected(faults []chaos.Fault) []chaos.Fault {
	const (
		noticed = 3 * time.Second  // after the old master was given up, at the latest
		demoted = 12 * time.Second // after that the old master knows that it is none
	)
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []chaos.Fault
	for _, at := range p.at {
		injected := false
		for _, f := range faults {
			injected = injected || (f.Kind == chaos.Failover || f.Kind == chaos.StopMaster) && f.Start <= at && at <= f.End+time.Second
		}
		if !injected {
			found = append(found, chaos.Fault{Kind: chaos.Uninjected, Start: at - noticed, End: at + demoted})
		}
	}
	return found
}
