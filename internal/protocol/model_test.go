package protocol_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/protocol"
	"github.com/sidingq/siding/internal/verify"
)

// The tasks of a model, by their resources.
var (
	two   = []uint8{0, 0}
	three = []uint8{0, 0, 0}
	four  = []uint8{0, 0, 0, 0}
	pairs = []uint8{0, 0, 1, 1}
)

// TestProtocol explores the protocol as it is: small models always, the whole in
// make verify. SIDING_MODEL=large adds what takes minutes and gigabytes.
func TestProtocol(t *testing.T) {
	t.Parallel()
	models := []protocol.Model{
		{Resources: two, Faults: 1},
		{Resources: three, Failures: 1},
	}
	if verify.All() {
		models = append(models,
			protocol.Model{Resources: pairs, Failures: 1},
			protocol.Model{Resources: three, Faults: 1},
			protocol.Model{Resources: pairs, Faults: 1, Symmetric: true},
		)
	}
	if os.Getenv("SIDING_MODEL") == "large" {
		models = append(models,
			protocol.Model{Resources: four, Faults: 1, Symmetric: true},
			protocol.Model{Resources: two, Faults: 1, Failures: 1},
			protocol.Model{Resources: two, Faults: 2},
			protocol.Model{Resources: three, Faults: 1, Failures: 1},
		)
	}
	for _, m := range models {
		m.Workers, m.Recovers = 2, true
		t.Run(name(m), func(t *testing.T) {
			t.Parallel()
			report := m.Explore()
			t.Log(report)
			if report.Broken != "" {
				t.Error("want nothing broken")
			}
		})
	}
}

func name(m protocol.Model) string {
	return fmt.Sprintf("tasks on %v, %d faults, %d failures", m.Resources, m.Faults, m.Failures)
}

// Each mistake has to be found, and by the property that is there for it.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		mistake          protocol.Mistake
		faults, failures uint8
		property         string
	}{
		{protocol.NotedAndForgotten, 0, 1, "timers"},
		{protocol.ReservationForever, 1, 1, "hope"},
		{protocol.GhostNotSkipped, 1, 0, "ghosts"},
		{protocol.PromoteUnchecked, 0, 1, "back-off"},
		{protocol.CalledUnchecked, 1, 0, "lines"},
		{protocol.PromoteInTwoSteps, 0, 1, "one place"},
		{protocol.LeavesWhenReserved, 0, 1, "lines"},
		{protocol.HolderStaysInLine, 0, 1, "lines"},
		{protocol.LapseForgotten, 1, 0, "progress"},
		{protocol.ReleaseOfAnothers, 1, 0, "one holder"},
		{protocol.LedgerUnfenced, 1, 0, "one holder"},
		{protocol.AckUnchecked, 1, 0, "own acknowledgement"},
		{protocol.RecoveryWithoutLock, 1, 0, "recovery"},
		{protocol.RecoveryUnchecked, 1, 0, "own acknowledgement"},
	}
	for _, tt := range tests {
		t.Run(string(tt.mistake), func(t *testing.T) {
			t.Parallel()
			m := protocol.Model{
				Resources: two, Workers: 2, Faults: tt.faults, Failures: tt.failures, Mistake: tt.mistake,
				Recovers:  tt.mistake == protocol.RecoveryWithoutLock || tt.mistake == protocol.RecoveryUnchecked,
				Symmetric: tt.property != "progress",
			}
			report := m.Explore()
			t.Log(report)
			if property, _, _ := strings.Cut(report.Broken, ":"); property != tt.property {
				t.Errorf("want the property %q broken, have %q", tt.property, report.Broken)
			}
		})
	}
}
