package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

// A setup is a test with a locker of ours, a peer and a resource for both.
type setup struct {
	*testing.T
	peer
	rdb    *redis.Client
	locker *lock.Locker
	res    string
	key    string // of res for both
}

// onEach runs a test with every peer.
func onEach(t *testing.T, run func(*setup)) {
	t.Helper()
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			run(setUp(t, p.on))
		})
	}
}

func setUp(t *testing.T, on func(*redis.Client) peer) *setup {
	t.Helper()
	// Two programs, so two clients.
	server := redistest.Shared(t)
	rdb := server.Client(t)
	locker := expect.Value(lock.New(lock.Redis(rdb), lock.Config{TTL: ttl}))(t)
	t.Cleanup(locker.Close)
	return &setup{
		T:      t,
		peer:   on(server.Client(t)),
		rdb:    rdb,
		locker: locker,
		res:    t.Name(),
		key:    "lock:" + t.Name(),
	}
}

// weTake takes the lock, which must be free, for us.
func (s *setup) weTake() *lock.Lease {
	s.Helper()
	lease, err := s.locker.Acquire(s.Context(), s.res, nil)
	if err != nil {
		s.Fatalf("want the lock, have %v", err)
	}
	return lease
}

// peerTakes takes the lock, which must be free, for the peer.
func (s *setup) peerTakes() held {
	s.Helper()
	h, err := s.Take(s.Context(), s.key)
	if err != nil {
		s.Fatalf("want the lock for the peer, have %v", err)
	}
	return h
}

// weAreRefused checks that we see the peer's lock.
func (s *setup) weAreRefused() *lock.BusyError {
	s.Helper()
	lease, err := s.locker.Acquire(s.Context(), s.res, nil)
	var busy *lock.BusyError
	if !errors.As(err, &busy) {
		s.Fatalf("want us refused, have lease %v and error %v", lease, err)
	}
	if !busy.Foreign || busy.Holder != "another program" {
		s.Errorf("want another program, have foreign %t, holder %q", busy.Foreign, busy.Holder)
	}
	return busy
}

// peerIsRefused checks that the peer sees that the lock is taken.
func (s *setup) peerIsRefused() {
	s.Helper()
	if _, err := s.Take(s.Context(), s.key); !s.IsTaken(err) {
		s.Fatalf("want the peer refused, have %v", err)
	}
}

// release ends a lease or a peer's lock, which must still stand.
func (s *setup) release(l interface{ Release(context.Context) error }) {
	s.Helper()
	if err := l.Release(s.Context()); err != nil {
		s.Fatalf("release: %v", err)
	}
}

// shorten leaves the lock so long to live, whoever holds it.
func (s *setup) shorten(left time.Duration) {
	s.Helper()
	if ok, err := s.rdb.PExpire(s.Context(), s.key, left).Result(); err != nil || !ok {
		s.Fatalf("want a lock at %s, have %v, %v", s.key, ok, err)
	}
}

// expire lets the lock run out and returns when it is gone.
func (s *setup) expire() {
	s.Helper()
	s.shorten(time.Millisecond)
	expect.Eventually(s.T, "the lock expired", func() bool { return s.rdb.Exists(s.Context(), s.key).Val() == 0 })
}

// left returns how long the lock has to live, whoever holds it.
func (s *setup) left() time.Duration {
	s.Helper()
	left := expect.Value(s.rdb.PTTL(s.Context(), s.key).Result())(s)
	return left
}
