//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
)

// TestMain makes the test binary a worker if it is started as one.
func TestMain(m *testing.M) {
	env := os.Getenv(workerEnv)
	if env == "" {
		m.Run()
		return
	}
	var s Settings
	err := json.Unmarshal([]byte(env), &s)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = Serve(ctx, s, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is a main
	}
}

// TestChaos injects faults into a running fleet and then checks that no task was lost or done
// twice. By default the faults last 20 seconds, on one Redis. CHAOS_SCENARIO names another kind of
// Redis. With CHAOS_MINUTES the faults last longer, and with CHAOS_TTL locks live longer. There are also tasks without a resource, which come
// back up to a minute after their worker died.
func TestChaos(t *testing.T) {
	t.Parallel()
	const shortest = 20 * time.Second
	r := plan{seed: verify.Seed(t, "CHAOS_MINUTES", "CHAOS_SCENARIO", "CHAOS_TTL"), scenario: Standalone, length: shortest, brief: true}
	if text := os.Getenv("CHAOS_MINUTES"); text != "" {
		minutes, err := strconv.ParseFloat(text, 64)
		expect.Need(t, err == nil, "CHAOS_MINUTES: %v", err)
		r.length, r.brief = time.Duration(minutes*float64(time.Minute)), false
	}
	if text := os.Getenv("CHAOS_TTL"); text != "" && text != TTL.String() {
		t.Fatalf("CHAOS_TTL: want a duration such as 15s, have %q", text)
	}
	if text := os.Getenv("CHAOS_SCENARIO"); text != "" {
		r.scenario = Scenario(text)
	}
	newRun(t, r).do(t)
}
