//go:build unix

package chaos

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// promotions are the times at which a replica was first seen as a master. On a busy machine the
// others may take a master for dead although no fault was injected.
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
			for replica := false; sleep.For(ctx, glance) == nil; {
				says, err := replication(ctx, node)
				switch {
				case err != nil: // stopped, or dead; it keeps its role
				case says["role"] == "slave":
					replica = true
				case replica:
					replica = false
					p.mu.Lock()
					p.at = append(p.at, Now())
					p.mu.Unlock()
				}
			}
		})
	}
	return p
}

// uninjected returns the failovers that are not among the faults. Each injected one has made one
// replica a master. Sometimes the sentinels choose another one right after.
func (p *promotions) uninjected(faults []Fault) []Fault {
	const (
		seen    = time.Second      // at the latest so long after a fault its promotion is seen
		noticed = 3 * time.Second  // at the latest so long after the old master was given up
		demoted = 12 * time.Second // at the latest so long after, the old master knows its role
	)
	p.mu.Lock()
	defer p.mu.Unlock()
	explained := make(map[int]bool) // faults whose promotion was found
	var found []Fault
	for _, at := range slices.Sorted(slices.Values(p.at)) {
		i := slices.IndexFunc(faults, func(f Fault) bool {
			return (f.Kind == Failover || f.Kind == StopMaster) && f.Start <= at && at <= f.End+seen
		})
		if i < 0 || explained[i] {
			found = append(found, Fault{Kind: Uninjected, Start: at - noticed, End: at + demoted})
			continue
		}
		explained[i] = true
	}
	return found
}

// Each injected failover explains one promotion. Nobody injected those before, after and beyond.
func TestUninjected(t *testing.T) {
	t.Parallel()
	const s = time.Second
	faults := []Fault{
		{Kind: PauseQueue, Start: 50 * s, End: 60 * s},
		{Kind: Failover, Start: 100 * s, End: 105 * s},
		{Kind: StopMaster, Start: 120 * s, End: 125 * s},
	}
	for name, tt := range map[string]struct {
		at, want []time.Duration // when promoted; when uninjected ones were
	}{
		"none":                          {},
		"one of each":                   {at: []time.Duration{102 * s, 123 * s}},
		"seen late":                     {at: []time.Duration{106 * s}},
		"two of one fault":              {at: []time.Duration{105500 * time.Millisecond, 102 * s}, want: []time.Duration{105500 * time.Millisecond}},
		"between faults":                {at: []time.Duration{102 * s, 110 * s}, want: []time.Duration{110 * s}},
		"while something else is wrong": {at: []time.Duration{55 * s}, want: []time.Duration{55 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var have []time.Duration
			for _, f := range (&promotions{at: tt.at}).uninjected(faults) {
				expect.That(t, f.Kind == Uninjected, "want it uninjected, have %v", f.Kind)
				have = append(have, f.Start+3*s)
			}
			expect.That(t, slices.Equal(have, tt.want), "want those at %v, have %v", tt.want, have)
		})
	}
}
