package lock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// A model has the store in memory do whatever a store on Redis does. Their answers, who has the lock, and who waits for it
// have to be the same.
type model struct {
	*setup

	stores  [2]store.Store // Redis, memory
	memory  *locktest.Memory
	rng     *rand.Rand
	leases  []granted // the latest, held or not
	highest [2]int64  // fence
	again   func()    // makes the last call once more, as a client does that has lost the answer
	said    []string  // so far
}

// theirs is what another program puts at the lock's key, for a shorter time than we do: nothing prolongs that. A machine that
// stands still ends neither.
const (
	theirs           = "another program's"
	ourTTL, theirTTL = 2 * time.Hour, time.Hour
)

// A granted lease has a fence from each store.
type granted struct {
	token  string
	fences [2]int64
}

// TestRedisDoesAsMemory makes calls in any order, of holders and of those who wait, some of them twice. Between them the lock
// expires, and another program takes it.
func TestRedisDoesAsMemory(t *testing.T) {
	t.Parallel()
	seed := verify.Seed(t)
	onEach(t, func(s *setup) {
		memory := locktest.NewMemory()
		m := &model{
			setup: s, stores: [2]store.Store{lock.Redis(s.rdb), memory}, memory: memory, rng: rand.New(rand.NewPCG(seed, 0)),
			leases: []granted{{"siding:never:granted", [2]int64{1, 1}}}, again: func() {},
		}
		listening := make(chan struct{})
		go func() { _ = memory.Listen(s.Context(), s.listener, func() { close(listening) }, func(string) {}) }()
		<-listening
		for range 1000 {
			last := m.again
			m.step()
			switch m.rng.IntN(3) {
			case 0:
				m.again()
			case 1:
				last() // late, after another call
			}
			expect.Need(s, !s.Failed(), "after %s", strings.Join(m.said[max(0, len(m.said)-15):], ", "))
		}
	})
}

// step makes one call, or does what happens to a lock.
func (m *model) step() {
	m.Helper()
	handoff := store.Handoff{Nonce: uuid.NewString(), Timeout: ourTTL, QueueTTL: ourTTL}
	waiter := m.name([]string{"", "a", "a\n{b}", "a\n{b}%d*", "siding-reserved:x:1:Größe\xff"}[m.rng.IntN(5)]) // any name will do
	if _, called, reserved := strings.Cut(m.memory.Value(m.key), ":"+store.GoroutinePrefix); reserved && m.rng.IntN(2) == 0 {
		waiter = store.GoroutinePrefix + called
	}
	held := m.leases[m.rng.IntN(len(m.leases))]
	if m.rng.IntN(2) == 0 {
		held = m.leases[len(m.leases)-1] // it may be
	}
	switch m.rng.IntN(12) {
	case 0:
		m.call("renew", func(i int) error { return m.stores[i].Renew(m.Context(), m.key, held.token, ourTTL, ourTTL) })
	case 1:
		m.call("leave by "+m.short(waiter), func(i int) error { return m.stores[i].Leave(m.Context(), m.key, waiter, store.Leave{Handoff: handoff}) })
	case 2:
		m.put([]string{theirs, "", "", ""}[m.rng.IntN(4)])
	case 3, 4, 5:
		m.release(held, handoff)
	default:
		m.acquire(store.Request{
			Key: m.key, Token: "siding:" + uuid.NewString() + ":x", TTL: ourTTL, FenceTTL: ourTTL, Waiter: waiter, Handoff: handoff,
			Waited: time.Duration(m.rng.IntN(3)) * time.Hour, // by more than the clocks of the stores may differ
		})
	}
}

// put has another program take the lock, or the lock expire for "".
func (m *model) put(value string) {
	m.Helper()
	m.said = append(m.said, fmt.Sprintf("put %q", value))
	m.again = func() {}
	put(m.T, m.rdb, m.key, value, theirTTL)
	m.memory.Put(m.key, value, theirTTL)
	m.compare()
}

// acquire asks for the lock. A fence is above all that were granted before, or that of the first of two calls.
func (m *model) acquire(r store.Request) {
	m.Helper()
	var first granted
	send := func() {
		m.Helper()
		have, want := m.ask(0, r), m.ask(1, r)
		m.said = append(m.said, fmt.Sprintf("acquire %q: %+v", m.short(r.Waiter), want))
		same := have.Taken == want.Taken && have.Reserved == want.Reserved && have.Position == want.Position && (have.Reserved || have.Holder == want.Holder)
		expect.That(m, same, "want %+v, have %+v", want, have)
		if have.Taken {
			for i, fence := range []int64{have.Fence, want.Fence} {
				expect.That(m, fence > m.highest[i] || fence == first.fences[i], "want a fence above %d, or %d again, have %d", m.highest[i], first.fences[i], fence)
				m.highest[i] = max(m.highest[i], fence)
			}
			first = granted{r.Token, [2]int64{have.Fence, want.Fence}}
			m.leases = slices.DeleteFunc(m.leases, func(l granted) bool { return l.token == r.Token }) // it has one lease
			m.leases = append(m.leases[max(0, len(m.leases)-2):], first)
		}
		m.compare()
	}
	send()
	m.again = send
}

func (m *model) ask(i int, r store.Request) store.Result {
	m.Helper()
	return expect.Value(m.stores[i].Acquire(m.Context(), r))(m)
}

// release releases a lease. That it has handed the lock on, Redis still knows when the next one has it, for ten seconds.
func (m *model) release(held granted, handoff store.Handoff) {
	m.Helper()
	handsOn, start := m.value() == held.token && len(m.queue()) > 0, time.Now()
	var known error
	m.call("release", func(i int) error {
		err := m.stores[i].Release(m.Context(), m.key, held.token, store.Release{Handoff: handoff, Fence: held.fences[i]})
		switch {
		case i == 0:
			known = err
		case handsOn && time.Since(start) < 5*time.Second:
			return nil
		case handsOn:
			return known // the machine stood still
		}
		return err
	})
}

// call makes a call of which only a loss may be told.
func (m *model) call(what string, do func(i int) error) {
	m.Helper()
	send := func() {
		m.Helper()
		have, want := do(0), do(1)
		m.said = append(m.said, fmt.Sprint(what, ": ", want))
		expect.That(m, errors.Is(have, lock.ErrLost) == (want != nil) && (want != nil || have == nil), "%s: want %v, have %v", what, want, have)
		m.compare()
	}
	send()
	m.again = send
}

// compare compares who has the lock, or for whom it is reserved, and who waits.
func (m *model) compare() {
	m.Helper()
	who := func(value string) string {
		if _, waiter, reserved := strings.Cut(value, ":"+store.GoroutinePrefix); reserved {
			return "reserved for " + waiter
		}
		return value
	}
	expect.Equal(m, "the lock", who(m.value()), who(m.memory.Value(m.key)))
	left, most := m.rdb.PTTL(m.Context(), m.key).Val(), ourTTL
	if m.value() == theirs {
		most = theirTTL
	}
	expect.That(m, m.value() == "" || left > 0 && left <= most, "want it to last %v at most, have %v", most, left)
	waiters := m.memory.Waiters(m.key)
	for i, waiter := range waiters {
		waiters[i] = m.short(waiter)
	}
	m.wantQueue(waiters...)
}
