package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// alike checks that at any time the numbers of attempts that have begun on resources differ by at most 2. Their fences
// tell when that was; handlers of attempts that begin together are in any order.
func alike(t *testing.T, visits []visit, resources []string) {
	t.Helper()
	slices.SortFunc(visits, func(a, b visit) int { return cmp.Compare(a.Taken.Fence, b.Taken.Fence) })
	begun := make(map[string]int)
	worst := 0
	for i, v := range visits {
		begun[v.Resource]++
		least, most := begun[v.Resource], begun[v.Resource]
		for _, resource := range resources {
			least, most = min(least, begun[resource]), max(most, begun[resource])
		}
		if most-least > 2 && most-least > worst {
			worst = most - least
			t.Errorf("after %d attempts: want numbers that differ by at most 2, have %v", i+1, begun)
		}
	}
}

// TestResourcesProgressAlikeOnFewerSlots: more resources have waiting tasks than there are slots, as after a deploy
// with fewer slots, or a crash. None has to wait until the others are empty.
func TestResourcesProgressAlikeOnFewerSlots(t *testing.T) {
	t.Parallel()
	const most, less = 8, 4
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash: ", crash), func(t *testing.T) {
			t.Parallel()
			const each = 40
			f, l, resources := newFleet(t), newLedger(t), names(6)
			f.crowd("q", each, resources...)
			may := make(chan struct{}) // an attempt may end
			work := func(*Task) time.Duration { <-may; return 0 }
			first := f.node(l, work, slots(most), ttl(time.Second))
			f.eventually(f.parked("q", 6*(each-1)))
			if crash {
				first.kill()
			}
			for range 6 {
				may <- struct{}{}
			}
			first.shut(t)
			for _, resource := range resources { // crashed ones expire one after the other
				expect.Eventually(t, resource+" free", func() bool { return f.rdb.Exists(t.Context(), "lock:"+resource).Val() == 0 })
			}
			f.node(l, work, slots(less))
			for begun := 6; begun < 5*each; begun += less { // so that each resource has some left
				f.eventually(l.begun(begun + less))
				for range less { // attempts end at the same time, so others begin at the same time
					may <- struct{}{}
				}
			}
			close(may)
			alike(t, l.all()[:5*each], resources)
		})
	}
}

// TestOneStepHandsALockOn: the step that ends an attempt takes the next that waits for its lock. Nobody has to be woken for
// that, and no second step is made.
func TestOneStepHandsALockOn(t *testing.T) {
	t.Parallel()
	const n = 200
	f, l := newFleet(t), newLedger(t)
	f.crowd("q", n, "a")
	f.node(l, always(0))
	f.eventually(l.over(n))
	ctx := context.Background()
	keys, err := f.rdb.Keys(ctx, "siding:step:*").Result()
	expect.Need(t, err == nil && len(keys) != 0 && len(keys) <= taskredis.Lanes, "want the records of one server's steps, have %v, %v", keys, err)
	steps := 0
	for _, key := range keys {
		var n int
		expect.OK(t, expect.Err(fmt.Sscan(f.rdb.Get(ctx, key).Val(), &n)))
		steps += n
	}
	expect.That(t, steps <= n+n/4, "want about %d steps, have %d", n, steps)
}
