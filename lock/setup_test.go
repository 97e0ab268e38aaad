package lock_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

// onEach runs a test on the servers that the scripts have to mean the same on.
func onEach(t *testing.T, run func(*setup)) {
	t.Helper()
	for name, server := range map[string]string{"redis": "redis", "embedded": "miniredis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(setUp(t, servers[server](t)(t), lock.Config{}))
		})
	}
}

// onEachOf runs a test of each case against every backend.
func onEachOf[C any](t *testing.T, cases map[string]C, run func(*setup, C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) { run(s, c) })
		})
	}
}

// tasks has the methods by which package queue takes locks.
type tasks struct{ *lease.Client }

// A setup is a test with a locker and a resource of its own.
type setup struct {
	*testing.T
	*lock.Locker
	tasks

	cfg             lease.Config
	rule            *store.Rule // for [setup.ask]; nil for none
	rdb             redis.UniversalClient
	start           time.Time
	listener        string // hears of those who wait by [setup.ask]
	res             string
	key, fence, row string // the Redis keys of res: the lock, its fencing token, its wait queue
}

func setUp(t *testing.T, rdb redis.UniversalClient, cfg lock.Config) *setup {
	t.Helper()
	s := (&setup{T: t, rdb: rdb, start: time.Now(), listener: uuid.NewString()}).with(cfg).on(t.Name())
	s.listen()
	return s
}

// listen has somebody listen for the waiters of [setup.ask].
func (s *setup) listen() {
	s.Helper()
	heard := s.rdb.Subscribe(context.WithoutCancel(s.Context()), store.GoroutinePrefix+s.listener)
	s.Cleanup(func() { _ = heard.Close() })
	expect.OK(s, expect.Err(heard.Receive(s.Context())))
}

// name returns the full name of a waiter, and short what the test calls it.
func (s *setup) name(waiter string) string {
	if waiter == "" {
		return ""
	}
	return store.GoroutinePrefix + s.listener + ":" + waiter
}

func (s *setup) short(name string) string {
	return strings.TrimPrefix(name, store.GoroutinePrefix+s.listener+":")
}

// with returns the same setup with a locker of another configuration.
// Unless it says otherwise, a reservation lasts longer than a machine stands still.
func (s *setup) with(cfg lock.Config) *setup {
	s.Helper()
	cfg.HandoffTimeout = cmp.Or(cfg.HandoffTimeout, time.Minute)
	store := lock.Redis(s.rdb)
	locker := expect.Value(lock.New(store, cfg))(s)
	s.Cleanup(locker.Close)
	client := expect.Value(lease.New(store, lease.Config(cfg)))(s)
	s.Cleanup(client.Close)
	other := *s
	other.Locker, other.Client, other.cfg = locker, client, client.Config()
	return &other
}

// on returns the same setup with another resource.
func (s *setup) on(resource string) *setup {
	other := *s
	other.res = resource
	other.key = s.cfg.KeyPrefix() + resource
	other.fence, other.row = store.Beside(other.key, "fence"), store.Beside(other.key, "queue")
	return &other
}

// stranger returns the same setup with a locker of its own, as in another process.
func (s *setup) stranger() *setup { s.Helper(); return s.with(lock.Config(s.cfg)) }

// of returns the same setup with a rule.
func (s *setup) of(rule *store.Rule) *setup {
	other := *s
	other.rule = rule
	return &other
}

// take acquires the lock in a process of its own, for a waiter if it is not "".
func (s *setup) take(waiter string) *lease.Lease {
	s.Helper()
	held, err := s.stranger().ask(waiter)
	expect.Need(s, err == nil, "acquire for %q: %v", waiter, err)
	s.Cleanup(func() { abandon(held) })
	return held
}

// ask tries to acquire the lock, for a waiter if it is not "".
func (s *setup) ask(waiter string) (*lease.Lease, error) {
	held, busy, err := s.Ask(s.Context(), lease.Request{Resource: s.res, Holder: "holder of " + waiter, Waiter: s.name(waiter), Rule: s.rule})
	switch {
	case err != nil:
		return nil, err
	case busy != nil:
		return nil, busy
	}
	held.Start(func() {})
	return held, nil
}

// takeOnceFree acquires the lock as soon as it can be had.
func (s *setup) takeOnceFree() (held *lock.Lease) {
	s.Helper()
	err := expect.Until(s.Context(), func() (err error) {
		held, err = s.stranger().Acquire(s.Context(), s.res, nil)
		return err
	})
	expect.OK(s, err)
	s.Cleanup(func() { abandon(held) })
	return held
}

// refuse tries to acquire the lock, which must be busy.
func (s *setup) refuse(waiter string) *lease.BusyError {
	s.Helper()
	held, err := s.stranger().ask(waiter)
	var busy *lease.BusyError
	expect.Need(s, errors.As(err, &busy), "acquire for %q: want a BusyError, have a lease: %t, and error %v", waiter, held != nil, err)
	return busy
}

// join puts waiters in the wait queue: each finds the lock busy.
func (s *setup) join(waiters ...string) {
	s.Helper()
	for _, w := range waiters {
		_ = s.refuse(w)
	}
}

// release releases the lease, which must still be held.
func (s *setup) release(held interface{ Release(context.Context) error }) {
	s.Helper()
	expect.OK(s, held.Release(s.Context()))
}

// handOff releases the lease, and checks for whom the lock is then reserved, "" for nobody.
func (s *setup) handOff(held interface{ Release(context.Context) error }, want string) {
	s.Helper()
	s.release(held)
	s.wantNext(want)
}

// wantNext checks for whom the lock is reserved, "" for nobody.
func (s *setup) wantNext(want string) {
	s.Helper()
	have := ""
	if parts := strings.SplitN(s.value(), ":", 4); parts[0] == "siding-reserved" {
		have = s.short(parts[3])
	}
	expect.Need(s, have == want, "want the lock reserved for %q, have %q", want, have)
}

// leave takes a waiter out of the wait queue.
func (s *setup) leave(waiter string) {
	s.Helper()
	expect.OK(s, s.Leave(s.Context(), lease.Request{Resource: s.res, Waiter: s.name(waiter)}))
}

// expire lets what is held or reserved run out, as if its time had passed.
func (s *setup) expire() {
	s.Helper()
	n := s.rdb.Del(s.Context(), s.key).Val()
	expect.Need(s, n == 1, "want a lock to expire, have none")
}

// value returns what the lock's key holds, "" when it is free.
func (s *setup) value() string {
	s.Helper()
	v, err := s.rdb.Get(s.Context(), s.key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.Fatal(err)
	}
	return v
}

// wantFree checks that nobody has the lock, and that it is reserved for nobody.
func (s *setup) wantFree() {
	s.Helper()
	expect.Equal(s, "what a free lock holds", s.value(), "")
}

// queue returns the waiters in the wait queue, the head first.
func (s *setup) queue() []string {
	s.Helper()
	waiters := expect.Value(s.rdb.ZRange(s.Context(), s.row, 0, -1).Result())(s)
	for i, waiter := range waiters {
		waiters[i] = s.short(waiter)
	}
	return waiters
}

// wantTTL checks that key expires after low to high from now.
func (s *setup) wantTTL(key string, low, high time.Duration) {
	s.Helper()
	s.wantLeft(key, low, high, s.rdb.PTTL(s.Context(), key).Val())
}

// wantLeft checks how long something still lasts. A machine that stands still in the
// middle of the test leaves less of it.
func (s *setup) wantLeft(what string, low, high, have time.Duration) {
	s.Helper()
	expect.That(s, have >= low-time.Since(s.start) && have <= high, "want %s to last %v to %v, have %v", what, low, high, have)
}

func TestMain(m *testing.M) {
	// A client of go-redis that was closed while it had no server looks again within a second, and then ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// patience bounds every wait for something that must happen; only a test that
// fails waits for its end.
const patience = 20 * time.Second

// A bubble is a test on a fake clock of its own.
type bubble struct{ *testing.T }

// inBubbles runs a test of each case in a bubble.
func inBubbles[C any](t *testing.T, cases map[string]C, test func(t bubble, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(bubble{t}, c) })
		})
	}
}

// wantLost checks the error of a call for a lease that has ended.
func wantLost(tb testing.TB, what string, err error) {
	tb.Helper()
	expect.That(tb, errors.Is(err, lock.ErrLost) && !errors.Is(err, lock.ErrBusy), "%s: want ErrLost, have %v", what, err)
}

// wantBusy checks the error of a call that was refused.
func wantBusy(tb testing.TB, what string, err error) {
	tb.Helper()
	expect.That(tb, errors.Is(err, lock.ErrBusy) && !errors.Is(err, lock.ErrLost), "%s: want ErrBusy, have %v", what, err)
}

// wantBroken checks the error of a call that the store did not answer, or not as it should.
func wantBroken(tb testing.TB, what string, err error) {
	tb.Helper()
	expect.That(tb, err != nil && !errors.Is(err, lock.ErrBusy) && !errors.Is(err, lock.ErrLost),
		"%s: want an error that is neither busy nor lost, have %v", what, err)
}
