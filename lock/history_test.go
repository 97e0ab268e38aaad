//go:build unix

package lock_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
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

// crewEnv makes TestHelperCrew the process of a crew. The variable holds the crew as JSON.
const crewEnv = "LOCK_TEST_CREW"

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

// crew is the crew of that number, for the time that is left. Every second one has
// a Redis client that tries again by itself.
func (h *history) crew(number int) crew {
	if h.end.IsZero() {
		h.end = time.Now().Add(h.life)
	}
	return crew{
		Number: number, Clients: 2, Keys: h.keys, Config: h.cfg,
		Seed: h.rng.Uint64(), For: time.Until(h.end), Retries: -(number % 2),
	}
}

// start has a crew work in this process.
func (h *history) start(number int, rdb redis.UniversalClient) {
	crew := h.crew(number)
	h.crews.Go(func() {
		if err := crew.run(h.Context(), rdb, h.note); err != nil {
			h.Error(err)
		}
	})
}

// startProxied has a crew work in this process, through a proxy.
func (h *history) startProxied(number int, addr string) *locktest.Proxy {
	h.Helper()
	proxy := locktest.NewProxy(h.T, addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, MaxRetries: -(number % 2)})
	h.Cleanup(func() { _ = rdb.Close() })
	h.start(number, rdb)
	return proxy
}

// startProcess has a crew work in a process of its own.
func (h *history) startProcess(number int, addr string) *exec.Cmd {
	h.Helper()
	crew := h.crew(number)
	crew.Addr = addr
	text := expect.Value(json.Marshal(crew))(h)
	ctx, cancel := context.WithTimeout(h.Context(), h.life+3*patience)
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestHelperCrew$", "-test.v")
	cmd.Env = append(os.Environ(), crewEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	// Should this process die without a cleanup, the kernel wakes and ends the
	// other one: POSIX hangs up a stopped group that nobody is left to continue.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := expect.Value(cmd.StdoutPipe())(h)
	expect.OK(h, cmd.Start())
	h.crews.Go(func() {
		defer cancel()
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) == nil { // else it is of package testing
				h.note(e)
			}
		}
		err := cmd.Wait()
		if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.Exited()) {
			h.Errorf("crew %d was not killed, and failed: %v", number, err)
		}
	})
	return cmd
}

// TestHelperCrew is no test but the process of a crew.
func TestHelperCrew(t *testing.T) {
	t.Parallel()
	text := os.Getenv(crewEnv)
	if text == "" {
		return
	}
	var c crew
	expect.OK(t, json.Unmarshal([]byte(text), &c))
	rdb := redis.NewClient(&redis.Options{Addr: c.Addr, ContextTimeoutEnabled: true, MaxRetries: c.Retries})
	defer rdb.Close()
	var mu sync.Mutex
	err := c.run(t.Context(), rdb, func(e event) {
		line, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		mu.Lock()
		defer mu.Unlock()
		_, _ = os.Stdout.Write(append(line, '\n')) // one call: what is written stays, also when we are killed
	})
	expect.OK(t, err)
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
		h.note(event{Op: fmt.Sprintf("forget %s %d", key, from), Kind: opForget, Key: key, Call: from, Return: to, Outcome: outOpen})
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
	ops := make(map[string]event)
	answered := make(map[event]int64) // when the last call was sent that was answered, by key and fence
	for _, e := range events {
		if e.Kind == evAnswered {
			of := event{Key: e.Key, Fence: e.Fence}
			answered[of] = max(answered[of], e.Call)
			continue
		}
		if e.Outcome == "" {
			e.Outcome = outOpen
		}
		if first, ok := ops[e.Op]; ok {
			e.Call = first.Call
		}
		ops[e.Op] = e
	}
	leases := make(map[string]*held)
	for _, e := range ops {
		if e.Kind == opAcquire && e.Outcome != outOK && !busy {
			delete(ops, e.Op)
		} else if e.Kind == opAcquire && e.Outcome != outBusy {
			leases[e.Lease] = &held{event: e, taken: 1}
		}
	}
	var all []porcupine.Operation
	add := func(e event) {
		if e.Outcome == outOpen && e.Kind != opForget {
			e.Return = never
		}
		all = append(all, porcupine.Operation{
			ClientId: e.Client, Call: e.Call, Return: e.Return,
			Input: op{e.Kind, e.Key, e.Lease}, Output: result{e.Outcome, e.Fence},
		})
	}
	for _, e := range ops {
		switch {
		case e.Kind == opAgain && e.Outcome == outOK:
			leases[e.Lease].taken++
		case e.Kind == opRelease && e.Outcome == outOK:
			leases[e.Lease].taken--
		}
		add(e)
	}
	for _, l := range leases {
		if l.taken == 0 {
			continue
		}
		if l.Outcome == outOK {
			sent := answered[event{Key: l.Key, Fence: l.Fence}]
			l.Call = sent + int64(h.cfg.TTL-clockSlop)
		}
		l.Kind, l.Outcome = opExpire, outOpen
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
			h.Fatalf("no fenced mutex behaves like this, see %s (kept with -artifacts)\n%s", file, excerpt(ops, info))
		}
	}
	return enough, true
}

// excerpt shows where the history of a key goes wrong: the part that the model explains, and what
// it cannot explain.
func excerpt(all []porcupine.Operation, info porcupine.LinearizationInfo) string {
	const shown = 12
	var text strings.Builder
	for _, orders := range info.PartialLinearizationsOperations() {
		var best []porcupine.Operation
		for _, order := range orders {
			if len(order) > len(best) {
				best = order
			}
		}
		if len(best) == 0 {
			continue
		}
		state, explained := fencedMutex.Init(), make(map[porcupine.Operation]bool)
		for _, o := range best {
			_, state = fencedMutex.Step(state, o.Input, o.Output)
			explained[o] = true
		}
		var rest []porcupine.Operation
		for _, o := range all {
			if as[op](o.Input).Key == as[op](best[0].Input).Key && !explained[o] {
				rest = append(rest, o)
			}
		}
		if len(rest) == 0 {
			continue
		}
		slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		write := func(ops []porcupine.Operation) {
			for _, o := range ops {
				at := func(t int64) time.Duration { return time.Duration(t - best[0].Call).Round(time.Microsecond) }
				fmt.Fprintf(&text, "\t%-50s %v to %v\n", fencedMutex.DescribeOperation(o.Input, o.Output), at(o.Call), at(o.Return))
			}
		}
		write(best[max(0, len(best)-shown):])
		fmt.Fprintf(&text, "then the lock is in %s, and not explained are:\n", fencedMutex.DescribeState(state))
		write(rest[:min(shown, len(rest))])
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

// TestHistoryOfPausedProcesses stops all processes but one, for longer than their locks live. A
// client may be stopped before it reads that it has the lock. That keeps the others from the lock
// until it expires, which wakes nobody. So waiters try again.
func TestHistoryOfPausedProcesses(t *testing.T) {
	t.Parallel()
	inHistory(t, func(h *history) {
		h.busy = false
		server := redistest.Shared(t)
		var processes []*exec.Cmd
		for i := range 3 {
			processes = append(processes, h.startProcess(i, server.Addr))
		}
		h.plague(func() {
			survivor := h.rng.IntN(len(processes))
			signal := func(sig syscall.Signal) {
				for i, p := range processes {
					if i != survivor {
						_ = p.Process.Signal(sig) // it may be done
					}
				}
			}
			signal(syscall.SIGSTOP)
			h.rest(h.cfg.TTL, h.cfg.TTL*3/2)
			signal(syscall.SIGCONT)
		})
	})
}

// TestHistoryOfKilledProcesses kills processes, and starts others.
func TestHistoryOfKilledProcesses(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	inHistory(t, func(h *history) {
		server := redistest.Shared(t)
		var processes []*exec.Cmd
		for i := range 3 {
			processes = append(processes, h.startProcess(i, server.Addr))
		}
		next := len(processes)
		h.plague(func() {
			h.rest(h.cfg.TTL/2, h.cfg.TTL)
			i := h.rng.IntN(len(processes))
			_ = processes[i].Process.Kill() // it may be done
			processes[i] = h.startProcess(next, server.Addr)
			next++
		})
	})
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
