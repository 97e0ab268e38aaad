package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

// TestSystemdUnit wants a unit in which systemd knows each setting, and which leaves a worker enough
// time to drain.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	if os.Getenv(panicVariable) != "" {
		go panic("as in a goroutine that a handler has started")
		select {}
	}
	analyze := proc.Find(t, "systemd", "systemd-analyze")
	bin := expect.Value(binaries())(t)
	text := expect.Value(os.ReadFile(filepath.Join("..", "deploy", "systemd", "siding-worker.service")))(t)
	// systemd wants the program to be there.
	installed := strings.Replace(string(text), "ExecStart=/usr/local/bin/worker ", "ExecStart="+bin+"/worker ", 1)
	unit := filepath.Join(t.TempDir(), "siding-worker.service")
	expect.OK(t, os.WriteFile(unit, []byte(installed), 0o600))
	// An unknown setting is a warning only.
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("want no complaint, have %q, error %v", out, err)
	}
	m := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(string(text))
	expect.Need(t, m != nil, "want TimeoutStopSec in seconds, have none")
	stop, err := time.ParseDuration(m[1] + "s")
	if deadline := config.Default().HardDeadline; err != nil || stop <= deadline {
		t.Errorf("TimeoutStopSec: want more than shutdown.hard_deadline, %v, have %v, error %v", deadline, stop, err)
	}
	// systemd does not start a worker again that ends with 2. Go ends a panic with that status, too.
	panics := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSystemdUnit$")
	panics.Dir, panics.Env = t.TempDir(), append(os.Environ(), panicVariable+"=1")
	for _, m := range regexp.MustCompile(`(?m)^Environment=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		panics.Env = append(panics.Env, m[1])
	}
	if out, err := panics.CombinedOutput(); err == nil || panics.ProcessState.ExitCode() == 2 || !strings.Contains(string(out), "panic: as in") {
		t.Errorf("want a panic end in another way than with status 2, have %v\n%s", panics.ProcessState, out)
	}
}

// panicVariable has TestSystemdUnit panic, in a process of its own.
const panicVariable = "SIDING_E2E_PANICS"
