package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/verify"
)

// TestSetsOfKilledServers: transfers between 50 accounts, and one task in twenty that needs 16 of them, on four servers with 20
// slots in all, of which two are killed. Nobody has an account of another (the ledger looks), and each task runs.
func TestSetsOfKilledServers(t *testing.T) {
	t.Parallel()
	tasks, kills := 400, 2
	if verify.All() {
		tasks, kills = 20_000, 8
	}
	const accounts, large, servers, each = 50, 16, 4, 5
	const lasts = 5 * time.Second // longer than a busy machine has a server stand still
	const work = 20 * time.Millisecond
	for _, kills := range []int{0, kills} { //nolint:paralleltest // as each logs its speed
		t.Run(fmt.Sprint(kills), func(t *testing.T) {
			f, l := newFleet(t), newLedger(t)
			r := rand.New(rand.NewPCG(verify.Seed(t), 0))
			var needs [][]int
			for n := range tasks {
				size := 2
				if n%20 == 0 {
					size = large
				}
				needs = append(needs, r.Perm(accounts)[:size])
				all := make([]string, size)
				for i, account := range needs[n] {
					all[i] = fmt.Sprint("account:", account)
				}
				f.add("q", store.Join(all...))
			}
			start := func() *node { return f.node(l, always(work), slots(each), ttl(lasts), needsItsPayload) }
			began := time.Now()
			var nodes []*node
			for range servers {
				nodes = append(nodes, start())
			}
			for n := range kills {
				f.within(5*time.Minute, l.begun((n+1)*tasks/(kills+1)))
				for !l.works(nodes[0]) { // it is to die at work
					nodes = append(nodes[1:], nodes[0])
				}
				nodes[0].kill()
				nodes = append(nodes[1:], start())
			}
			f.within(5*time.Minute, func() error {
				left := f.rdb.Exists(t.Context(), taskredis.PendingKey("q"), taskredis.ActiveKey("q"), taskredis.RetryKey("q"))
				if left.Err() == nil && left.Val() > 0 {
					return errors.New("want all tasks done")
				}
				return left.Err()
			})
			took, done := time.Since(began), make(map[string]bool)
			longest := make(map[int]time.Duration) // by how many they need
			for _, v := range l.all() {
				done[v.ID] = true
				n := len(store.Names(v.Resource))
				longest[n] = max(longest[n], v.began.Sub(began))
			}
			if len(done) != tasks {
				t.Errorf("want %d tasks done, have %d", tasks, len(done))
			}
			ideal := time.Duration(rounds(needs, accounts, servers*each)) * work
			t.Logf("%d tasks, %d servers killed: %v; an ideal schedule takes %v; the last of two accounts began after %v, the last of %d after %v",
				tasks, kills, took.Round(time.Millisecond), ideal, longest[2].Round(time.Millisecond), large, longest[large].Round(time.Millisecond))
		})
	}
}

// works reports whether a handler of a node is at work.
func (l *ledger) works(n *node) bool {
	return slices.ContainsFunc(l.all(), func(v visit) bool { return v.node == n && v.ended.IsZero() })
}

func needsItsPayload(c *Config) {
	c.Need = func(m *taskredis.Message, _ bool) (Need, error) { return Need{Resource: string(m.Payload)}, nil }
}

// rounds returns how long tasks of one length take, in that length, on so many slots, if each starts as soon as it is the first in
// all its lines and nothing costs any time.
func rounds(needs [][]int, accounts, slots int) (n int) {
	for left := needs; len(left) > 0; n++ {
		taken, free := make([]bool, accounts), slots
		var wait [][]int
		for _, task := range left {
			first := free > 0
			for _, account := range task {
				first = first && !taken[account]
			}
			for _, account := range task {
				taken[account] = true
			}
			if first {
				free--
			} else {
				wait = append(wait, task)
			}
		}
		left = wait
	}
	return n
}
