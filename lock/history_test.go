package lock_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// clockSlop is by how much the clock of Redis may seem behind, as it counts
// whole milliseconds and reads the time once per command.
const clockSlop = 2 * time.Millisecond

// A history is what the clients of a test did, and what was done to them.
type history struct {
	*testing.T

	cfg  lock.Config
	keys []string
	rng  *rand.Rand
	life time.Duration // how long the clients work, from the first on
	end  time.Time     // when they end; zero before the first
	busy bool          // whether a refusal must have a reason

	crews sync.WaitGroup

	mu     sync.Mutex
	events []event
}

func newHistory(t *testing.T, seed uint64, life time.Duration) *history {
	t.Helper()
	h := &history{
		T: t,
		cfg: lock.Config{
			Prefix:         "lock:",
			TTL:            400 * time.Millisecond,
			RenewEvery:     100 * time.Millisecond,
			SafetyMargin:   40 * time.Millisecond,
			HandoffTimeout: 100 * time.Millisecond,
		},
		busy: true,
		life: life,
		rng:  rand.New(rand.NewPCG(seed, 0)),
	}
	for i := range 3 {
		h.keys = append(h.keys, fmt.Sprintf("%s:%d:%d", t.Name(), time.Now().UnixNano(), i))
	}
	return h
}

// inHistory has run start crews, and do harm, and checks the history that results. If hardly any call was
// answered in time, as on a busy machine, it makes another history, which lasts longer. If the check
// took too long, it makes another one of the same length: some histories are easier to check.
func inHistory(t *testing.T, run func(h *history)) {
	t.Helper()
	life := 2500 * time.Millisecond
	if verify.All() {
		life *= 2 // so that no mistake stays hidden by chance
	}
	seed := verify.Seed(t)
	longest, unknown := 8*life, 0
	for {
		h := newHistory(t, seed, life)
		run(h)
		switch enough, known := h.check(); {
		case enough && known:
			return
		case !known:
			if unknown++; unknown == 3 {
				t.Fatalf("no history of %d was checked within %v", unknown, patience)
			}
		case life == longest:
			t.Fatal("want a history in which locks are taken and used")
		default:
			life *= 2
		}
	}
}

func (h *history) note(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// crew is the crew of that number, for the time that is left.
func (h *history) crew(number int) crew {
	if h.end.IsZero() {
		h.end = time.Now().Add(h.life)
	}
	return crew{
		number: number, clients: 2, keys: h.keys, config: h.cfg,
		seed: h.rng.Uint64(), lasts: time.Until(h.end),
	}
}

// start has a crew work.
func (h *history) start(number int, rdb redis.UniversalClient) {
	crew := h.crew(number)
	h.crews.Go(func() {
		if err := crew.run(h.Context(), rdb, h.note); err != nil {
			h.Error(err)
		}
	})
}

// startProxied has a crew work through a proxy. Every second one has a Redis client that tries again by itself.
func (h *history) startProxied(number int, addr string) *locktest.Proxy {
	h.Helper()
	proxy := locktest.NewProxy(h.T, addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, MaxRetries: -(number % 2)})
	h.Cleanup(func() { _ = rdb.Close() })
	h.start(number, rdb)
	return proxy
}

// plague does harm, with pauses in between, until the crews are nearly done.
func (h *history) plague(harm func()) {
	h.Helper()
	for time.Until(h.end) > h.cfg.TTL {
		h.rest(20*time.Millisecond, h.cfg.TTL/2)
		harm()
	}
}

func (h *history) rest(low, high time.Duration) {
	_ = sleep.For(h.Context(), h.between(low, high))
}

func (h *history) between(low, high time.Duration) time.Duration {
	return low + time.Duration(h.rng.Int64N(int64(high-low)))
}

// forget notes that harm makes the server forget locks, of which the clients are not told.
func (h *history) forget(keys []string, harm func()) {
	h.Helper()
	start := time.Now()
	harm()
	h.forgotten(keys, start)
}

// forgotten notes that the server may have forgotten locks between start and now.
func (h *history) forgotten(keys []string, start time.Time) {
	from, to := start.UnixNano(), time.Now().UnixNano()
	for _, key := range keys {
		h.note(event{kind: opForget, key: key, call: from, ret: to, outcome: outOpen})
	}
}

// operations makes operations of the events, with the refusals and what may be their reason if busy
// is set. An operation that has not ended is open.
func (h *history) operations(busy bool) []porcupine.Operation {
	type held struct {
		event
		taken int // how often it was taken, less the releases that were answered with ok
	}
	const never = math.MaxInt64
	h.mu.Lock()
	events := slices.Clone(h.events) // the answer to a renewal may still come
	h.mu.Unlock()
	var all []porcupine.Operation
	add := func(e event) {
		if e.outcome == outOpen && e.kind != opForget {
			e.ret = never
		}
		all = append(all, porcupine.Operation{
			ClientId: e.client, Call: e.call, Return: e.ret,
			Input: op{e.kind, e.key, e.lease}, Output: result{e.outcome, e.fence},
		})
	}
	answered := make(map[event]int64) // when the last call was sent that was answered, by key and fence
	leases := make(map[string]*held)
	for _, e := range events {
		switch {
		case e.kind == evAnswered:
			of := event{key: e.key, fence: e.fence}
			answered[of] = max(answered[of], e.call)
			continue
		case e.kind == opAcquire && e.outcome != outOK && !busy:
			continue
		case e.kind == opAcquire && e.outcome != outBusy:
			leases[e.lease] = &held{event: e, taken: 1}
		case e.kind == opAgain && e.outcome == outOK:
			leases[e.lease].taken++
		case e.kind == opRelease && e.outcome == outOK:
			leases[e.lease].taken--
		}
		add(e)
	}
	for _, l := range leases {
		if l.taken == 0 {
			continue
		}
		if l.outcome == outOK {
			l.call = answered[event{key: l.key, fence: l.fence}] + int64(h.cfg.TTL-clockSlop)
		}
		l.kind, l.outcome = opExpire, outOpen
		add(l.event)
	}
	return all
}

// check waits for the crews, and checks the history of the locks. A first check leaves out busy
// answers, and finds a mistake quickly. A second check has them, too. enough is false if locks were
// hardly taken and used. known is false if the check took too long; in make test the first one will do.
func (h *history) check() (enough, known bool) {
	h.Helper()
	h.crews.Wait()
	for _, busy := range []bool{false, true} {
		if busy && !h.busy {
			return enough, true
		}
		ops := h.operations(busy)
		count := make(map[string]int)
		for _, o := range ops {
			count[as[op](o.Input).Kind+" "+as[result](o.Output).Outcome]++
		}
		start := time.Now()
		verdict, info := porcupine.CheckOperationsVerbose(fencedMutex, ops, patience)
		h.Logf("%d operations, checked in %v: %v", len(ops), time.Since(start).Round(time.Millisecond), count)
		enough = count["acquire ok"] >= 10 && count["use ok"] >= 20
		switch verdict {
		case porcupine.Ok:
		case porcupine.Unknown: // the second one, of many calls of which nobody has heard, may take for ever
			return enough, busy && !verify.All()
		case porcupine.Illegal:
			file := filepath.Join(h.ArtifactDir(), "history.html")
			if err := porcupine.VisualizePath(fencedMutex, info, file); err != nil {
				h.Error(err)
			}
			h.Fatalf("no fenced mutex behaves like this, see %s (kept with -artifacts)\n%s", file, explained(info))
		}
	}
	return enough, true
}

// explained shows how far the model explains the history of each lock. What comes after that is in the picture.
func explained(info porcupine.LinearizationInfo) string {
	const shown = 12
	var text strings.Builder
	for _, orders := range info.PartialLinearizationsOperations() {
		var best []porcupine.Operation
		for _, order := range orders {
			if len(order) > len(best) {
				best = order
			}
		}
		state := fencedMutex.Init()
		for i, o := range best {
			_, state = fencedMutex.Step(state, o.Input, o.Output)
			if i >= len(best)-shown {
				at := time.Duration(o.Call - best[0].Call).Round(time.Microsecond)
				fmt.Fprintf(&text, "\t%-50s after %v\n", fencedMutex.DescribeOperation(o.Input, o.Output), at)
			}
		}
		fmt.Fprintf(&text, "then the lock is in %s\n", fencedMutex.DescribeState(state))
	}
	return text.String()
}

func TestHistoryWithoutFaults(t *testing.T) {
	t.Parallel()
	inHistory(t, func(h *history) {
		server := redistest.Shared(t)
		for i := range 4 {
			h.start(i, server.Client(t))
		}
	})
}

// TestHistoryOfABadNetwork has one crew after the other cut off in one way.
func TestHistoryOfABadNetwork(t *testing.T) {
	t.Parallel()
	faults := map[string]func(*history, *locktest.Proxy){
		"black hole": func(h *history, p *locktest.Proxy) {
			p.BlackHole(true)
			h.rest(h.cfg.TTL/4, h.cfg.TTL*3/2)
			p.BlackHole(false)
		},
		"lost replies": func(h *history, p *locktest.Proxy) {
			p.SwallowReplies(true)
			h.rest(time.Millisecond, h.cfg.TTL*3/2)
			p.SwallowReplies(false)
		},
		"delays and cuts": func(h *history, p *locktest.Proxy) {
			p.Delay(h.between(time.Millisecond, h.cfg.TTL))
			h.rest(time.Millisecond, h.cfg.TTL*3/2)
			p.Cut()
			p.Delay(0)
		},
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inHistory(t, func(h *history) {
				server := redistest.Shared(t)
				var proxies []*locktest.Proxy
				for i := range 4 {
					proxies = append(proxies, h.startProxied(i, server.Addr))
				}
				h.plague(func() { faults[name](h, proxies[h.rng.IntN(len(proxies))]) })
			})
		})
	}
}

// TestHistoryOfABadServer does to Redis what an operator, or the machine, may do.
func TestHistoryOfABadServer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		harm func(h *history, server *redistest.Server, admin *redis.Client)
		long bool
	}{
		"slow and without scripts": {harm: func(h *history, server *redistest.Server, admin *redis.Client) {
			expect.OK(h, admin.ScriptFlush(h.Context()).Err())
			if h.rng.IntN(4) == 0 {
				server.Pause()
				h.rest(h.cfg.TTL/2, h.cfg.TTL*3/2)
				server.Resume()
			}
		}},
		"the keys of held locks are deleted": {harm: func(h *history, _ *redistest.Server, admin *redis.Client) {
			key := h.keys[h.rng.IntN(len(h.keys))]
			h.forget([]string{key}, func() { expect.OK(h, admin.Del(h.Context(), h.cfg.Prefix+key).Err()) })
		}},
		"restarted, without its data": {harm: func(h *history, server *redistest.Server, _ *redis.Client) {
			h.rest(h.cfg.TTL/2, h.cfg.TTL)
			h.forget(h.keys, func() { server.Restart(h.T) })
		}, long: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.long {
				verify.Long(t)
			}
			inHistory(t, func(h *history) {
				server := redistest.Start(t)
				admin := server.Client(t)
				for i := range 4 {
					h.start(i, server.Client(t))
				}
				h.plague(func() { tt.harm(h, server, admin) })
			})
		})
	}
}

// TestHistoryOfAFailover kills the master; its replica may not know all that it
// had acknowledged, also releases.
func TestHistoryOfAFailover(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	inHistory(t, func(h *history) {
		h.busy = false
		sentinel := redistest.StartSentinel(t)
		h.life += 2500 * time.Millisecond // in which there is no master
		for i := range 4 {
			h.start(i, sentinel.Client(t))
		}
		h.rest(h.cfg.TTL, 2*h.cfg.TTL)
		client := sentinel.Client(t)
		h.forget(h.keys, func() {
			sentinel.Master(t).Kill()
			expect.Eventually(t, "a Redis that writes", func() bool { return client.Set(t.Context(), t.Name(), 1, 0).Err() == nil })
		})
		// On a busy machine the Sentinels may take the new master for dead, too, and make the other replica the master.
		master, since := sentinel.Master(t), time.Now()
		h.crews.Wait()
		if sentinel.Master(t) != master {
			h.forgotten(h.keys, since)
		}
	})
}
