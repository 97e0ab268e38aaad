package engine

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
)

// A verdict is what came of a seed.
type verdict struct {
	failure string
	trace   []string
	steps   int
	lasted  time.Duration // by the clock of the simulation
}

// simulate plays a seed.
func simulate(t *testing.T, seed uint64, edit func(string) string) (v verdict) {
	t.Helper()
	var world atomic.Pointer[world]
	const longest = time.Minute
	defer time.AfterFunc(longest, func() { // in real time: a loop that spins has no end
		text := ""
		if w := world.Load(); w != nil {
			w.mu.Lock()
			text = strings.Join(w.trace, "\n")
			w.mu.Unlock()
		}
		panic(fmt.Sprintf("seed %d has not ended in %v:\n%s", seed, longest, text))
	}).Stop()
	synctest.Test(t, func(*testing.T) {
		time.Sleep(time.Until(time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC))) // as keys with times have as many digits as today
		w := newWorld(newPlan(seed), edit)
		world.Store(w)
		w.play()
		w.mu.Lock()
		defer w.mu.Unlock()
		v = verdict{w.failure, w.trace, w.steps, time.Since(w.start)}
	})
	return v
}

// TestSimulation runs servers against a Redis in memory, in fake time, while calls get lost, late and repeated, servers die,
// clocks step, and so on.
func TestSimulation(t *testing.T) {
	seeds := 100
	if n, err := strconv.Atoi(os.Getenv("SIM_SEEDS")); err == nil { // make simulate
		seeds = n
	}
	gc := debug.SetGCPercent(400)
	t.Cleanup(func() { debug.SetGCPercent(gc) })
	// The same seeds each time, so that a red build is the fault of the change; make verify draws new ones.
	first := uint64(1)
	if verify.All() || os.Getenv("SIDING_SEED") != "" {
		first = verify.Seed(t)
	}
	var steps, fake atomic.Int64
	began, players := time.Now(), runtime.GOMAXPROCS(0)
	t.Cleanup(func() {
		lasted := time.Since(began)
		t.Logf("%d seeds, %.0f a second; %d steps, %.0f a second; %v of fake time", seeds, float64(seeds)/lasted.Seconds(), steps.Load(), float64(steps.Load())/lasted.Seconds(), time.Duration(fake.Load()))
	})
	for player := range players {
		t.Run(strconv.Itoa(player), func(t *testing.T) {
			t.Parallel()
			for i := player; i < seeds; i += players {
				seed := first + uint64(i)
				v := simulate(t, seed, nil)
				steps.Add(int64(v.steps))
				fake.Add(int64(v.lasted))
				if v.failure == "" {
					continue
				}
				if path := os.Getenv("SIDING_TRACE"); path != "" {
					_ = os.WriteFile(path, []byte(strings.Join(v.trace, "\n")+"\n"), 0o600)
				} else {
					t.Log("\n" + strings.Join(v.trace, "\n"))
				}
				t.Fatalf("seed %d: %s", seed, v.failure)
			}
		})
	}
}

// TestSimulationRepeats: a seed does the same each time, or nearly: of two channels that are ready at the same moment Go reads
// either, so one seed of ten may differ.
func TestSimulationRepeats(t *testing.T) {
	verify.Long(t)
	first, differ := verify.Seed(t), 0
	for i := range uint64(10) {
		seed := first + i
		one, two := simulate(t, seed, nil), simulate(t, seed, nil)
		for k := range min(len(one.trace), len(two.trace)) {
			if one.trace[k] != two.trace[k] {
				t.Logf("seed %d, line %d:\n%s\n%s", seed, k, one.trace[k], two.trace[k])
				differ++
				break
			}
		}
	}
	expect.That(t, differ <= 1, "want nine of ten seeds to do the same again, but %d do not", differ)
}
