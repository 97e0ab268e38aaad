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
	"github.com/sidingq/siding/internal/testenv/proc"
)

// TestSystemdUnit wants a unit in which systemd knows each setting, and which leaves a worker enough
// time to drain.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	analyze := proc.Find(t, "systemd", "systemd-analyze")
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "deploy", "systemd", "siding-worker.service"))
	if err != nil {
		t.Fatal(err)
	}
	// systemd wants the program to be there.
	installed := strings.Replace(string(text), "ExecStart=/usr/local/bin/worker ", "ExecStart="+bin+"/worker ", 1)
	unit := filepath.Join(t.TempDir(), "siding-worker.service")
	if err := os.WriteFile(unit, []byte(installed), 0o600); err != nil {
		t.Fatal(err)
	}
	// An unknown setting is a warning only.
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("want no complaint, have %q, error %v", out, err)
	}
	m := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("want TimeoutStopSec in seconds, have none")
	}
	stop, err := time.ParseDuration(m[1] + "s")
	if deadline := config.Default().HardDeadline; err != nil || stop <= deadline {
		t.Errorf("TimeoutStopSec: want more than shutdown.hard_deadline, %v, have %v, error %v", deadline, stop, err)
	}
}
