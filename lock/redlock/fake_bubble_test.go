package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/lock/redlock"
)

// A memory is a node in memory, as one of the processes sees it.
type memory struct {
	lock.Store

	run    string
	delays chan time.Duration // of the requests; nil if nobody wants to know
	fences *sync.Map          // of its memory, by token, for a release that comes again
}

func (m memory) Acquire(ctx context.Context, request store.Request, delay time.Duration) (redlock.Vote, error) {
	if m.delays != nil {
		m.delays <- delay
	}
	request.Waiter = "" // a node has no wait queue
	a, err := m.Store.Acquire(ctx, request)
	if !a.Taken {
		return redlock.No(m.run, a.Holder, a.Left), err
	}
	m.fences.Store(request.Token, a.Fence)
	return redlock.Yes(m.run), err
}

func (m memory) Renew(ctx context.Context, key, token string, ttl time.Duration) (redlock.Vote, error) {
	return m.vote(m.Store.Renew(ctx, key, token, ttl, ttl))
}

func (m memory) Release(ctx context.Context, key, token string) (redlock.Vote, error) {
	how := store.Release{Handoff: store.Handoff{Nonce: "n", Timeout: time.Second, QueueTTL: time.Hour}}
	if fence, ok := m.fences.Load(token); ok {
		how.Fence, _ = fence.(int64)
	}
	return m.vote(m.Store.Release(ctx, key, token, how))
}

func (m memory) vote(err error) (redlock.Vote, error) {
	if errors.Is(err, lock.ErrLost) {
		return redlock.No(m.run, "", 0), nil
	}
	return redlock.Yes(m.run), err
}

// memories are nodes of which the tests in bubbles use the lock of order:1.
type memories []*locktest.Memory

func newMemories(n int) (m memories) {
	for range n {
		m = append(m, locktest.NewMemory())
	}
	return m
}

// open is the store of one more process, with a network to each of the nodes.
func (m memories) open(t *testing.T, cfg redlock.Config) (lock.Store, []*locktest.Network) {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Minute) }) // calls that nobody waited for end
	voters, networks := make([]redlock.Voter, len(m)), make([]*locktest.Network, len(m))
	for i, node := range m {
		store, network := locktest.Faulty(node)
		voters[i], networks[i] = memory{Store: store, run: fmt.Sprint(i), fences: new(sync.Map)}, network
	}
	return redlock.NewOf(cfg, voters...), networks
}

// process is a locker of one more process.
func (m memories) process(t *testing.T, cfg redlock.Config) (*lock.Locker, []*locktest.Network) {
	t.Helper()
	store, networks := m.open(t, cfg)
	return lockerOn(t, store, lock.Config{}), networks
}

const key = "lock:order:1"

// put stores a value on some nodes, as another program would; "" deletes it.
func (m memories) put(value string, nodes ...int) {
	for _, i := range nodes {
		m[i].Put(key, value, time.Hour)
	}
}

// on says which nodes hold something: "+" of ours, "-" of another program, "." of nobody.
func (m memories) on() (nodes string) {
	for _, node := range m {
		switch value := node.Value(key); {
		case value == "":
			nodes += "."
		case len(value) > len("siding:") && value[:len("siding:")] == "siding:":
			nodes += "+"
		default:
			nodes += "-"
		}
	}
	return nodes
}

func (m memories) wantOn(t *testing.T, what, want string) {
	t.Helper()
	expect.Equal(t, what+": the nodes", m.on(), want)
}

// far is a network that takes 10 ms in either direction.
func far(_ context.Context, _ string, act func() error) error {
	time.Sleep(10 * time.Millisecond)
	err := act()
	time.Sleep(10 * time.Millisecond)
	return err
}

// each sets a fault for some of the networks.
func each(networks []*locktest.Network, fault locktest.Fault, nodes ...int) {
	for _, i := range nodes {
		networks[i].Set(fault)
	}
}
