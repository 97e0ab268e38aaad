//go:build unix

package chaos_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/chaos"
)

// TestMain makes the test binary a worker if it is started as one.
func TestMain(m *testing.M) {
	env := os.Getenv(workerEnv)
	if env == "" {
		// The scenarios mostly wait; by default no more than there are processors
		// would run at once.
		flag.Parse()
		if err := flag.Set("test.parallel", "10"); err != nil {
			panic(err)
		}
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
// lost or done twice.
func TestChaos(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes minutes")
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("CHAOS_SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatalf("CHAOS_SEED: %v", err)
	}
	minutes, err := strconv.ParseFloat(cmp.Or(os.Getenv("CHAOS_MINUTES"), "1.75"), 64)
	if err != nil {
		t.Fatalf("CHAOS_MINUTES: %v", err)
	}
	scenarios := []chaos.Scenario{chaos.Standalone, chaos.Sentinel, chaos.Cluster}
	if s := chaos.Scenario(os.Getenv("CHAOS_SCENARIO")); s != "" {
		scenarios = []chaos.Scenario{s}
	}
	for _, s := range scenarios {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			show(t, newRun(t, s, seed).do(t, time.Duration(minutes*float64(time.Minute))))
		})
	}
}

// show shows what was found, fails the test if it is wrong, and keeps it for
// the table.
func show(t *testing.T, report *chaos.Report) {
	t.Helper()
	for _, wrong := range report.Wrong {
		t.Error(wrong)
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
