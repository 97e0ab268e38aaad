//go:build unix

package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidingq/siding/e2e/chaos"
	"github.com/sidingq/siding/internal/verify"
)

// TestMain makes the test binary a worker if it is started as one.
func TestMain(m *testing.M) {
	env := os.Getenv(workerEnv)
	if env == "" {
		m.Run()
		return
	}
	var s chaos.Settings
	err := json.Unmarshal([]byte(env), &s)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = chaos.Serve(ctx, s, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is a main
	}
}

// TestChaos injects faults into a running fleet and then checks that nothing was
// lost or done twice. It does so for a short time on one Redis. With CHAOS_MINUTES
// it takes longer, on what CHAOS_SCENARIO names, and has tasks that only asynq
// brings back, a minute and a half after their worker died.
func TestChaos(t *testing.T) {
	t.Parallel()
	const shortest = 20 * time.Second
	r := plan{seed: verify.Seed(t, "CHAOS_MINUTES", "CHAOS_SCENARIO"), scenario: chaos.Standalone, length: shortest, brief: true}
	if text := os.Getenv("CHAOS_MINUTES"); text != "" {
		minutes, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("CHAOS_MINUTES: %v", err)
		}
		r.length, r.brief = time.Duration(minutes*float64(time.Minute)), false
	}
	if text := os.Getenv("CHAOS_SCENARIO"); text != "" {
		r.scenario = chaos.Scenario(text)
	}
	show(t, newRun(t, r).do(t))
}

// show shows what was found, fails the test if it is wrong, and keeps it for
// the table.
func show(t *testing.T, report *chaos.Report) {
	t.Helper()
	for _, wrong := range report.Wrong {
		t.Error(wrong)
	}
	injections := 0
	for _, account := range report.Faults {
		injections += account.Injections
	}
	if injections < 5 || report.Effects < 200 {
		t.Errorf("want 5 faults and 200 effects or more, have %d and %d", injections, report.Effects)
	}
	b := &strings.Builder{}
	if err := chaos.WriteTable(b, []chaos.Report{*report}); err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d, %s: %d tasks, %d runs, %d effects in %.0f s; %d goroutines, memory %d MB\n%s", report.Seed, report.Scenario,
		report.Tasks, report.Runs, report.Effects, report.Seconds, report.Goroutines, report.Memory>>20, b)
	path := os.Getenv("CHAOS_JSON")
	if path == "" {
		return
	}
	line, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
}
