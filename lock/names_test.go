package lock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

// oddNames are kinds of keys that locks can have; %s is unique.
var oddNames = map[string]struct{ prefix, resource string }{
	"as usual":            {"", "%s"},
	"a prefix of its own": {"shop:", "%s"},
	"no prefix":           {lock.NoPrefix, "%s"},
	"no prefix, and the usual one in its name": {lock.NoPrefix, "lock:%s"},
	"no prefix, and nothing but a hash tag":    {lock.NoPrefix, "{%s}"},
	"a hash tag":                               {"", "user:{%s}:cart"},
	"braces in braces":                         {"", `{"user":{"id":"%s"}}`},
	"a prefix of its own and a hash tag":       {"shop:", "{%s}:cart"},
}

// Each of them has a whole life: leases, fences, the wait queue and permits. Data of a program with names like ours stays as it is.
func TestOddNames(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for name, tc := range oddNames {
			s.Run(name, func(t *testing.T) {
				t.Parallel()
				other := *s
				other.T = t
				other.with(lock.Config{Prefix: tc.prefix}).on(fmt.Sprintf(tc.resource, uuid.NewString())).live()
			})
		}
	})
}

// TestCluster: in a Cluster all keys of such a lock share a slot, else a script would be refused.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	s := setUp(t, cluster.Client(t), lock.Config{})
	for range 5 { // the names are random, and each master is to have some
		for name, tc := range oddNames {
			one := s.with(lock.Config{Prefix: tc.prefix}).on(fmt.Sprintf(tc.resource, uuid.NewString()))
			t.Logf("%s: %s", name, one.key)
			one.live()
		}
		if !slices.ContainsFunc(cluster.Nodes, func(n *redistest.Server) bool { return n.Client(t).DBSize(t.Context()).Val() == 0 }) {
			return
		}
	}
	t.Error("want locks on all masters")
}

// live has the lock taken, awaited and released, with permits and without, and then again beside the data of a program.
func (s *setup) live() {
	s.Helper()
	s.takeAndRelease()
	theirs := make(map[string]string)
	for _, what := range []string{"fence", "queue", "lines", "freed", "permits", "permit:1", "starts", "revoked"} {
		key := "{" + s.key + "}:" + what
		if key == store.Beside(s.key, what) {
			continue
		}
		expect.OK(s, s.rdb.Set(s.Context(), key, "theirs", time.Minute).Err())
		theirs[key] = "theirs"
	}
	s.takeAndRelease()
	for key, want := range theirs {
		expect.Equal(s, key+", where a program has put something", s.rdb.Get(s.Context(), key).Val(), want)
	}
}

func (s *setup) takeAndRelease() {
	s.Helper()
	first := s.take("")
	s.join("w1", "w2")
	s.handOff(first, "w1")
	second := s.take("w1")
	expect.That(s, second.Fence() > first.Fence(), "want a fence above %d, have %d", first.Fence(), second.Fence())
	wantLost(s, "renew", first.Renew(s.Context()))
	expect.OK(s, second.Renew(s.Context()))
	s.handOff(second, "w2")
	s.leave("w2")

	two := &store.Rule{Limit: 2}
	a, b := s.of(two).take(""), s.of(two).take("")
	s.wantPermits(1, 2)
	_ = s.of(two).refuse("w3")
	expect.OK(s, b.Renew(s.Context()))
	s.release(b)
	s.wantReserved("w3")
	s.release(s.of(two).take("w3"))
	s.release(a)
	s.wantPermits()
}

// Without a prefix, too, no lock has the name of what is asynq's, ours, or beside another lock.
func TestNamesOfOthers(t *testing.T) {
	t.Parallel()
	client := expect.Value(lease.New(newFake().Store, lease.Config{Prefix: lock.NoPrefix}))(t)
	for _, name := range []string{
		"asynq:queues", "asynq:{default}:pending", "siding:slots", "siding-goroutine:x", "{lock:a}:fence",
		taskredis.WaitPrefix + "lock:a", "{" + taskredis.WaitPrefix + "lock:a}:lines",
	} {
		expect.Is(t, name, client.Check(name), lock.ErrResource)
	}
}
